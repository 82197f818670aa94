from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import CLIENT_INFO, META
from tests.support.waiting import at_most, until
from tests.unit.frontends.mcp.listening import piped
from tests.unit.frontends.rig import House, house

from trunkline.core.call import Failure, RemoteError, Result
from trunkline.core.errors import SOURCE_DOWN, Problem
from trunkline.frontends.mcp import resource_subscriptions

HOLDS = Result(b"{}")
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


def resourceful(here: House, *uris: str, source: str = "s", outcome: Any = HOLDS) -> None:
    """This server has these resources, and answers every wish to watch one at once."""
    one = here.rig.serve(source, resources=uris)
    watch = one.watch_resource
    one.watch_resource = lambda listen_filter: (watch(listen_filter), listen_filter.settle(outcome))[0]


def watched(here: House, source: str = "s") -> list[str]:
    return [watch.uri for watch in here.rig.sources[source].watches if not watch.closed]


def update(here: House, uri: str, *, source: str = "s", **more: Any) -> None:
    for watch in here.rig.sources[source].watches:
        if not watch.closed and uri.startswith(watch.uri):
            watch.on_updated(json.dumps({"uri": uri, **more}).encode())


async def updated(events: AsyncIterator[bytes]) -> dict[str, Any]:
    while True:
        event = await asyncio.wait_for(anext(events), at_most(15))
        if event:
            message = json.loads(event)
            if message["method"] == "notifications/resources/updated":
                return message["params"]


