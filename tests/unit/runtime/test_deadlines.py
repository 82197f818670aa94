"""Late deadlines: the loop is blocked here, as it is while a process is stopped."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.support.waiting import START_WAIT_S, at_most, until
from tests.unit.runtime.scripted_server import both_loops, run_on

from trunkline.runtime.deadlines import LATE_S, Deadline, TimeLimit, wait_first

Loop = Callable[[], asyncio.AbstractEventLoop]
SOON_S = 0.05


def held_up() -> None:
    time.sleep(SOON_S + 3 * LATE_S)


@contextmanager
def answer_in_a_pipe() -> Iterator[asyncio.Future[bytes]]:
    """It lies there already, and is read as soon as the loop looks."""
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    answered: asyncio.Future[bytes] = loop.create_future()
    loop.add_reader(reader, lambda: answered.done() or answered.set_result(os.read(reader, 10)))
    try:
        os.write(writer, b"in time")
        yield answered
    finally:
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)


@both_loops
def test_what_lay_in_the_pipe_is_read_before_a_late_deadline_strikes(loop_factory: Loop) -> None:
    async def main() -> None:
        with answer_in_a_pipe() as answered:
            async with TimeLimit(SOON_S):
                held_up()
                assert await answered == b"in time"

    run_on(loop_factory, main())


@both_loops
def test_a_deadline_strikes_late_or_not_where_nothing_comes(loop_factory: Loop) -> None:
    async def main() -> None:
        for hold_up in (lambda: None, held_up):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(at_most(15)), TimeLimit(SOON_S):
                    hold_up()
                    await asyncio.get_running_loop().create_future()

    run_on(loop_factory, main())


async def test_a_deadline_that_was_cancelled_never_strikes() -> None:
    struck: list[str] = []
    in_time, late = (Deadline(SOON_S, lambda name=name: struck.append(name)) for name in ("in time", "late"))
    other = Deadline(SOON_S, lambda: struck.append("other"))
    in_time.cancel()
    held_up()
    await asyncio.sleep(0.01)  # it waits for what is to be read
    late.cancel()
    await until(lambda: struck, "the other one strikes")
    assert struck == ["other"]
    other.cancel()


async def test_what_goes_wrong_within_passes_through() -> None:
    with pytest.raises(ValueError, match="mine"):
        async with TimeLimit(SOON_S):
            raise ValueError("mine")
    async with TimeLimit(SOON_S):
        pass
    await asyncio.sleep(2 * SOON_S)


@both_loops
def test_what_is_waited_for_ends_the_wait_before_a_late_deadline_does(loop_factory: Loop) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with answer_in_a_pipe() as answered:
            loop.call_soon(held_up)
            await wait_first([loop.create_future(), answered], SOON_S)
            assert answered.done()

    run_on(loop_factory, main())


@both_loops
def test_one_that_was_due_long_ago_has_that_moment_too(loop_factory: Loop) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        soon: asyncio.Future[None] = loop.create_future()
        loop.call_later(SOON_S, soon.set_result, None)
        await wait_first([soon], -START_WAIT_S)
        assert soon.done()
        never: asyncio.Future[None] = loop.create_future()
        await wait_first([never], 0)
        assert not never.done()

    run_on(loop_factory, main())


async def test_whose_deadline_was_cancelled_is_freed_at_once() -> None:
    class Owner:
        def __init__(self) -> None:
            self.deadline = Deadline(START_WAIT_S, self.strike)

        def strike(self) -> None: ...

    owner = Owner()
    freed = weakref.ref(owner)
    owner.deadline.cancel()
    owner.deadline.cancel()
    del owner
    assert freed() is None
