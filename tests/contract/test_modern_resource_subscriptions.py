"""Resource subscriptions at a modern HTTP server: one stream for all of them, replaced when the set changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.contract.stage import both_loops, play
from tests.contract.test_modern_list_changes import HEAD, SUBSCRIPTION_ID, Newsagent, chunk, gateway_before
from tests.support.waiting import until
from tests.unit.runtime.scripted_server import Peer, http

from trunkline.core.call import Caller, Outcome, Result
from trunkline.gateway.composition import GatewayRuntime


class Library(Newsagent):
    """It honours what it knows."""

    def __init__(self) -> None:
        super().__init__()
        self.uris = ["book:1", "book:2"]
        self.asked: list[list[str]] = []
        self.closed = 0

    def answer(self, message: dict[str, Any]) -> bytes:
        result: dict[str, Any] = {"resultType": "complete"}
        if message["method"] == "server/discover":
            capabilities = {"resources": {"subscribe": True, "listChanged": True}}
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        elif message["method"] == "resources/list":
            result["resources"] = [{"uri": uri, "name": uri} for uri in self.uris]
        elif message["method"] == "resources/templates/list":
            result["resourceTemplates"] = [{"uriTemplate": "book:{n}", "name": "book"}]
        return http(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    async def subscribe(self, peer: Peer, message: dict[str, Any]) -> None:
        wanted = message["params"]["notifications"]
        assert wanted.pop("resourcesListChanged") is True
        self.asked.append(wanted.get("resourceSubscriptions", []))
        honoured = {
            "resourcesListChanged": True,
            "resourceSubscriptions": [u for u in self.asked[-1] if u in self.uris],
        }
        params = {"notifications": honoured, "_meta": {SUBSCRIPTION_ID: message["id"]}}
        await peer.send(HEAD + chunk({"method": "notifications/subscriptions/acknowledged", "params": params}))
        self.subscribers.append((peer, message["id"]))
        await peer.wait_closed()
        self.subscribers.remove((peer, message["id"]))
        self.closed += 1

    async def update(self, uri: str) -> None:
        for peer, number in self.subscribers:
            params = {"uri": uri, "_meta": {SUBSCRIPTION_ID: number}}
            await peer.send(chunk({"method": "notifications/resources/updated", "params": params}))


class Reader:
    def __init__(self, gateway: GatewayRuntime, uri: str, session: str) -> None:
        self.heard: list[Any] = []
        self.settled: list[Outcome] = []
        told = lambda params: self.heard.append(json.loads(bytes(params)))  # noqa: E731
        self.watch = gateway.router.subscribe(Caller("local", session), uri, told, self.settled.append)

    async def outcome(self) -> Outcome:
        await until(lambda: bool(self.settled), "it is settled")
        return self.settled[0]


@both_loops
def test_one_stream_tells_of_all_that_is_watched(tmp_path: Path, loop: str) -> None:
    async def scene() -> None:
        library = Library()
        async with gateway_before(library, tmp_path) as gateway:
            await until(lambda: library.asked == [[]], "changes of the list are listened for")
            one, two = Reader(gateway, "book:1", "one"), Reader(gateway, "book:2", "two")
            assert isinstance(await one.outcome(), Result)
            assert isinstance(await two.outcome(), Result)
            assert not isinstance(await Reader(gateway, "book:none", "one").outcome(), Result)
            await until(lambda: len(library.subscribers) == 1, "one stream is left")
            for book, reader in (("book:1", one), ("book:2", two)):
                await library.update(book)
                await until(lambda reader=reader: len(reader.heard) == 1, "it hears")
            assert (one.heard, two.heard) == ([{"uri": "book:1"}], [{"uri": "book:2"}])
            one.watch.close()
            await until(lambda: library.asked[-1] == ["book:2"] and len(library.subscribers) == 1, "it is ended")
        assert len(asyncio.all_tasks()) == 1

    play(loop, scene())


@both_loops
def test_a_stream_that_breaks_is_opened_again(tmp_path: Path, loop: str) -> None:
    async def scene() -> None:
        library = Library()
        async with gateway_before(library, tmp_path) as gateway:
            reader = Reader(gateway, "book:1", "one")
            assert isinstance(await reader.outcome(), Result)
            await until(lambda: len(library.subscribers) == 1, "one stream is left")
            closed = library.closed
            for peer, _ in library.subscribers:
                peer.writer.close()
            await until(lambda: library.closed > closed and len(library.subscribers) == 1, "it is opened again")
            await library.update("book:1")
            await until(lambda: bool(reader.heard), "it hears")

    play(loop, scene())
