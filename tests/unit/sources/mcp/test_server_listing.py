from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, session_on

from trunkline.core.errors import SOURCE_LOST, GatewayError
from trunkline.core.tool import Freshness, Snapshot
from trunkline.protocol.mcp.versions import decode_initialize_result
from trunkline.sources.mcp import server_listing as server_listing_module
from trunkline.sources.mcp.server_listing import ServerListing, announced_kinds

MEMBERS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
KEYS = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
EVERYTHING: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}


class Server:
    """It answers every list with what it has, unless it is told to be slow or to refuse."""

    def __init__(self, capabilities: dict[str, Any] | None = None, era: Any = "legacy") -> None:
        self.has: dict[str, list[str]] = {"tools": ["t"], "prompts": ["p"], "resources": ["r:1"]}
        self.has["resourceTemplates"] = ["r:{x}"]
        self.extra: dict[str, Any] = {}
        self.errors: dict[str, int] = {}
        self.slow: dict[str, list[dict[str, Any]]] = {}
        self.connection = MemorySession(self.respond)
        hello = {"capabilities": EVERYTHING if capabilities is None else capabilities}
        self.session = session_on(self.connection, era, json.dumps(hello).encode())

    def respond(self, connection: MemorySession, message: dict[str, Any]) -> None:
        method = message["method"]
        if method in self.slow:
            self.slow[method].append(message)
        elif method in self.errors:
            connection.say({"id": message["id"], "error": {"code": self.errors[method], "message": "no"}})
        elif "id" in message:
            self.answer(message)

    def answer(self, message: dict[str, Any]) -> None:
        member = MEMBERS[message["method"]]
        items = [{KEYS[member]: key, "n": 1.5} for key in self.has[member]]
        self.connection.answer(message, {member: items, **self.extra})

    def asked(self, method: str) -> int:
        return self.connection.methods().count(method)


class Kept:
    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.troubles: list[str | None] = []

    @property
    def last(self) -> dict[str, list[str]]:
        snapshot = self.snapshots[-1]
        items = {"prompts": snapshot.prompts, "resources": snapshot.resources, "templates": snapshot.templates}
        listed = {name: [item.key for item in value] for name, value in items.items()}
        return {"tools": [tool.name for tool in snapshot.tools], **listed}


ALL = {"tools": ["t"], "prompts": ["p"], "resources": ["r:1"], "templates": ["r:{x}"]}


@contextlib.asynccontextmanager
async def offered(
    server: Server, before: ServerListing | None = None, first: bool = True
) -> AsyncIterator[tuple[ServerListing, Kept]]:
    kept = Kept()
    tasks = asyncio.all_tasks()
    listing = ServerListing(server.session, kept.snapshots.append, kept.troubles.append, before)
    try:
        if first:
            await listing.fetch_first()
        yield listing, kept
    finally:
        await listing.close()
    assert asyncio.all_tasks() == tasks


# At first ------------------------------------------------------------------------------------------------------------


async def test_all_four_lists_are_one_snapshot() -> None:
    async with offered(Server()) as (_, kept):
        assert kept.last == ALL
        (snapshot,) = kept.snapshots
        assert snapshot.prompts[0].definition == b'{"name": "p", "n": 1.5}'
        assert snapshot.resources[0].source == "s"
        assert snapshot.freshness == {}


@pytest.mark.parametrize("capability", ["tools", "prompts", "resources"])
async def test_a_server_is_asked_only_for_what_it_declares(capability: str) -> None:
    server = Server({capability: {}})
    async with offered(server) as (_, kept):
        expected = {"resources": {"resources/list", "resources/templates/list"}}
        assert set(server.connection.methods()) == expected.get(capability, {f"{capability}/list"})
        assert len(kept.snapshots) == 1


async def test_a_server_without_templates_has_none_and_nothing_is_wrong() -> None:
    server = Server()
    server.errors["resources/templates/list"] = -32601
    async with offered(server) as (_, kept):
        assert kept.last == {**ALL, "templates": []}
        assert kept.snapshots[-1].warnings == ()


