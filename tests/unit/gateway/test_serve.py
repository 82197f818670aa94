from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.client import HttpClient, ModernClient
from tests.support.http_wire import fetch
from tests.support.servers import StdioFaults
from tests.support.waiting import at_most, until
from tests.unit.gateway.test_composition import settings_of

from trunkline.config.load import LoadedConfig
from trunkline.config.settings import Settings
from trunkline.gateway.composition import GatewayRuntime
from trunkline.gateway.serving_http import serve_http
from trunkline.runtime.process_setup import run_event_loop

# The first loop of uvloop makes a pipe for signals that stays with the process.
uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def handlers_are_restored() -> Iterator[None]:
    """A loop of uvloop leaves its own behind when it is closed."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    drain = GatewayRuntime.drain
    monkeypatch.setattr(GatewayRuntime, "drain", lambda self: drain(self, 0.3))


def serve_while(settings: Settings, scene: Callable[[int], Any]) -> int:
    """Serve, play a scene against the port, and return how the serving ended."""

    async def main() -> int:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(
            serve_http(settings, lambda: LoadedConfig(settings, (), ""), address.set_result)
        )
        playing = asyncio.ensure_future(scene(int((await address).rsplit(":", 1)[1].removesuffix("/mcp"))))
        status = await asyncio.wait_for(serving, at_most(30))
        await asyncio.wait_for(playing, at_most(30))
        return status

    return run_event_loop(main)


@pytest.mark.law
@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("client_kind", [HttpClient, ModernClient], ids=["legacy", "modern"])
def test_a_call_that_outlives_the_patience_at_the_end_is_still_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client_kind: type[HttpClient], loop: str
) -> None:
    monkeypatch.setenv("TRUNKLINE_LOOP", loop)
    server = StdioFaults(tmp_path, "s")

    async def scene(port: int) -> None:
        async with client_kind(port) as client:
            hanging = asyncio.ensure_future(client.call("s_hang"))
            await server.wait_for("call", tool="hang")
            os.kill(os.getpid(), signal.SIGTERM)
            answer = await hanging
            assert answer.executed == "unknown"
            assert "shutting down" in answer.error["message"]

    settings = settings_of(tmp_path, server.entry(), listen="127.0.0.1:0", log={"level": "error"})
    assert serve_while(settings, scene) == 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_while_it_drains_readiness_says_so_and_calls_in_flight_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setenv("TRUNKLINE_LOOP", loop)
    server = StdioFaults(tmp_path, "s")
    opened = tmp_path / "opened"

    async def scene(port: int) -> None:
        async with HttpClient(port) as client:
            assert (await fetch(port, "GET", "/readyz")).status == 200
            slow = asyncio.ensure_future(client.call("s_gate", {"path": str(opened)}))
            await server.wait_for("call", tool="gate")
            os.kill(os.getpid(), signal.SIGINT)

            async def unready() -> bool:
                return (await fetch(port, "GET", "/readyz")).status == 503

            await until(unready, "it says that it is draining")
            opened.touch()
            assert (await slow).text == "let through"

    settings = settings_of(tmp_path, server.entry(), listen="127.0.0.1:0", log={"level": "error"})
    assert serve_while(settings, scene) == 130
