"""Servers that crash, disappear and come back, or start slowly: the next call works, and lists do not wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import LOST, NOT_STARTED
from tests.support.client import HttpClient
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.pairs import IN_FULL
from tests.support.peers.programs import HttpPeer, everything, fastmcp, sdk
from tests.support.servers import HttpFaults
from tests.support.waiting import START_WAIT_S, until

pytestmark = pytest.mark.slow
SLOW_S = "3.5"
"""Longer than the gateway waits before it tries the older handshake too."""
PROGRAMS = {"sdk": sdk, "fastmcp": fastmcp, "everything": everything}
SUM = {"a": 1, "b": 2}


@pytest.mark.parametrize("make", [sdk, fastmcp] if IN_FULL else [sdk])
async def test_after_a_stdio_server_was_killed_the_next_call_works(make: Any, tmp_path: Path) -> None:
    with Gateway(tmp_path, make(tmp_path).entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            pid = (await client.call("peer_whoami")).structured["pid"]
            os.kill(pid, signal.SIGKILL)
            await until(lambda: '"restarts":1' in gateway.log, "the gateway noticed the loss")
            assert (await client.call("peer_whoami")).structured["pid"] != pid


@pytest.mark.node
async def test_after_a_clients_own_server_was_killed_its_next_call_works(tmp_path: Path) -> None:
    """A server of the older kind has a process per client, which nothing watches but its session."""
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


WENT_AWAY = ["sdk-http", "fastmcp-sse", "everything-http", "everything-sse"]
if IN_FULL:
    WENT_AWAY += ["sdk-sse", "fastmcp-http"]


@pytest.mark.node
async def test_after_http_servers_went_away_and_came_back_calls_work(tmp_path: Path) -> None:
    """Each library and each wire; all of them at once, as when a machine is started anew."""
    peers = [PROGRAMS[program](tmp_path, wire, f"{program}-{wire}") for program, wire in map(split, WENT_AWAY)]
    with ExitStack() as stack:
        together(stack.enter_context, peers)
        gateway = stack.enter_context(Gateway(tmp_path, *(peer.entry() for peer in peers), start_wait=START_WAIT_S))
        async with gateway.client() as client:
            tools = [f"{name}_{'get-sum' if name.startswith('everything') else 'add'}" for name in WENT_AWAY]
            before = {tool: (await client.call(tool, SUM)).result for tool in tools}
            together(HttpPeer.stop, peers)
            together(HttpPeer.start, peers)
            for tool, result in before.items():
                # a long stream was lost, so it may be known to be down until it has been tried again
                answer = await until(lambda tool=tool: call_unless_lost(client, tool, SUM), f"an answer of {tool}", 30)
                assert answer.result == result, tool


def split(name: str) -> list[str]:
    return name.split("-")


def together(do: Any, peers: list[Any]) -> None:
    """With all of them at the same time."""
    with ThreadPoolExecutor(len(peers)) as pool:
        list(pool.map(do, peers))


async def call_unless_lost(client: HttpClient, tool: str, arguments: dict[str, Any]) -> Any:
    """An answer of the server; None while the gateway says, clearly, that the call could not reach it."""
    answer = await client.call(tool, arguments)
    if answer.failed:
        assert answer.situation in {LOST, *NOT_STARTED}, answer.raw
        return None
    return answer


async def test_a_server_that_is_slow_to_start_is_understood_all_the_same(tmp_path: Path) -> None:
    """The server answers both handshakes at once."""
    peer = sdk(tmp_path, PEER_START_DELAY_S=SLOW_S)
    with Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as client:
            assert (await client.call("peer_add", SUM)).structured["total"] == 3
        assert "down" not in gateway.log


async def test_a_first_list_does_not_wait_for_a_slow_server_and_a_second_start_lists_it_at_once(tmp_path: Path) -> None:
    let_in = tmp_path / "let in"
    peer = sdk(tmp_path, PEER_START_WHEN=str(let_in))
    with HttpFaults(tmp_path, "quick") as quick:
        async with stdio_gateway(tmp_path, peer.entry(), quick.entry(), start_wait=0.5) as client:
            await client.open()

            async def quick_is_listed() -> bool:
                return "quick_echo" in await client.tool_names()

            await until(quick_is_listed, "the tools of the quick server are listed")
            assert "peer_add" not in await client.tool_names()
            waiting = asyncio.ensure_future(client.call("peer_add", SUM))
            let_in.touch()
            assert (await waiting).structured["total"] == 3
            notified = lambda: [notice["method"] for notice in client.notices]  # noqa: E731
            await until(lambda: "notifications/tools/list_changed" in notified(), "the change is announced")
            complete = await client.tools()
            assert {"quick_echo", "peer_add"} <= {tool["name"] for tool in complete}
        let_in.unlink()
        async with stdio_gateway(tmp_path, peer.entry(), quick.entry(), start_wait=0.5) as client:
            await client.open()
            assert await client.tools() == complete
            assert len(peer.journal.lines) == 1, "listed though it has not started again"
            let_in.touch()
            assert (await client.call("peer_add", SUM)).structured["total"] == 3
            assert len(peer.journal.lines) == 2
