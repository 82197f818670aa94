"""Glob and Grep while somebody else moves the furniture: nothing from outside the root, and nothing that stays."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.pairs import IN_FULL
from tests.support.searching import ENGINES, RIPGREP, SearchBench, needs_ripgrep
from tests.support.waiting import at_most

from trunkline.runtime.beneath import Beneath
from trunkline.runtime.children import Children
from trunkline.sources.builtin.globbing import Glob
from trunkline.sources.builtin.grep import Grep
from trunkline.sources.builtin.search import worker
from trunkline.sources.builtin.search.engines import RipgrepEngine
from trunkline.sources.builtin.search.ripgrep import Ripgrep, Search
from trunkline.sources.builtin.search.tree import Tree
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
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_folder_swapped_for_a_link_shows_nothing_from_outside(
    tmp_path: Path, outside: Path, engine: str
) -> None:
    root = tmp_path / "root"
    fill(root)
    bench = SearchBench(root, engine)
    async with bench.lasting():
        with swapping(root, outside):
            await search_again_and_again(bench)


async def search_again_and_again(bench: SearchBench) -> None:
    for _ in range(ROUNDS):
        for mode in ("content", "files_with_matches", "count"):
            found = await bench.text(Grep, pattern="TOP-SECRET", output_mode=mode)
            assert found.startswith("No match for `TOP-SECRET`"), found
        assert "only-outside" not in await bench.text(Glob, pattern="**/*")
        assert SECRET not in await _text_or_fault(bench, "swapped7")


async def _text_or_fault(bench: SearchBench, path: str) -> str:
    try:
        return await bench.text(Grep, pattern="TOP-SECRET|harmless", path=path, output_mode="content")
    except ToolFault as fault:
        return str(fault)


@pytest.mark.law
@needs_ripgrep
def test_what_ripgrep_saw_outside_is_not_believed(tmp_path: Path, outside: Path) -> None:
    """The race without luck: ripgrep proposes what it read through a link, and the link is gone when we look."""
    root = tmp_path / "root"
    fill(root)
    with Beneath(str(root)) as beneath:
        engine = RipgrepEngine(Tree(beneath), Ripgrep(RIPGREP or "", whole_disk=False), _search("TOP-SECRET"))
        proposed = ["swapped0/a.py", "swapped0/deep/b.py", "swapped0/only-outside.py", "../outside/a.py"]
        assert list(engine.matching(proposed)) == []
        assert list(engine.counts(proposed)) == []
        assert list(engine.lines(proposed, 5, 5)) == []


@pytest.mark.law
@needs_ripgrep
def test_a_link_that_is_there_when_we_look_is_not_followed_out(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "swapped").symlink_to(outside)
    (root / "file.py").symlink_to(outside / "a.py")
    with Beneath(str(root)) as beneath:
        tree = Tree(beneath)
        engine = RipgrepEngine(tree, Ripgrep(RIPGREP or "", whole_disk=False), _search("SECRET"))
        proposed = ["swapped/a.py", "file.py"]
        assert list(engine.matching(proposed)) == []
        assert tree.ages(proposed) == []


def _search(pattern: str) -> Search:
    return Search(pattern, ignore_case=False, multiline=False)


# -- searches that do not end by themselves ----------------------------------------------------------------------------


async def test_a_pattern_that_never_ends_holds_up_nobody_and_ends_with_its_call(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 60 + "b\n")
    bench = SearchBench(tmp_path, "own")
    async with bench.lasting() as children:
        task = asyncio.get_running_loop().create_task(bench.use(Grep, pattern="(a+)+$"))
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
    root, programs = tmp_path / "root", tmp_path / "programs"
    fill(root)
    programs.mkdir()
    (programs / "rg").write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 600\n"
    )
    (programs / "rg").chmod(0o755)
    bench = SearchBench(root, "own", path=f"{programs}:/usr/bin:/bin")
    async with bench.lasting():
        task = asyncio.get_running_loop().create_task(bench.use(Glob, pattern="*"))
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
@pytest.mark.parametrize("engine", ENGINES)
async def test_no_handle_is_left_behind(tmp_path: Path, engine: str) -> None:
    fill(tmp_path)
    bench = SearchBench(tmp_path, engine)
    await bench.text(Grep, pattern="harmless")
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        await bench.text(Grep, pattern="harmless", output_mode="content")
        await bench.text(Glob, pattern="*")
    assert len(os.listdir("/dev/fd")) <= before


@pytest.mark.law
async def test_searches_cancelled_at_any_moment_leave_no_handle_behind(tmp_path: Path) -> None:
    fill(tmp_path)
    bench = SearchBench(tmp_path, "own")
    loop = asyncio.get_running_loop()
    async with bench.lasting():
        await bench.text(Grep, pattern="harmless")
        before = len(os.listdir("/dev/fd"))
        for pause_ms in range(0, 60, 4):
            task = loop.create_task(bench.text(Grep, pattern="harmless"))
            await asyncio.sleep(pause_ms / 1000)
            task.cancel()
            await asyncio.wait([task], timeout=at_most(10))
        assert await bench.text(Grep, pattern="harmless", path="steady/a.py") == "steady/a.py"
        assert len(os.listdir("/dev/fd")) <= before


@pytest.mark.parametrize("engine", ENGINES)
async def test_pipes_and_devices_hold_up_nobody(tmp_path: Path, engine: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "a").write_text("x\n")
    bench = SearchBench(tmp_path, engine)
    assert await bench.text(Grep, pattern=".") == "a"
    with pytest.raises(ToolFault, match="pipe"):
        await bench.use(Grep, pattern=".", path="pipe")
    with pytest.raises(ToolFault, match="outside"):
        await bench.use(Grep, pattern=".", path="zero")


# -- ripgreps that are none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    ["#!/bin/sh\necho 'error: unknown flag --engine' >&2\nexit 2\n", "#!/nowhere/at/all\n", "not a program"],
    ids=["too old", "no interpreter", "no program"],
)
async def test_a_ripgrep_that_cannot_be_used_is_done_without(tmp_path: Path, program: str) -> None:
    root, programs = tmp_path / "root", tmp_path / "programs"
    fill(root)
    programs.mkdir()
    (programs / "rg").write_text(program)
    (programs / "rg").chmod(0o755)
    bench = SearchBench(root, "own", path=str(programs))
    assert await bench.text(Grep, pattern="harmless", path="steady/a.py") == "steady/a.py"
    assert await bench.text(Grep, pattern="harmless", glob="steady/a.py") == "steady/a.py"
    assert await bench.text(Glob, pattern="steady/a.py") == "steady/a.py"


@pytest.mark.law
async def test_a_program_that_an_agent_can_write_is_not_run(tmp_path: Path) -> None:
    planted = tmp_path / "bin" / "rg"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    (tmp_path / "a").write_text("x\n")
    bench = SearchBench(tmp_path, "own", path=f"{planted.parent}:bin:.")
    assert await bench.text(Grep, pattern="^x$") == "a"
    assert not (tmp_path / "ran").exists()


def test_a_search_that_takes_too_long_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ab\n")
    (tmp_path / "b").write_text("a" * 60 + "c\n")
    request = {
        **dict.fromkeys(("ignore_case", "multiline"), False),
        "tool": "Grep",
        "pattern": "(a+)+b",
        "output_mode": "content",
        "line_numbers": True,
        "folder": "",
        "file": "",
        "globs": [],
        "type": "",
        "before": 0,
        "after": 0,
        "offset": 0,
        "limit": 9,
        "most_characters": 1000,
        "limit_s": 0.5,
        "ripgrep": None,
        "whole_disk": False,
        "hidden": [],
    }
    run = subprocess.run(
        [sys.executable, "-I", "-S", worker.__file__], input=json.dumps(request).encode(), cwd=tmp_path,
        capture_output=True, timeout=at_most(60), check=True,
    )  # fmt: skip
    answer = json.loads(run.stdout)
    assert answer["lines"] == ["a:1:ab"]
    assert answer["left_is_all"] is False
    assert answer["notes"] == ["Stopped after 0.5 s, so there may be more: search a smaller folder"]
