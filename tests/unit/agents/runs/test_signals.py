"""Signals that interrupt a run; none is lost."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.support.child_trees import run_on
from tests.unit.frontends.rig import Loop, both_loops

from trunkline.agents.runs.signals import handle_signals, interrupt_on_signals, unless_interrupted


async def strike_and_return() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    return "done"


async def strike_and_fail() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    raise ValueError("nobody asks for it")


@both_loops
@pytest.mark.parametrize("work", [strike_and_return, strike_and_fail])
def test_a_signal_that_comes_with_the_end_of_the_work_counts(loop_factory: Loop, work: object) -> None:
    async def main() -> None:
        assert await unless_interrupted(work()) is None  # type: ignore[operator]

    run_on(loop_factory, main())


@both_loops
def test_a_signal_that_the_loop_has_no_time_to_hear_strikes_at_the_end(loop_factory: Loop) -> None:
    async def main() -> None:
        with interrupt_on_signals() as interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupt.signal == ""
        assert interrupt.signal == "SIGTERM"

    run_on(loop_factory, main())


@both_loops
def test_each_signal_strikes_once_and_handlers_are_as_before(loop_factory: Loop) -> None:
    async def main() -> None:
        struck: list[int] = []
        before = signal.getsignal(signal.SIGINT)
        with handle_signals(struck.append):
            os.kill(os.getpid(), signal.SIGINT)
            while not struck:
                await asyncio.sleep(0.01)
        assert struck == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is before

    run_on(loop_factory, main())
