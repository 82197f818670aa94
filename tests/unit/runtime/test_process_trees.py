"""Daemons that hide whose they are, beside a neighbour: they count for who started them, and end with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support import daemons
from tests.support.child_trees import children_of, close_pipes, marked, new_mark, read_line, survivors
from tests.support.processes import alive
from tests.support.waiting import at_most, until

from trunkline.runtime.children import Children
from trunkline.runtime.process_trees import OwnerMarks
from trunkline.runtime.supervisor_client import Child, Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds owners in /proc")
MIB = 1 << 20
HIDING = ["wiped", "unreadable"]
SEEN_BEFORE = ["seen", "of_seen_session"]
FREE = Limits(processes=100)


async def start(children: Children, mark: str, how: str, limits: Limits | None, count: int = 1, mb: int = 1) -> Child:
    argv = [sys.executable, daemons.PROGRAM, mark, how, str(count), str(mb)]
    return await children.spawn(argv, env=marked(mark), cwd=None, label=how, limits=limits)


async def neighbour_of(children: Children, limits: Limits | None = FREE) -> Child:
    return await children.spawn(["cat"], env=marked(""), cwd=None, label="neighbour", limits=limits)


async def is_ended_for(what: str, limits: Limits, how: str, count: int, mb: int) -> None:
    mark = new_mark()
    async with children_of() as children:
        neighbour = await neighbour_of(children)
        child = await start(children, mark, how, limits, count, mb)
        await until(child.exited.done, "it is ended")
        assert child.exceeded is not None
        assert child.exceeded.what == what
        await until(lambda: not survivors(mark), "with all of them")
        assert (neighbour.exited.done(), neighbour.exceeded) == (False, None)
        close_pipes(child)
        close_pipes(neighbour)


@pytest.mark.parametrize("how", HIDING + SEEN_BEFORE)
async def test_the_memory_of_a_daemon_that_hides_counts(how: str) -> None:
    await is_ended_for("memory", Limits(memory_bytes=100 * MIB), how, 1, 200)


@pytest.mark.parametrize("how", HIDING)
async def test_daemons_that_hide_count_as_processes(how: str) -> None:
    await is_ended_for("processes", Limits(processes=6), how, 15, 1)


@pytest.mark.parametrize("how", HIDING)
async def test_a_daemon_that_hides_ends_with_its_own_tree_and_not_the_last(how: str) -> None:
    mark = new_mark()
    async with children_of() as children:
        neighbour = await neighbour_of(children, None)
        child = await start(children, mark, how, None)
        assert await read_line(child.stdout) == b"ready\n"
        close_pipes(child)
        await child.stop()
        assert survivors(mark) == []
        assert not neighbour.exited.done()
        close_pipes(neighbour)


async def test_one_whose_owner_nobody_can_tell_is_told_once_and_blamed_on_nobody() -> None:
    reported: list[str] = []
    mark = new_mark()
    children = Children(on_fault=reported.append)
    try:
        neighbour = await neighbour_of(children, Limits(processes=1))
        child = await start(children, mark, "unmarked", FREE)
        assert await read_line(child.stdout) == b"ready\n"
        await until(lambda: reported, "it is told")
        await until(lambda: len(survivors(mark)) == 2, "both run")
        [daemon] = [pid for pid in survivors(mark) if pid != child.pid]
        assert f"process {daemon} (python" in reported[0]
        await start_and_end_another(children)
        assert (len(reported), neighbour.exceeded, child.exceeded) == (1, None, None)
        for one in (child, neighbour):
            close_pipes(one)
            await one.stop()
        assert not alive(daemon), "it ends with the last"
    finally:
        await children.close()
    assert len(reported) == 1


async def start_and_end_another(children: Children) -> None:
    """By then there were looks enough to tell it again."""
    mark = new_mark()
    another = await start(children, mark, "seen", FREE)
    assert await read_line(another.stdout) == b"ready\n"
    close_pipes(another)
    await another.stop()


# --- the mark


def in_a_process_of_its_own(code: str) -> str:
    """What it prints; it may lower its limits as it likes."""
    program = f"import os\nfrom trunkline.runtime.process_trees import OwnerMarks, set_owner_mark\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=at_most(60))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_mark_names_the_child() -> None:
    code = "marks = OwnerMarks(); set_owner_mark(marks.of(7)); print(marks.child_of(os.getpid()))"
    assert in_a_process_of_its_own(code) == "7"


def test_the_marks_of_a_gateway_behind_a_gateway_name_the_children_of_both() -> None:
    code = """
outer = OwnerMarks()
set_owner_mark(outer.of(7))
inner = OwnerMarks()
assert (inner.child_of(os.getpid()), outer.child_of(os.getpid())) == (0xFFFFFFFF, 7)
set_owner_mark(inner.of(3))
print(outer.child_of(os.getpid()), inner.child_of(os.getpid()), OwnerMarks().of(5))
"""
    assert in_a_process_of_its_own(code) == "7 3 None"


def test_what_has_no_mark_names_nobody() -> None:
    marks = OwnerMarks()
    assert marks.child_of(os.getpid()) is None
    assert marks.of(1 << 31) is None


def test_a_limit_of_somebody_else_is_no_mark_and_leaves_no_room_for_one() -> None:
    code = "marks = OwnerMarks(); set_owner_mark(100); print(marks.child_of(os.getpid()), OwnerMarks().of(1))"
    assert in_a_process_of_its_own(code) == "0 None"
