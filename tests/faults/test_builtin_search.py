"""Glob and Grep while files move: nothing from outside the root is shown, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.pairs import IN_FULL
from tests.support.searching import SearchBench
from tests.support.waiting import at_most

from trunkline.core.errors import PART_MISSING, GatewayError
from trunkline.runtime.children import Children
from trunkline.runtime.rooted_files import RootHandle
from trunkline.sources.builtin import file_search_worker
from trunkline.sources.builtin.file_search import GlobTool, GrepTool, find_ripgrep
from trunkline.sources.builtin.ripgrep import Ripgrep, RootFiles
from trunkline.sources.builtin.tool import ToolFault

SECRET = "TOP-SECRET-CONTENT"
ROUNDS = 30 if IN_FULL else 6
SWAPPED = 40


@contextmanager
def swapping(root: Path, outside: Path) -> Iterator[None]:
    """While this lasts, the `swapped` folders are in turn folders and links to `outside`, as quickly as can be."""
    folders = [root / f"swapped{number}" for number in range(SWAPPED)]
    beside = root.with_name("beside")
    (beside / "links").mkdir(parents=True)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for folder in folders:
                (beside / "links" / folder.name).symlink_to(outside)
                folder.rename(beside / folder.name)
                (beside / "links" / folder.name).rename(folder)
            for folder in folders:
                folder.unlink()
                (beside / folder.name).rename(folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What is outside has the same names as what is inside, and names of its own."""
    folder = tmp_path / "outside"
    for name in ("a.py", "deep/b.py", "only-outside.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{SECRET}\n")
    return folder


def fill(root: Path) -> None:
    for place in ("steady", *(f"swapped{number}" for number in range(SWAPPED))):
        for name in ("a.py", "deep/b.py", "deep/c.py"):
            (root / place / name).parent.mkdir(parents=True, exist_ok=True)
            (root / place / name).write_text("harmless\n")