@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list"])
async def test_a_list_that_fails_costs_the_others_nothing(method: str) -> None:
    server = Server()
    server.errors[method] = -32603
    async with offered(server) as (_, kept):
        assert kept.last["tools"] == ["t"]
        (warning,) = kept.snapshots[-1].warnings
        assert method in warning


async def test_tools_that_cannot_be_listed_are_an_error() -> None:
    server = Server()
    server.errors["tools/list"] = -32603
    with pytest.raises(GatewayError):
        async with offered(server):
            raise AssertionError
    assert not [request for request in server.connection.pending.values() if request.method == "tools/list"]


async def test_a_slow_list_delays_nothing_and_is_published_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_listing_module, "_GRACE_S", 0.02)
    server = Server()
    server.slow = {"prompts/list": [], "resources/list": []}
    async with offered(server) as (_, kept):
        assert kept.last == {**ALL, "prompts": [], "resources": []}
        server.answer(server.slow["prompts/list"][0])
        await until(lambda: kept.last == {**ALL, "resources": []}, "the late one is published")
        server.answer(server.slow["resources/list"][0])
        await until(lambda: kept.last == ALL, "so is the last one")


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_change_that_is_announced_during_the_first_list_is_one_more_round(kind: str) -> None:
    server = Server()
    held = server.slow["tools/list"] = []
    async with offered(server, first=False) as (listing, kept):
        async with asyncio.TaskGroup() as group:
            group.create_task(listing.fetch_first())
            await until(lambda: held, "the tools are asked for")
            listing.changed(f"notifications/{kind}/list_changed")
            del server.slow["tools/list"]
            server.answer(held[0])
            server.has["tools"] = ["t", "t2"]
        assert kept.last["tools"] == ["t"]
        expected = ["t", "t2"] if kind == "tools" else ["t"]
        await until(lambda: len(kept.snapshots) == 2 and kept.last["tools"] == expected, "it is listed again")


async def test_what_was_known_before_a_reconnect_stays_until_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_listing_module, "_GRACE_S", 0.02)
    async with offered(Server()) as (before, _):
        pass
    server = Server()
    server.slow = {"prompts/list": []}
    server.errors = {"resources/list": -1}
    async with offered(server, before) as (_, kept):
        assert kept.last == ALL


async def test_what_is_no_longer_declared_is_gone_at_once() -> None:
    async with offered(Server()) as (before, _):
        pass
    async with offered(Server({"tools": {}}), before) as (_, kept):
        assert kept.last == {"tools": ["t"], "prompts": [], "resources": [], "templates": []}


@pytest.mark.parametrize(
    ("said", "ttl_ms", "public"),
    [
        ({"ttlMs": 5000, "cacheScope": "public"}, 5000, True),
        ({"ttlMs": 0, "cacheScope": "private"}, 0, False),
        ({}, 0, False),
        ({"ttlMs": -1, "cacheScope": "shared"}, 0, False),
        ({"ttlMs": "x", "cacheScope": 1}, 0, False),
    ],
)
async def test_how_long_a_modern_list_holds_is_kept(said: dict[str, Any], ttl_ms: int, public: bool) -> None:
    server = Server(era="modern")
    server.extra = said
    async with offered(server) as (_, kept):
        freshness = kept.snapshots[-1].freshness
        assert set(freshness) == set(ALL)
        for fresh in freshness.values():
            assert isinstance(fresh, Freshness)
            assert (fresh.ttl_ms, fresh.public) == (ttl_ms, public)
            assert fresh.since > 0


