"""A modern HTTP server reports list changes on a subscription; the fault server has none, so here is one that does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.contract.stage import both_loops, play
from tests.support.gateway import write_config
from tests.support.waiting import until
from tests.unit.runtime.scripted_server import Peer, Scripted, http

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.core.events import Events
from trunkline.gateway.composition import GatewayRuntime
from trunkline.sources import KINDS, load_kind
from trunkline.sources.mcp import http as http_kind
from trunkline.sources.mcp.source import McpSource

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def chunk(message: dict[str, Any]) -> bytes:
    event = b"data: %b\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


class Newsagent(Scripted):
    """2026-07-28 with `subscriptions/listen`."""

    def __init__(self) -> None:
        super().__init__(self.serve)
        self.tools = ["a"]
        self.subscribers: list[tuple[Peer, Any]] = []
        self.subscriptions = 0

    async def serve(self, peer: Peer) -> None:
        while True:
            message = json.loads((await peer.request()).partition(b"\r\n\r\n")[2])
            if message["method"] == "subscriptions/listen":
                await self.subscribe(peer, message)
                return
            await peer.send(self.answer(message))

    def answer(self, message: dict[str, Any]) -> bytes:
        result: dict[str, Any] = {"resultType": "complete"}
        if message["method"] == "server/discover":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
        elif message["method"] == "tools/list":
            result["tools"] = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
        return http(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    async def subscribe(self, peer: Peer, message: dict[str, Any]) -> None:
        assert message["params"]["notifications"] == {"toolsListChanged": True}
        self.subscriptions += 1
        meta = {SUBSCRIPTION_ID: message["id"]}
        acknowledged = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        ack = {"method": "notifications/subscriptions/acknowledged", "params": acknowledged}
        await peer.send(HEAD + chunk(ack))
        self.subscribers.append((peer, message["id"]))
        await peer.wait_closed()

    async def change(self, *tools: str) -> None:
        self.tools = list(tools)
        for peer, number in self.subscribers:
            params = {"_meta": {SUBSCRIPTION_ID: number}}
            await peer.send(chunk({"method": "notifications/tools/list_changed", "params": params}))

    async def hang_up(self) -> None:
        """End every subscription in order, as a server that restarts its workers does."""
        subscribers, self.subscribers = self.subscribers, []
        for peer, number in subscribers:
            result = {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: number}}
            await peer.send(chunk({"id": number, "result": result}) + b"0\r\n\r\n")
            peer.writer.close()


@contextlib.asynccontextmanager
async def gateway_before(agent: Newsagent, folder: Path) -> AsyncIterator[GatewayRuntime]:
    await agent.start()
    path = write_config(folder, {"x": {"kind": "mcp_http", "url": agent.url}})
    kinds = {name: (lambda name=name: load_kind(name).section) for name in KINDS}
    loaded = load_config(ConfigFile.named(path), environ={}, kinds=kinds)
    assert loaded.settings is not None
    gateway = GatewayRuntime(loaded.settings, Events())
    gateway.start()
    try:
        yield gateway
    finally:
        await gateway.close()
        await agent.stop()
    assert not agent.failures, agent.failures


def listed(gateway: GatewayRuntime) -> list[str]:
    return [tool["name"].removeprefix("x_") for tool in json.loads(gateway.router.catalog.listing)]


@both_loops
def test_list_changes_on_a_subscription_are_followed(tmp_path: Path, loop: str) -> None:
    async def scene() -> None:
        agent = Newsagent()
        async with gateway_before(agent, tmp_path) as gateway:
            await until(lambda: agent.subscribers, "it subscribes")
            for tools in (["a", "b"], [], ["c"]):
                await agent.change(*tools)
                expected = [f"x_{name}" for name in tools]
                await until(
                    lambda expected=expected: (
                        [t["name"] for t in json.loads(gateway.router.catalog.listing)] == expected
                    ),
                    "the change is seen",
                )
            assert agent.subscriptions == 1

    play(loop, scene())


@both_loops
def test_a_subscription_that_ends_is_renewed_and_nothing_in_between_is_missed(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_kind, "McpSource", partial(McpSource, probe_every_s=0.1))

    async def scene() -> None:
        agent = Newsagent()
        async with gateway_before(agent, tmp_path) as gateway:
            await until(lambda: agent.subscribers, "it subscribes")
            await agent.hang_up()
            agent.tools = ["between"]
            await until(lambda: b'"x_between"' in gateway.router.catalog.listing, "what happened meanwhile is seen")
            await until(lambda: agent.subscribers, "it subscribes again")
            await agent.change("after")
            await until(lambda: b'"x_after"' in gateway.router.catalog.listing, "and so is the next change")

    play(loop, scene())


@both_loops
def test_a_subscription_is_ended_with_the_gateway(tmp_path: Path, loop: str) -> None:
    async def scene() -> None:
        agent = Newsagent()
        async with gateway_before(agent, tmp_path):
            await until(lambda: agent.subscribers, "it subscribes")
        assert len(asyncio.all_tasks()) == 1

    play(loop, scene())