@pytest.mark.law
async def test_a_folder_swapped_for_a_link_shows_nothing_from_outside(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    fill(root)
    bench = SearchBench(root)
    async with bench.lasting():
        with swapping(root, outside):
            await search_again_and_again(bench)


async def search_again_and_again(bench: SearchBench) -> None:
    for _ in range(ROUNDS):
        for mode in ("content", "files_with_matches", "count"):
            found = await bench.text(GrepTool, pattern="TOP-SECRET", output_mode=mode)
            assert found.startswith("No match for `TOP-SECRET`"), found
        assert "only-outside" not in await bench.text(GlobTool, pattern="**/*")
        assert SECRET not in await _text_or_fault(bench, "swapped7")


async def _text_or_fault(bench: SearchBench, path: str) -> str:
    try:
        return await bench.text(GrepTool, pattern="TOP-SECRET|harmless", path=path, output_mode="content")
    except ToolFault as fault:
        return str(fault)


@pytest.mark.law
def test_what_ripgrep_saw_outside_is_not_believed(tmp_path: Path, outside: Path) -> None:
    """The race without luck: ripgrep proposes what it read through a link, and the link is gone when we look."""
    root = tmp_path / "root"
    fill(root)
    with RootHandle(str(root)) as beneath:
        ripgrep = Ripgrep(_request("TOP-SECRET"), RootFiles(beneath))
        proposed = ["swapped0/a.py", "swapped0/deep/b.py", "swapped0/only-outside.py", "../outside/a.py"]
        assert list(ripgrep.matching(proposed)) == []
        assert list(ripgrep.counts(proposed)) == []
        assert list(ripgrep.lines(proposed, 5, 5)) == []


@pytest.mark.law
def test_a_link_that_is_there_when_we_look_is_not_followed_out(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "swapped").symlink_to(outside)
    (root / "file.py").symlink_to(outside / "a.py")
    with RootHandle(str(root)) as beneath:
        files = RootFiles(beneath)
        ripgrep = Ripgrep(_request("SECRET"), files)
        proposed = ["swapped/a.py", "file.py"]
        assert list(ripgrep.matching(proposed)) == []
        assert files.ages(proposed) == []


def _request(pattern: str) -> dict[str, Any]:
    """For one page of lines."""
    return {
        **dict.fromkeys(("ignore_case", "multiline", "whole_disk"), False),
        **dict.fromkeys(("folder", "file", "type"), ""),
        **dict.fromkeys(("wanted", "unwanted"), None),
        **dict.fromkeys(("before", "after", "offset"), 0),
        "tool": "Grep",
        "pattern": pattern,
        "output_mode": "content",
        "line_numbers": True,
        "names": [],
        "limit": 9,
        "most_characters": 1000,
        "limit_s": 0.5,
        "ripgrep": find_ripgrep(),
        "hidden": [],
    }


def program(folder: Path, text: str) -> Path:
    """A program that takes the place of ripgrep."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rg"
    path.write_text(text)
    path.chmod(0o755)
    return path


# -- searches that do not end by themselves ----------------------------------------------------------------------------


async def test_a_search_that_never_ends_holds_up_nobody_and_ends_with_its_call(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root)
    bench = SearchBench(root, ripgrep=program(tmp_path / "programs", "#!/bin/sh\nwhile :; do :; done\n"))
    async with bench.lasting() as children:
        task = asyncio.get_running_loop().create_task(bench.use(GrepTool, pattern="harmless"))
        pid = await _worker(children)
        for _ in range(50):  # the loop turns meanwhile
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task], timeout=at_most(10))
        assert task.cancelled()
        await _gone(pid)


@pytest.mark.law
async def test_what_the_worker_started_ends_with_the_call(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root)
    sleeper = f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 600\n"
    bench = SearchBench(root, ripgrep=program(tmp_path / "programs", sleeper), path="/usr/bin:/bin")
    async with bench.lasting():
        task = asyncio.get_running_loop().create_task(bench.use(GlobTool, pattern="*"))
        async with asyncio.timeout(at_most(20)):
            while not (tmp_path / "pid").exists():
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task], timeout=at_most(10))
        assert task.cancelled()
        await _gone(int((tmp_path / "pid").read_text()))


async def _worker(children: Children) -> int:
    """The process that searches, once it is there."""
    async with asyncio.timeout(at_most(20)):
        while True:
            supervisor = children.supervisor_pid
            path = Path(f"/proc/{supervisor}/task/{supervisor}/children")
            if supervisor is not None and path.exists() and (found := path.read_text().split()):
                return int(found[0])
            await asyncio.sleep(0.01)


async def _gone(pid: int) -> None:
    async with asyncio.timeout(at_most(20)):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


@pytest.mark.law
async def test_no_handle_is_left_behind(tmp_path: Path) -> None:
    fill(tmp_path)
    bench = SearchBench(tmp_path)
    await bench.text(GrepTool, pattern="harmless")
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        await bench.text(GrepTool, pattern="harmless", output_mode="content")
        await bench.text(GlobTool, pattern="*")
    assert len(os.listdir("/dev/fd")) <= before


@pytest.mark.law
async def test_searches_cancelled_at_any_moment_leave_no_handle_behind(tmp_path: Path) -> None:
    fill(tmp_path)
    bench = SearchBench(tmp_path)
    loop = asyncio.get_running_loop()
    async with bench.lasting():
        await bench.text(GrepTool, pattern="harmless")
        before = len(os.listdir("/dev/fd"))
        for pause_ms in range(0, 60, 4):
            task = loop.create_task(bench.text(GrepTool, pattern="harmless"))
            await asyncio.sleep(pause_ms / 1000)
            task.cancel()
            await asyncio.wait([task], timeout=at_most(10))
        assert await bench.text(GrepTool, pattern="harmless", path="steady/a.py") == "steady/a.py"
        assert len(os.listdir("/dev/fd")) <= before


async def test_pipes_and_devices_hold_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "a").write_text("x\n")
    bench = SearchBench(tmp_path)
    assert await bench.text(GrepTool, pattern=".") == "a"
    with pytest.raises(ToolFault, match="pipe"):
        await bench.use(GrepTool, pattern=".", path="pipe")
    with pytest.raises(ToolFault, match="outside"):
        await bench.use(GrepTool, pattern=".", path="zero")


# -- ripgreps that are none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["#!/bin/sh\necho 'error: unknown flag --engine' >&2\nexit 2\n", "#!/nowhere/at/all\n", "not a program"],
    ids=["too old", "no interpreter", "no program"],
)
async def test_a_ripgrep_that_cannot_be_run_is_an_error_with_a_code(tmp_path: Path, text: str) -> None:
    root = tmp_path / "root"
    fill(root)
    bench = SearchBench(root, ripgrep=program(tmp_path / "programs", text))
    for kind, arguments in ((GrepTool, {"pattern": "harmless", "path": "steady/a.py"}), (GlobTool, {"pattern": "*"})):
        with pytest.raises(GatewayError) as raised:
            await bench.use(kind, **arguments)
        assert raised.value.problem.code is PART_MISSING


@pytest.mark.law
async def test_no_program_of_the_path_or_the_root_is_run(tmp_path: Path) -> None:
    ran = f"#!/bin/sh\ntouch {tmp_path}/ran\n"
    root = tmp_path / "root"
    planted = [program(root, ran), program(root / "bin", ran), program(tmp_path / "bin", ran)]
    (root / "a").write_text("x\n")
    bench = SearchBench(root, path=":".join([*(str(path.parent) for path in planted), "bin", "."]))
    assert await bench.text(GrepTool, pattern="^x$") == "a"
    assert not (tmp_path / "ran").exists()


def test_a_search_that_takes_too_long_says_what_it_has(tmp_path: Path) -> None:
    """ripgrep that finds what it finds, and then does not end."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("ab\n")
    endless = f'#!/bin/sh\n{find_ripgrep()} "$@"\ncase "$*" in *--json*) sleep 600;; esac\n'
    request = {**_request("a+b"), "ripgrep": str(program(tmp_path / "programs", endless))}
    run = subprocess.Popen(
        [sys.executable, "-I", "-S", file_search_worker.__file__],
        cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = run.communicate(json.dumps(request).encode(), timeout=at_most(60))
    finally:
        os.killpg(run.pid, signal.SIGKILL)  # the sleeper; in the gateway its supervisor does this
    answer = json.loads(output)
    assert answer["lines"] == ["a:1:ab"]
    assert answer["left_is_all"] is False
    assert answer["notes"] == ["Stopped after 0.5 s, so there may be more: search a smaller folder"]
