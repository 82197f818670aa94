"""Which signals end a session, and which are its agent's."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from trunkline.core.errors import STEP_INTERRUPTED, GatewayError
from trunkline.runs.session_signals import listening_beside


async def _struck(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(60)


async def test_ctrl_c_while_tools_are_made_ready_ends_the_session() -> None:
    with listening_beside() as signals, pytest.raises(GatewayError) as refused:
        await signals.unless_interrupted(_struck(signal.SIGINT), "claude")
    assert refused.value.problem.code is STEP_INTERRUPTED


async def test_ctrl_c_while_the_agent_has_the_terminal_is_its_own() -> None:
    async def struck() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(15):
            while not signals.pressed:
                await asyncio.sleep(0.01)
        return 5

    with listening_beside() as signals, signals.agent_has_terminal():
        assert await signals.unless_interrupted(struck(), "claude") == 5
    assert signals.interrupt.signal == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_other_signals_end_the_session_then_too(number: signal.Signals) -> None:
    with listening_beside() as signals, signals.agent_has_terminal(), pytest.raises(GatewayError) as refused:
        await signals.unless_interrupted(_struck(number), "claude")
    assert refused.value.problem.code is STEP_INTERRUPTED
    assert signals.interrupt.signal == number.name


async def test_one_ctrl_c_too_many_changes_nothing() -> None:
    with listening_beside() as signals:
        signals.agent_ended(0)
        signals.strike(signal.SIGINT)
        assert signals.interrupt.signal == ""
