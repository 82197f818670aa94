"""The folder of a run: gone with it, and with a gateway that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.child_trees import MARK, children_of, close_pipes, marked, new_mark, survivors
from tests.support.pairs import IN_FULL
from tests.support.processes import alive
from tests.support.waiting import at_most, until, wait_until

from trunkline.core.errors import DRAINING, SOURCE_START_FAILED, GatewayError
from trunkline.runtime.children import Children
from trunkline.runtime.temporary_folders import RunFolder

pytestmark = pytest.mark.law

GATEWAY = """
import asyncio, os, socket, sys
from trunkline.runtime.children import Children
from trunkline.runtime.temporary_folders import RunFolder

WRITES = "trap '' TERM; while mkdir -p deep/$$ && echo x > deep/$$/file; do :; done; exec sleep 1000"

async def main():
    children = Children(portable=sys.argv[1] == "portable")
    kept, released = RunFolder(children, "test"), RunFolder(children, "test")
    released.remove()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(kept.path / "router"))
    (kept.path / "out").symlink_to(sys.argv[2])
    env = {"PATH": os.environ["PATH"], "TEST_MARK": os.environ["TEST_MARK"]}
    await children.spawn(["sh", "-c", WRITES], env=env, cwd=str(kept.path), label="test")
    print(children.supervisor_pid, kept.path, flush=True)
    {}
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        monkeypatch.setenv("TMPDIR", short)
        yield Path(short)


@contextmanager
def gateway(
    mark: str, outside: Path, *, mode: str = "linux", then: str = ""
) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A gateway with a run whose agent keeps writing into the folder; yields it, its supervisor, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", GATEWAY.replace("{}", then), mode, str(outside)],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        supervisor, folder = process.stdout.readline().split()
        yield process, int(supervisor), Path(folder)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    wait_until(lambda: not survivors(mark), "nothing of it is left")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
@pytest.mark.parametrize("mode", ["linux", "portable"])
def test_it_is_gone_when_the_gateway_is_killed_and_its_agent_with_it(mode: str, tmp_path: Path, place: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with gateway(new_mark(), tmp_path, mode=mode) as (process, supervisor, folder):
        wait_until((folder / "deep").is_dir, "the agent writes")
        process.kill()
        process.wait(at_most(15))
        wait_until(lambda: not alive(supervisor), "the supervisor ends")
        assert not folder.exists()
    assert list(place.iterdir()) == []
    assert (tmp_path / "precious").read_text() == "mine", "links are not followed"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
def test_a_folder_that_another_took_the_place_of_stays(tmp_path: Path) -> None:
    with gateway(new_mark(), tmp_path) as (process, supervisor, folder):
        folder.rename(folder.with_name("moved"))
        folder.mkdir()
        (folder / "other").write_text("")
        process.kill()
        process.wait(at_most(15))
        wait_until(lambda: not alive(supervisor), "the supervisor ends")
        assert (folder / "other").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
def test_one_made_just_before_the_kill_is_gone_too(tmp_path: Path, place: Path) -> None:
    last = "RunFolder(children, 'last'); os.kill(os.getpid(), 9)"
    for _ in range(5 if IN_FULL else 2):
        with gateway(new_mark(), tmp_path, then=last) as (process, supervisor, _folder):
            process.wait(at_most(15))
            wait_until(lambda supervisor=supervisor: not alive(supervisor), "the supervisor ends")
            assert list(place.iterdir()) == []


async def test_it_is_private_and_goes_with_its_run(place: Path) -> None:
    async with children_of() as children:
        folder = RunFolder(children, "test")
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert len(os.fsencode(folder.path / "router")) < 100
        folder.remove()
        assert not folder.path.exists()
        folder.path.mkdir()
    assert list(place.iterdir()) == [folder.path], "what was released is no longer anybody's to remove"


async def test_one_that_was_not_removed_goes_with_the_children(place: Path) -> None:
    async with children_of() as children:
        folder = RunFolder(children, "test")
    assert list(place.iterdir()) == []
    folder.remove()


async def test_a_supervisor_that_dies_leaves_it_and_the_next_one_removes_it(place: Path) -> None:
    faults: list[str] = []
    children = Children(on_fault=faults.append)
    folder = RunFolder(children, "test")
    first = children.supervisor_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: children.supervisor_pid is None, "its death is noticed")
    assert folder.path.exists()
    child = await children.spawn(["true"], env=marked(""), cwd=None, label="test")
    close_pipes(child)
    assert children.supervisor_pid != first
    await children.close()
    assert len(faults) == 1
    assert list(place.iterdir()) == []
    folder.remove()


async def test_where_there_can_be_none_that_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with children_of() as children:
        monkeypatch.setattr(tempfile, "tempdir", str(place / "missing"))
        with pytest.raises(GatewayError) as caught:
            RunFolder(children, "test")
        assert caught.value.problem.code is SOURCE_START_FAILED
        monkeypatch.setattr(tempfile, "tempdir", str(place))
    with pytest.raises(GatewayError) as caught:
        RunFolder(children, "test")
    assert caught.value.problem.code is DRAINING
    assert list(place.iterdir()) == []
    await asyncio.sleep(0)
