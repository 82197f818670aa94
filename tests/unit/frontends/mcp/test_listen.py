from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import META, modern_meta
from tests.support.waiting import until
from tests.unit.frontends.mcp.listening import listening, opened, piped
from tests.unit.frontends.rig import House, house

from trunkline.core.call import Failure, RemoteError, Result
from trunkline.core.errors import SOURCE_DOWN, Problem
from trunkline.core.source import ResourceWatch
from trunkline.frontends.mcp import listen
from trunkline.frontends.mcp import listen as one_listen

TASKS = "io.modelcontextprotocol/tasks"
UPDATED = "notifications/resources/updated"
HOLDS = Result(b"{}")


def resourceful(here: House, *uris: str, **settled: Any) -> None:
    """The server `s` has these resources, and says at once that it will tell of them, or what `settled` says (None:
    it says nothing)."""
    here.rig.serve("s", resources=uris)
    watch = here.source.watch_resource

    def watched(one: ResourceWatch) -> None:
        watch(one)
        answer = settled.get(one.uri.partition(":")[0], HOLDS)
        if answer is not None:
            one.settle(answer)

    here.source.watch_resource = watched


def update(here: House, uri: str, **more: Any) -> None:
    """The server says that a resource changed, to everybody who watches it."""
    for watch in here.source.watches:
        if not watch.closed and uri.startswith(watch.uri):
            watch.on_updated(json.dumps({"uri": uri, **more}).encode())


def watched(here: House) -> list[str]:
    return [watch.uri for watch in here.source.watches if not watch.closed]


@pytest.mark.parametrize("id_of_listen", [7, "7", "seven", 0])
async def test_updates_come_under_the_id_of_the_listen(tmp_path: Path, id_of_listen: Any) -> None:
    async with house(tmp_path) as here:
        resourceful(here, "x:1", "x:2")
        async with listening(here, {"resourceSubscriptions": ["x:1", "x:2", "x:1"]}, id=id_of_listen) as (told, heard):
            assert told == {"resourceSubscriptions": ["x:1", "x:2"]}
            assert watched(here) == ["x:1", "x:2"]
            update(here, "x:2", title="t")
            notification = await heard()
            assert (notification["method"], notification["params"]["uri"], notification["params"]["title"]) == (
                UPDATED,
                "x:2",
                "t",
            )
            assert (type(notification["id_of_listen"]), notification["id_of_listen"]) == (
                type(id_of_listen),
                id_of_listen,
            )
            update(here, "x:1/part", _meta={f"{META}subscriptionId": 99, "own": 1})
            notification = await heard()
            assert notification["params"]["uri"] == "x:1/part"
            assert notification["params"]["_meta"] == {"own": 1, f"{META}subscriptionId": id_of_listen}
        await until(lambda: not watched(here), "nothing is watched once the client is gone")


