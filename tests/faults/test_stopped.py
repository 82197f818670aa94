"""A gateway that was stopped and goes on: what came meanwhile was in time."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from tests.support.answers import TIMED_OUT
from tests.support.gateway import Gateway
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import at_most

TIMEOUT_S = at_most(1)


async def stopped_beyond_the_timeout(gateway: Gateway, gate: Path) -> None:
    """The server answers while the gateway sleeps longer than the call may take."""
    gateway.process.send_signal(signal.SIGSTOP)
    try:
        gate.touch()
        await asyncio.sleep(2 * TIMEOUT_S)
    finally:
        gateway.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_an_answer_that_came_while_the_gateway_was_stopped_is_given(tmp_path: Path, wire: str) -> None:
    with HttpFaults(tmp_path, "h") as http:
        server = StdioFaults(tmp_path, "s") if wire == "stdio" else http
        with Gateway(tmp_path, server.entry(timeout=TIMEOUT_S)) as gateway:
            async with gateway.client() as client:
                gate = tmp_path / "gate"
                called = asyncio.ensure_future(client.call(f"{server.name}_gate", {"path": str(gate)}))
                await server.wait_for("call", tool="gate")
                await stopped_beyond_the_timeout(gateway, gate)
                assert (await called).text == "let through"


async def test_a_call_that_hangs_is_given_up_all_the_same(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(timeout=TIMEOUT_S)) as gateway:
        async with gateway.client() as client:
            called = asyncio.ensure_future(client.call("s_hang"))
            await server.wait_for("call", tool="hang")
            await stopped_beyond_the_timeout(gateway, tmp_path / "gate")
            assert (await called).situation == TIMED_OUT