# Changes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "methods"),
    [
        ("tools", {"tools/list"}),
        ("prompts", {"prompts/list"}),
        ("resources", {"resources/list", "resources/templates/list"}),
    ],
)
async def test_a_change_is_followed_and_only_that_list_is_fetched(kind: str, methods: set[str]) -> None:
    server = Server()
    async with offered(server) as (listing, kept):
        before = len(server.connection.sent)
        server.has[kind].append("new")
        listing.changed(f"notifications/{kind}/list_changed")
        await until(lambda: kept.last[kind][-1] == "new", "the change is seen")
        assert set(server.connection.methods()[before:]) == methods
        await until(lambda: kept.troubles == [None], "and it went well")


async def test_many_announcements_are_few_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_listing_module, "_PAUSE_S", 0.01)
    server = Server()
    async with offered(server) as (listing, kept):
        for number in range(100):
            server.has["tools"] = [f"t{number}"]
            listing.changed("notifications/tools/list_changed")
        await until(lambda: kept.last["tools"] == ["t99"], "the last state is seen")
        assert server.asked("tools/list") <= 3


async def test_whoever_was_never_listed_is_listed_in_full() -> None:
    async with offered(Server(), first=False) as (listing, kept):
        listing.changed("notifications/prompts/list_changed")
        await until(lambda: bool(kept.snapshots), "it is published")
        assert kept.last == ALL


async def test_a_list_that_fails_later_leaves_what_was_known() -> None:
    server = Server()
    async with offered(server) as (listing, kept):
        server.errors = {"tools/list": -1, "prompts/list": -1}
        listing.missed()
        await until(lambda: bool(kept.troubles), "it fails")
        assert kept.last == ALL
        assert kept.troubles[0] is not None
        assert any("prompts/list" in warning for warning in kept.snapshots[-1].warnings)
        server.errors = {}
        listing.missed()
        await until(lambda: kept.troubles[-1] is None, "it is well again")
        assert kept.snapshots[-1].warnings == ()


async def test_a_connection_that_is_gone_publishes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_listing_module, "_GRACE_S", 0.01)
    server = Server()
    server.slow = {"prompts/list": []}
    async with offered(server) as (listing, kept):
        listing.changed("notifications/tools/list_changed")
        server.connection.lose(server.connection.problem(SOURCE_LOST, "gone"))
        listing.missed()
        await asyncio.sleep(0.05)
        assert len(kept.snapshots) == 1


# Somebody looks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_listing_module, "_FRESH_S", -1.0)


@pytest.mark.usefixtures("nothing_holds")
async def test_lists_that_are_never_announced_are_fetched_again_when_somebody_looks() -> None:
    server = Server({"tools": {}, "prompts": {"listChanged": True}, "resources": {"listChanged": False}})
    async with offered(server) as (listing, kept):
        server.has["tools"] = ["new"]
        for _ in range(5):
            listing.refresh()
        await until(lambda: kept.last["tools"] == ["new"], "it is fetched")
        assert (server.asked("tools/list"), server.asked("prompts/list"), server.asked("resources/list")) == (2, 1, 2)


async def test_nothing_is_fetched_twice_within_a_moment() -> None:
    server = Server()
    async with offered(server) as (listing, _):
        listing.refresh()
        await asyncio.sleep(0.02)
        assert server.asked("tools/list") == 1


@pytest.mark.usefixtures("nothing_holds")
@pytest.mark.parametrize(("ttl_ms", "fetched"), [(1, 2), (60_000, 1), (0, 1)])
async def test_a_list_whose_time_is_over_is_fetched_even_if_changes_are_announced(ttl_ms: int, fetched: int) -> None:
    server = Server({"tools": {"listChanged": True}}, era="modern")
    server.extra = {"ttlMs": ttl_ms}
    async with offered(server) as (listing, kept):
        await asyncio.sleep(0.02)
        listing.refresh()
        await until(lambda: len(kept.snapshots) == fetched, "it is as it should be")
        assert server.asked("tools/list") == fetched


def test_a_modern_server_is_asked_for_the_changes_that_it_announces() -> None:
    hello = decode_initialize_result(
        b'{"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":true}}}'
    )
    assert announced_kinds(hello) == {"toolsListChanged": True, "resourcesListChanged": True}