async def test_a_client_hears_of_what_it_subscribed_to_until_it_unsubscribes(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        resourceful(here, "x:1", "x:2")
        for uri in ("x:1", "x:2"):
            assert (await client.request(SUBSCRIBE, {"uri": uri})).result == {}
        update(here, "x:1/part", _meta={f"{META}subscriptionId": 5, "own": 1})
        assert await updated(events) == {"uri": "x:1/part", "_meta": {"own": 1}}
        update(here, "x:2", _meta={f"{META}subscriptionId": 5})
        assert await updated(events) == {"uri": "x:2"}
        assert (await client.request(UNSUBSCRIBE, {"uri": "x:1"})).result == {}
        assert watched(here) == ["x:2"]
        update(here, "x:1")
        update(here, "x:2")
        assert await updated(events) == {"uri": "x:2"}


async def test_notifications_come_under_the_uri_that_the_client_used(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        resourceful(here, "x:1")
        resourceful(here, "x:1", source="b")
        assert (await client.request(SUBSCRIBE, {"uri": "trunkline://b/x:1"})).result == {}
        assert (watched(here), watched(here, "b")) == ([], ["x:1"])
        update(here, "x:1", source="b")
        assert await updated(events) == {"uri": "trunkline://b/x:1"}


async def test_subscribing_twice_is_one_watch(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        here.rig.serve("s", resources=["x:1"])
        both = [asyncio.ensure_future(client.request(SUBSCRIBE, {"uri": "x:1"})) for _ in range(2)]
        await until(lambda: here.source.watches, "it is asked for")
        await client.request("ping")
        here.source.watches[0].settle(HOLDS)
        assert [(await one).result for one in both] == [{}, {}]
        assert (await client.request(SUBSCRIBE, {"uri": "x:1"})).result == {}
        assert len(here.source.watches) == 1
        update(here, "x:1", n=1)
        update(here, "x:1", n=2)
        assert [(await updated(events))["n"] for _ in range(2)] == [1, 2]
        assert (await client.request(UNSUBSCRIBE, {"uri": "x:1"})).result == {}
        assert watched(here) == []


async def test_unsubscribing_from_what_nobody_subscribed_to_is_fine(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        for _ in range(2):
            assert (await client.request(UNSUBSCRIBE, {"uri": "x:1"})).result == {}


async def test_unsubscribing_while_the_server_still_thinks_answers_both(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        here.rig.serve("s", resources=["x:1"])
        waiting = asyncio.ensure_future(client.request(SUBSCRIBE, {"uri": "x:1"}))
        await until(lambda: here.source.watches, "it is asked for")
        assert (await client.request(UNSUBSCRIBE, {"uri": "x:1"})).result == {}
        assert (await waiting).result == {}
        assert watched(here) == []
        here.source.watches[0].settle(HOLDS)


async def test_a_client_that_ends_its_session_meanwhile_has_every_request_answered(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        here.rig.serve("s", resources=["x:1"])
        waiting = asyncio.ensure_future(client.request(SUBSCRIBE, {"uri": "x:1"}))
        await until(lambda: here.source.watches, "it is asked for")
        assert (await client.delete()).status == 200
        assert (await waiting).error["data"]["code"] == "TL310"
        assert watched(here) == []


async def test_refusals_pass_and_leave_nothing_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        resourceful(here, "x:1", outcome=RemoteError(b'{"code":-32000,"message":"no","data":{"x":1}}'))
        assert (await client.request(SUBSCRIBE, {"uri": "x:1"})).error == {
            "code": -32000,
            "message": "no",
            "data": {"x": 1},
        }
        down = Failure(Problem(code=SOURCE_DOWN, message="down", source="b"))
        resourceful(here, "y:1", source="b", outcome=down)
        assert (await client.request(SUBSCRIBE, {"uri": "y:1"})).situation == (503, "TL201", "no")
        unknown = await client.request(SUBSCRIBE, {"uri": "z:1"})
        assert unknown.error["code"] == -32002
        assert unknown.error["data"]["uri"] == "z:1"
        assert watched(here) == watched(here, "b") == []
        one = here.rig.sources["b"]
        one.watch_resource = lambda listen_filter: (one.watches.append(listen_filter), listen_filter.settle(HOLDS))[0]
        assert (await client.request(SUBSCRIBE, {"uri": "y:1"})).result == {}


@pytest.mark.parametrize("params", [None, {}, {"uri": 7}, {"uri": None}, {"uri": ["x:1"]}, {"uri": "x:" + "1" * 9000}])
async def test_a_uri_is_a_string_of_some_length(tmp_path: Path, params: dict[str, Any] | None) -> None:
    async with house(tmp_path) as here, here.client() as client:
        for method in (SUBSCRIBE, UNSUBSCRIBE):
            assert (await client.request(method, params)).error["code"] == -32602


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_subscriptions, "_SETTLE_S", 0.05)
    async with house(tmp_path) as here, here.client() as client:
        here.rig.serve("s", resources=["x:1"])
        answer = await client.request(SUBSCRIBE, {"uri": "x:1"})
        assert answer.situation[:2] == (504, "TL305")
        assert watched(here) == []


async def test_a_client_may_not_watch_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_subscriptions, "MAX_PER_CLIENT", 2)
    async with house(tmp_path) as here, here.client() as client, here.client() as other:
        resourceful(here, "x:1")
        for uri in ("x:1", "x:2", "x:1"):
            assert (await client.request(SUBSCRIBE, {"uri": uri})).result == {}
        assert (await client.request(SUBSCRIBE, {"uri": "x:3"})).situation == (429, "TL304", "no")
        assert (await other.request(SUBSCRIBE, {"uri": "x:3"})).result == {}
        await client.request(UNSUBSCRIBE, {"uri": "x:1"})
        assert (await client.request(SUBSCRIBE, {"uri": "x:3"})).result == {}


async def test_a_session_that_ends_watches_nothing_more(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, here.client() as other, other.listen() as events:
        resourceful(here, "x:1")
        for one in (client, other):
            assert (await one.request(SUBSCRIBE, {"uri": "x:1"})).result == {}
        assert (await client.delete()).status in (200, 204)
        assert watched(here) == ["x:1"]
        update(here, "x:1")
        assert await updated(events) == {"uri": "x:1"}


@pytest.mark.law
async def test_each_client_hears_of_its_own_alone(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, here.client() as other:
        resourceful(here, "x:1", "x:2")
        async with client.listen() as mine, other.listen() as theirs:
            await client.request(SUBSCRIBE, {"uri": "x:1"})
            await other.request(SUBSCRIBE, {"uri": "x:2"})
            for uri in ("x:1", "x:2"):
                update(here, uri)
            assert (await updated(mine), await updated(theirs)) == ({"uri": "x:1"}, {"uri": "x:2"})


async def test_a_resource_whose_server_was_taken_out_and_is_back_can_be_subscribed_to_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        resourceful(here, "x:1", source="b")
        assert (await client.request(SUBSCRIBE, {"uri": "x:1"})).result == {}
        here.rig.router.registry.remove("b")
        del here.rig.sources["b"]
        assert (await client.request(SUBSCRIBE, {"uri": "x:1"})).error["code"] == -32002
        resourceful(here, "x:1", source="b")
        assert (await client.request(SUBSCRIBE, {"uri": "x:1"})).result == {}
        update(here, "x:1", source="b")
        assert await updated(events) == {"uri": "x:1"}


async def test_an_update_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        resourceful(here, "x:1")
        await client.request(SUBSCRIBE, {"uri": "x:1"})
        for nonsense in (b"[]", b'{"uri":"x:1","uri":"x:2"}', b'{"_meta":7}'):
            here.source.watches[0].on_updated(nonsense)
        update(here, "x:1")
        assert await updated(events) == {"uri": "x:1"}


async def test_a_client_at_a_pipe_is_told_there_and_forgotten_with_it(tmp_path: Path) -> None:
    async with piped(tmp_path) as (here, pipes):
        resourceful(here, "x:1")
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT_INFO}
        pipes.send({"id": 0, "method": "initialize", "params": params})
        await pipes.next()
        pipes.send({"id": 1, "method": SUBSCRIBE, "params": {"uri": "x:1"}})
        assert await pipes.next() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        update(here, "x:1")
        assert (await pipes.next())["params"] == {"uri": "x:1"}
    assert watched(here) == []