async def test_what_servers_do_not_tell_of_is_not_acknowledged(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        down = Failure(Problem(code=SOURCE_DOWN, message="down"))
        resourceful(here, "x:1", "bad:1", "worse:1", bad=RemoteError(b'{"code":-32602,"message":"no"}'), worse=down)
        here.rig.serve("other", resources=["z:1"])
        listen_filter = ["x:1", "bad:1", "worse:1", "unknown:1"]
        async with listening(here, {"resourceSubscriptions": listen_filter, "toolsListChanged": True}) as (told, _):
            assert told == {"toolsListChanged": True, "resourceSubscriptions": ["x:1"]}
            assert watched(here) == ["x:1"]
        async with listening(here, {"resourceSubscriptions": ["bad:1"], "promptsListChanged": False}) as (told, _):
            assert told == {}


async def test_nothing_is_said_before_the_acknowledgement(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.rig.serve("s", resources=["x:1", "x:2"])
        async with opened(here, {"resourceSubscriptions": ["x:1", "x:2"], "toolsListChanged": True}) as heard:
            await until(lambda: len(here.source.watches) == 2, "both are asked for")
            here.source.watches[0].settle(HOLDS)
            update(here, "x:1")
            here.rig.serve("s", tools=["new"], resources=["x:1", "x:2"])
            await asyncio.sleep(0.2)  # notifications wait a moment for more
            here.source.watches[1].settle(HOLDS)
            methods = [(await heard())["method"] for _ in range(3)]
            assert methods == [
                "notifications/subscriptions/acknowledged",
                UPDATED,
                "notifications/tools/list_changed",
            ]


async def test_what_is_held_back_until_the_acknowledgement_has_a_size(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.rig.serve("s", resources=["x:1", "x:2"])
        async with opened(here, {"resourceSubscriptions": ["x:1", "x:2"]}) as heard:
            await until(lambda: len(here.source.watches) == 2, "both are asked for")
            here.source.watches[0].settle(HOLDS)
            for number in range(20):
                update(here, "x:1", padding=f"{number}" + "x" * 100_000)
            here.source.watches[1].settle(HOLDS)
            update(here, "x:1", last=True)
            messages = [await heard()]
            while "last" not in messages[-1]["params"]:
                messages.append(await heard())
            assert len(messages) == 1 + 10 + 1


async def test_a_server_that_does_not_answer_does_not_hold_up_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_listen, "_SETTLE_S", 0.05)
    async with house(tmp_path) as here:
        resourceful(here, "x:1", "never:1", never=None)
        async with opened(here, {"resourceSubscriptions": ["x:1", "never:1"]}) as heard:
            assert (await heard())["params"]["notifications"] == {"resourceSubscriptions": ["x:1"]}
            assert watched(here) == ["x:1"]
            here.source.watches[1].settle(HOLDS)
            update(here, "x:1")
            assert (await heard())["params"]["uri"] == "x:1"


async def test_one_client_may_listen_many_times_and_ends_each_by_itself(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        resourceful(here, "x:1")
        async with listening(here, {"resourceSubscriptions": ["x:1"]}, id=1) as (_, heard):
            async with listening(here, {"resourceSubscriptions": ["x:1"]}, id=1):
                assert len(here.server.listen_streams) == 2
            await until(lambda: len(here.server.listen_streams) == 1, "the other goes on")
            update(here, "x:1")
            assert (await heard())["params"]["uri"] == "x:1"


async def test_a_frontend_that_closes_answers_every_listen(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        resourceful(here, "x:1")
        async with listening(here, {"resourceSubscriptions": ["x:1"]}) as (_, heard):
            here.server.end_subscriptions()
            last = await heard()
            assert (last["id"], last["result"]["resultType"], last["id_of_listen"]) == (7, "complete", 7)
            assert watched(here) == []


async def test_a_client_that_leaves_before_the_acknowledgement_leaves_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.rig.serve("s", resources=["x:1"])
        async with opened(here, {"resourceSubscriptions": ["x:1"]}):
            await until(lambda: here.source.watches, "it is asked for")
        await until(lambda: not watched(here), "it is let go")
        here.source.watches[0].settle(HOLDS)
        assert not len(here.server.listen_streams)


@pytest.mark.parametrize(
    "notifications",
    [
        {"toolsListChanged": 1},
        {"promptsListChanged": "yes"},
        {"resourceSubscriptions": "x:1"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": {"x:1": True}},
        {"resourceSubscriptions": [f"x:{number}" for number in range(1001)]},
        {"resourceSubscriptions": ["x:" + "1" * 9000]},
        {"taskIds": 7},
    ],
)
async def test_wishes_that_make_no_sense_are_refused(tmp_path: Path, notifications: dict[str, Any]) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        answer = await client.request("subscriptions/listen", {"notifications": notifications})
        assert answer.error["code"] == -32602
        assert not len(here.server.listen_streams)


async def test_an_id_that_would_be_said_again_and_again_is_not_long(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        answer = await client.request("subscriptions/listen", {"notifications": {}}, id="x" * 9000)
        assert answer.error["code"] == -32600
        assert not len(here.server.listen_streams)


async def test_tasks_are_for_clients_that_know_them(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        answer = await client.request("subscriptions/listen", {"notifications": {"taskIds": ["a"]}})
        assert answer.error["code"] == -32021
        assert answer.error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
        capabilities = {"extensions": {TASKS: {}}}
        async with opened(here, {"taskIds": ["a"], "toolsListChanged": True}, capabilities=capabilities) as heard:
            assert (await heard())["params"]["notifications"] == {"toolsListChanged": True}


async def test_listens_are_bounded_in_number_and_in_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "MAX_LISTENS_PER_PRINCIPAL", 2)
    monkeypatch.setattr(listen, "MAX_WATCHED_PER_PRINCIPAL", 3)
    async with house(tmp_path) as here, here.modern() as client:
        resourceful(here, "x:1")
        async with listening(here, {"resourceSubscriptions": ["x:1", "x:2"]}):
            too_many = {"notifications": {"resourceSubscriptions": ["x:1", "x:2"]}}
            assert (await client.request("subscriptions/listen", too_many)).situation == (429, "TL304", "no")
            async with listening(here, {"resourceSubscriptions": ["x:1"]}):
                refused = await client.request("subscriptions/listen", {"notifications": {}})
                assert refused.situation == (429, "TL304", "no")
        await until(lambda: not len(here.server.listen_streams), "both are gone")
        async with listening(here, {"toolsListChanged": True}):
            pass


async def test_an_update_that_cannot_be_read_is_dropped(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        resourceful(here, "x:1")
        async with listening(here, {"resourceSubscriptions": ["x:1"]}) as (_, heard):
            for nonsense in (b"[]", b'{"uri":"x:1","uri":"x:2"}', b'{"_meta":7}'):
                here.source.watches[0].on_updated(nonsense)
            update(here, "x:1")
            assert (await heard())["params"]["uri"] == "x:1"


async def test_two_hundred_listeners_of_one_uri_each_hear_once_under_their_own_id(tmp_path: Path) -> None:
    async with house(tmp_path, connections=500) as here:
        resourceful(here, "x:1")

        async def one(number: int, ready: asyncio.Barrier) -> None:
            async with listening(here, {"resourceSubscriptions": ["x:1"]}, id=number) as (_, heard):
                await ready.wait()
                first, second = await heard(), await heard()
                assert [first["id_of_listen"], second["id_of_listen"]] == [number, number]
                assert [first["params"]["n"], second["params"]["n"]] == [1, 2]
                await ready.wait()

        ready = asyncio.Barrier(201)
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(one(number % 50, ready))
            await ready.wait()
            update(here, "x:1", n=1)
            update(here, "x:1", n=2)
            await ready.wait()


async def test_over_a_pipe_an_id_is_taken_until_its_listen_is_cancelled(tmp_path: Path) -> None:
    async with piped(tmp_path) as (here, pipes):
        resourceful(here, "x:1")
        params = {"notifications": {"resourceSubscriptions": ["x:1"]}, "_meta": modern_meta()}
        listen = {"id": 1, "method": "subscriptions/listen", "params": params}
        pipes.send(listen)
        assert (await pipes.next())["method"] == "notifications/subscriptions/acknowledged"
        pipes.send(listen)
        assert (await pipes.next())["error"]["code"] == -32600
        pipes.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await until(lambda: not watched(here), "it is closed")
        pipes.send(listen)
        assert (await pipes.next())["method"] == "notifications/subscriptions/acknowledged"
