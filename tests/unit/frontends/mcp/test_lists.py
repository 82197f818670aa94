from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.support.answers import Answer
from tests.support.bugs import broken, reported_bugs
from tests.support.client import Client
from tests.support.waiting import until
from tests.unit.frontends.rig import House, house
from tests.unit.router.fakes import full_snapshot, item, tools_snapshot

from trunkline.core.tool import Freshness, Snapshot, ToolDefinition

LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
META = "io.modelcontextprotocol/"


async def keys(client: Client, method: str, params: dict[str, Any] | None = None) -> list[str]:
    member, key = LISTS[method]
    return [item[key] for item in (await client.request(method, params)).result[member]]


async def everything(client: Client, method: str) -> list[list[str]]:
    """All pages of a list."""
    member, key = LISTS[method]
    pages: list[list[str]] = []
    params: dict[str, Any] | None = None
    while True:
        result = (await client.request(method, params)).result
        pages.append([item[key] for item in result[member]])
        if "nextCursor" not in result:
            return pages
        params = {"cursor": result["nextCursor"]}


async def first_cursor(client: Client, method: str = "tools/list") -> str:
    return (await client.request(method)).result["nextCursor"]


def number_of(answer: Answer) -> int:
    return answer.error["code"]


def many(here: House, count: int, start: int = 0) -> list[str]:
    names = [f"n{number:05}" for number in range(start, start + count)]
    here.rig.publish("s", *names)
    return [f"s_{name}" for name in names]


