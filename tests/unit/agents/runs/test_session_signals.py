"""Which signals end a session, and which are its agent's."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from tests.support.waiting import at_most

from trunkline.agents.runs.signals import SessionSignals, handle_signals
from trunkline.core.errors import STEP_INTERRUPTED, GatewayError


@contextmanager
def handled() -> Generator[SessionSignals, None, None]:
    signals = SessionSignals()
    with handle_signals(signals.on_signal):
        yield signals


async def _struck(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(60)


async def test_ctrl_c_while_tools_are_made_ready_ends_the_session() -> None:
    with handled() as signals, pytest.raises(GatewayError) as refused:
        await signals.unless_interrupted(_struck(signal.SIGINT), "claude")
    assert refused.value.problem.code is STEP_INTERRUPTED


async def test_ctrl_c_while_somebody_talks_with_the_agent_is_its_own() -> None:
    async def struck() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(at_most(15)):
            while not signals.pressed:
                await asyncio.sleep(0.01)
        return 5

    with handled() as signals, signals.agent_has_terminal(headless=False):
        assert await signals.unless_interrupted(struck(), "claude") == 5
    assert signals.interrupt.signal == ""


@pytest.mark.parametrize("times", [1, 2])
async def test_an_agent_that_works_by_itself_and_is_deaf_to_ctrl_c_is_ended(times: int) -> None:
    async def deaf() -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
        await asyncio.sleep(60)

    with handled() as signals, signals.agent_has_terminal(headless=True):
        async with asyncio.timeout(at_most(20)):
            with pytest.raises(GatewayError) as refused:
                await signals.unless_interrupted(deaf(), "claude")
    assert refused.value.problem.code is STEP_INTERRUPTED


async def test_one_that_ends_by_it_is_not_struck_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.agents.runs.signals._GRACE_S", at_most(1.0))

    async def ends() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        while not signals.pressed:
            await asyncio.sleep(0.01)
        return 0

    with handled() as signals:
        with signals.agent_has_terminal(headless=True):
            assert await signals.unless_interrupted(ends(), "claude") == 0
        await asyncio.sleep(at_most(1.2))
        assert (signals.pressed, signals.interrupt.signal) == (True, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_other_signals_end_the_session_then_too(number: signal.Signals) -> None:
    with (
        handled() as signals,
        signals.agent_has_terminal(headless=False),
        pytest.raises(GatewayError) as refused,
    ):
        await signals.unless_interrupted(_struck(number), "claude")
    assert refused.value.problem.code is STEP_INTERRUPTED
    assert signals.interrupt.signal == number.name


async def test_one_ctrl_c_too_many_changes_nothing() -> None:
    with handled() as signals:
        signals.agent_ended(0)
        signals.on_signal(signal.SIGINT)
        assert signals.interrupt.signal == ""


async def test_handlers_of_before_are_there_again_afterwards() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    own = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        before = [signal.getsignal(number) for number in numbers]
        with handled():
            assert [signal.getsignal(number) for number in numbers] != before
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        for number, handler in zip(numbers, own, strict=True):
            signal.signal(number, handler)
