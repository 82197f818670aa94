"""What the supervisor does with a child that has limits: nothing, until it and what it started use more together."""

from __future__ import annotations

import asyncio
import sys

import pytest
from tests.support.child_trees import children_of, close_pipes, marked, new_mark, read_line, survivors
from tests.support.waiting import at_most, until

from trunkline.runtime.children import Children
from trunkline.runtime.supervisor_client import Child, Exceeded, Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits need /proc")
MIB = 1 << 20
HUNGRY = "import os, time; kept = os.urandom(1 << 20) * 200; time.sleep(600)"
FERTILE = "for _ in 1 2 3 4 5 6; do setsid sleep 600 & done; echo ready; exec cat"


async def start(children: Children, argv: list[str], mark: str, **limits: int) -> Child:
    return await children.spawn(argv, env=marked(mark), cwd=None, label="greedy", limits=Limits(**limits))


async def end_of(child: Child) -> int:
    async with asyncio.timeout(at_most(30)):
        return await child.exited


async def test_one_that_takes_too_much_memory_is_killed_and_the_figures_are_told():
    mark = new_mark()
    async with children_of() as children:
        child = await start(children, [sys.executable, "-c", HUNGRY], mark, memory_bytes=100 * MIB)
        assert await end_of(child) == -9
        exceeded = child.exceeded
        assert exceeded is not None
        assert (exceeded.what, exceeded.allowed) == ("memory", 100 * MIB)
        assert exceeded.used >= 100 * MIB, "no more than that, where the kernel gives no more"
        close_pipes(child)
        await until(lambda: not survivors(mark), "nothing of it is left")


async def test_one_with_too_many_processes_is_killed_with_all_of_them_wherever_they_went():
    mark = new_mark()
    async with children_of() as children:
        child = await start(children, ["sh", "-c", FERTILE], mark, processes=4)
        assert await end_of(child) == -9
        exceeded = child.exceeded
        assert exceeded is not None
        assert (exceeded.what, exceeded.allowed) == ("processes", 4)
        assert 4 < exceeded.used <= 7, "the shell and what it had started by then"
        close_pipes(child)
        await until(lambda: not survivors(mark), "nothing of it is left")


async def test_one_within_its_limits_is_left_alone_while_another_is_ended():
    mark = new_mark()
    async with children_of() as children:
        modest = await start(children, ["sh", "-c", FERTILE], mark, processes=7, memory_bytes=500 * MIB)
        assert await read_line(modest.stdout) == b"ready\n"
        greedy = await start(children, [sys.executable, "-c", HUNGRY], mark, memory_bytes=100 * MIB)
        await end_of(greedy)
        assert (modest.exited.done(), modest.exceeded) == (False, None)
        close_pipes(modest)
        close_pipes(greedy)
        await modest.stop()
        assert modest.exceeded is None


async def test_where_nobody_tells_what_belongs_to_a_program_that_is_said_and_it_runs():
    reported: list[str] = []
    children = Children(portable=True, on_fault=reported.append)
    try:
        child = await children.spawn(
            ["true"], env=marked(new_mark()), cwd=None, label="greedy", limits=Limits(processes=1)
        )
        assert await end_of(child) == 0
        close_pipes(child)
    finally:
        await children.close()
    assert len(reported) == 1
    assert "`limits` of greedy" in reported[0]


def test_figures_are_told_in_the_units_of_the_configuration():
    assert str(Exceeded("memory", 100 * MIB + 1, 100 * MIB)) == ("used 101 MB of memory, and `limits.memory_mb` is 100")
    assert str(Exceeded("processes", 1200, 1000)) == "had 1,200 processes, and `limits.processes` is 1,000"