async def test_both_eras_get_all_four_lists_of_all_servers(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        here.rig.serve("a", tools=["t"], prompts=["p"], resources=["x:1"], templates=["x:{n}"])
        here.rig.serve("b", prompts=["p"], resources=["x:1", "y:2"], templates=["x:{n}"])
        for client in (legacy, modern):
            assert await keys(client, "tools/list") == ["s_t", "s_u", "a_t"]
            assert await keys(client, "prompts/list") == ["a_p", "b_p"]
            assert await keys(client, "resources/list") == ["x:1", "trunkline://b/x:1", "y:2"]
            assert await keys(client, "resources/templates/list") == ["x:{n}", "trunkline://b/x:{n}"]


async def test_empty_lists_are_lists(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        for method, (member, _) in LISTS.items():
            if member != "tools":
                assert (await legacy.request(method)).result == {member: []}
                assert (await modern.request(method)).result[member] == []


async def test_modern_lists_say_how_long_they_hold_and_for_whom(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        result = (await client.request("tools/list")).result
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
        assert result["_meta"][f"{META}serverInfo"]["name"] == "trunkline"
        for source, ttl_s, public in (("s", 1000, True), ("a", 500, True)):
            fresh = {"tools": Freshness(ttl_s * 1000, public, monotonic())}
            if source == "a":
                here.rig.add("a", state=None)
            here.rig.sinks[source].publish(Snapshot(tools=tools_snapshot(source, "v").tools, freshness=fresh))
            here.rig.health(source, "ready")
        result = (await client.request("tools/list")).result
        assert 400_000 < result["ttlMs"] <= 500_000
        assert result["cacheScope"] == "public"
        assert (await client.request("prompts/list")).result["cacheScope"] == "private"
        here.rig.health("a", "down")
        result = (await client.request("tools/list")).result
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


async def test_a_server_that_is_missing_is_named_and_delays_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        here.rig.add("dead", state=None)
        here.rig.health("dead", "down", "it fell over")
        here.rig.publish("s", "t")
        here.rig.health("s", "down", "gone")
        expected = [
            {"server": "s", "state": "down", "stale": True, "reason": "gone"},
            {"server": "dead", "state": "down", "stale": False, "reason": "it fell over"},
        ]
        for client in (legacy, modern):
            result = (await client.request("tools/list")).result
            assert [tool["name"] for tool in result["tools"]] == ["s_t"]
            assert result["_meta"]["trunkline/incomplete"] == expected
        here.rig.health("s", "ready")
        here.rig.publish("dead", "alive")
        here.rig.health("dead", "ready")
        assert "_meta" not in (await legacy.request("tools/list")).result
        assert "trunkline/incomplete" not in (await modern.request("tools/list")).result["_meta"]
        assert await keys(legacy, "tools/list") == ["s_t", "dead_alive"]


@pytest.mark.slow
async def test_a_server_that_was_added_is_named_while_it_starts(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        for client in (legacy, modern):
            assert "trunkline/incomplete" not in (await client.request("tools/list")).result.get("_meta", {})
        here.rig.add("new", state=None)
        for client in (legacy, modern):
            result = (await client.request("tools/list")).result
            assert result["_meta"]["trunkline/incomplete"] == [{"server": "new", "state": "starting", "stale": False}]


async def test_a_list_waits_for_servers_that_are_starting(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        here.rig.add("slow", state=None)
        waiting = asyncio.ensure_future(keys(client, "tools/list"))
        await client.request("server/discover")
        here.rig.publish("slow", "t")
        here.rig.health("slow", "ready")
        assert await waiting == ["s_t", "s_u", "slow_t"]


async def test_servers_whose_word_is_old_are_asked_again_by_whoever_lists(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        await client.request("tools/list")
        assert here.source.refreshed == 1
        await client.request("tools/list")
        assert here.source.refreshed == 1, "a flood of lists is no flood of questions"


async def test_long_lists_come_in_pages(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        names = many(here, 12_500)
        for client in (legacy, modern):
            pages = await everything(client, "tools/list")
            assert [len(page) for page in pages] == [5000, 5000, 2500]
            assert [name for page in pages for name in page] == names
        names = many(here, 5000)
        assert await everything(legacy, "tools/list") == [names]


async def test_all_pages_of_a_list_are_for_the_same_caches(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        fresh = {"resources": Freshness(100_000, public=True, since=monotonic())}
        uris = tuple(item("s", "uri", f"x:{number}") for number in range(7500))
        here.rig.sinks["s"].publish(Snapshot(resources=uris, freshness=fresh))
        first = (await client.request("resources/list")).result
        here.rig.health("s", "down")
        second = (await client.request("resources/list", {"cursor": first["nextCursor"]})).result
        assert (first["cacheScope"], second["cacheScope"]) == ("public", "public")
        assert second["ttlMs"] == 0
        assert second["_meta"]["trunkline/incomplete"][0]["server"] == "s"


async def test_a_list_that_changes_on_the_way_is_read_to_its_end_as_it_was(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        names = many(here, 7500)
        cursor = await first_cursor(client)
        many(here, 7500, start=700)
        rest = (await client.request("tools/list", {"cursor": cursor})).result
        assert [tool["name"] for tool in rest["tools"]] == names[5000:]
        again = (await client.request("tools/list", {"cursor": cursor})).result
        assert again == rest, "a cursor may be used twice"


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "é", "\u0000", "a" * 5000, 7, None, {}, ["x"]])
async def test_cursors_that_nobody_gave_are_refused(tmp_path: Path, cursor: Any) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        for client in (legacy, modern):
            for method in LISTS:
                assert number_of(await client.request(method, {"cursor": cursor})) == -32602


@pytest.mark.law
async def test_cursors_are_good_for_one_list_of_one_client_unchanged(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, here.client() as other, here.modern() as modern:
        here.rig.serve("a", prompts=[f"p{number}" for number in range(1001)])
        many(here, 5001)
        cursor = await first_cursor(client)
        for place in range(0, len(cursor), 7):
            changed = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
            assert number_of(await client.request("tools/list", {"cursor": changed})) == -32602
        assert number_of(await client.request("prompts/list", {"cursor": cursor})) == -32602
        for foreign in (other, modern):
            assert number_of(await foreign.request("tools/list", {"cursor": cursor})) == -32602
        assert len(await keys(client, "tools/list", {"cursor": cursor})) == 1


@pytest.mark.law
async def test_a_client_whose_server_offers_it_something_else_sees_that(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, here.client() as other:
        own = full_snapshot("s", tools=["secret"], prompts=["hidden"])
        here.rig.sinks["s"].publish_for(client.session or "", own)
        assert await keys(client, "tools/list") == ["s_secret"]
        assert await keys(client, "prompts/list") == ["s_hidden"]
        assert await keys(other, "tools/list") == ["s_t", "s_u"]
        assert await keys(other, "prompts/list") == []


async def test_legacy_clients_get_no_output_schema_that_is_no_object(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        definition = b'{"name":"t","outputSchema":{"type":"array"},"x":1.10}'
        here.rig.sinks["s"].publish(Snapshot(tools=(ToolDefinition("s", "t", definition),)))
        assert await legacy.tools() == [{"name": "s_t", "x": 1.1}]
        assert await modern.tools() == [{"name": "s_t", "outputSchema": {"type": "array"}, "x": 1.1}]
        assert b'"x":1.10' in (await legacy.request("tools/list")).raw


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
async def test_who_waited_for_servers_to_start_is_answered_although_a_bug_is_in_the_way(
    tmp_path: Path, method: str
) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        bugs = reported_bugs()
        here.rig.add("late", state="starting")
        here.server._lists._respond = broken
        here.server._initializer._respond_discover = broken
        asking = asyncio.ensure_future(client.request(method))
        await until(lambda: here.rig.router._list_waiters or bugs, "it waits")
        here.rig.publish("late", "t")
        here.rig.health("late", "ready")
        assert number_of(await asking) == -32603
        assert len(bugs) == 1
