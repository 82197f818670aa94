"""Servers that die, go away and come back, or are slow to start: the next call works, and lists need not wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import LOST, NOT_STARTED
from tests.support.client import HttpClient
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.peers.programs import HttpPeer, Peer, everything, fastmcp, sdk
from tests.support.waiting import START_WAIT_S, until

pytestmark = pytest.mark.slow
SLOW_S = "5"


@pytest.mark.parametrize("make", [sdk, fastmcp])
async def test_after_a_stdio_server_was_killed_the_next_call_works(make: Any, tmp_path: Path) -> None:
    with Gateway(tmp_path, make(tmp_path).entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            pid = (await client.call("peer_whoami")).structured["pid"]
            os.kill(pid, signal.SIGKILL)
            await until(lambda: '"restarts":1' in gateway.log, "the gateway noticed the loss")
            assert (await client.call("peer_whoami")).structured["pid"] != pid


@pytest.mark.node
async def test_after_a_clients_own_server_was_killed_its_next_call_works(tmp_path: Path) -> None:
    """A server of the older kind has a process per client, which nothing watches but its lane."""
    with Gateway(tmp_path, everything(tmp_path).entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            assert (await client.call("peer_echo", {"message": "one"})).text == "Echo: one"
            for process in gateway.descendants():
                if process.command.endswith("index.js stdio"):
                    with contextlib.suppress(ProcessLookupError):  # a launcher's end is soon that of what it launched
                        os.kill(process.pid, signal.SIGKILL)
            await until(lambda: '"restarts":1' in gateway.log, "the gateway noticed the loss")
            answer = await until(lambda: call_unless_lost(client, "peer_echo", {"message": "two"}), "an answer")
            assert answer.text == "Echo: two"


@pytest.mark.parametrize(
    "name",
    [
        "sdk-http",
        "sdk-sse",
        "fastmcp-http",
        "fastmcp-sse",
        pytest.param("everything-http", marks=pytest.mark.node),
        pytest.param("everything-sse", marks=pytest.mark.node),
    ],
)
async def test_after_an_http_server_went_away_and_came_back_calls_work(name: str, tmp_path: Path) -> None:
    program, _, transport = name.partition("-")
    peer: Peer = {"sdk": sdk, "fastmcp": fastmcp, "everything": everything}[program](tmp_path, transport)
    tool, arguments = ("peer_get-sum", {"a": 1, "b": 2}) if program == "everything" else ("peer_add", {"a": 1, "b": 2})
    assert isinstance(peer, HttpPeer)
    with peer, Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            before = (await client.call(tool, arguments)).result
            peer.stop()
            peer.start()
            # a long stream was lost, so it may be known to be down until it has been tried again
            answer = await until(lambda: call_unless_lost(client, tool, arguments), "an answer", 30)
            assert answer.result == before


async def call_unless_lost(client: HttpClient, tool: str, arguments: dict[str, Any]) -> Any:
    """An answer of the server; None while the gateway says, clearly, that the call could not reach it."""
    answer = await client.call(tool, arguments)
    if answer.failed:
        assert answer.situation in {LOST, *NOT_STARTED}, answer.raw
        return None
    return answer


async def test_a_server_that_is_slow_to_start_is_understood_all_the_same(tmp_path: Path) -> None:
    """Longer than the gateway waits before it tries the older handshake too; the server answers both at once."""
    peer = sdk(tmp_path, PEER_START_DELAY_S=SLOW_S)
    with Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            assert (await client.call("peer_add", {"a": 1, "b": 2})).structured["total"] == 3
        assert "down" not in gateway.log


async def test_a_first_list_does_not_wait_for_a_slow_server_and_a_second_start_lists_it_at_once(tmp_path: Path) -> None:
    peer = sdk(tmp_path, PEER_START_DELAY_S=SLOW_S)
    quick = sdk(tmp_path, "http", name="quick")
    with quick:
        async with stdio_gateway(tmp_path, peer.entry(), quick.entry(), start_wait=1.5) as client:
            await client.open()
            names = await client.tool_names()
            assert peer.journal.lines == []
            assert "quick_add" in names and "peer_add" not in names
            answer = await client.call("peer_add", {"a": 1, "b": 2})
            assert answer.structured["total"] == 3
            told = lambda: [notice["method"] for notice in client.notices]  # noqa: E731
            await until(lambda: "notifications/tools/list_changed" in told(), "the change is announced")
            complete = await client.tools()
        async with stdio_gateway(tmp_path, peer.entry(), quick.entry(), start_wait=1.5) as client:
            await client.open()
            assert await client.tools() == complete
            assert len(peer.journal.lines) == 1
            waiting = asyncio.ensure_future(client.call("peer_add", {"a": 1, "b": 2}))
            assert (await waiting).structured["total"] == 3
            assert len(peer.journal.lines) == 2
