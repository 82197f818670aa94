from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.frontends.mcp.listening import Heard, opened
from tests.unit.frontends.rig import House, house

from trunkline.core.call import Caller
from trunkline.core.source import TaskWatch
from trunkline.frontends.mcp import listen
from trunkline.frontends.mcp import listen as one_listen
from trunkline.router.rewriting import TaskLocation

CAPABILITIES = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def given(here: House, own_id: str, *, principal: str = "local", source: str = "s") -> str:
    """The id under which a client knows a task of a server."""
    return here.rig.router.task_ids.public_id(Caller(principal), TaskLocation(source, own_id))


@contextlib.asynccontextmanager
async def listening(here: House, *task_ids: str, **more: Any) -> AsyncIterator[Heard]:
    async with opened(here, {"taskIds": list(task_ids), **more}, capabilities=CAPABILITIES) as heard:
        yield heard


async def watch_at(here: House) -> TaskWatch:
    return await until(lambda: next((one for one in here.source.task_watches if not one.closed), None), "a watch")


def says(watch: TaskWatch, own_id: str, **task: Any) -> None:
    watch.on_updated(own_id, json.dumps({"taskId": own_id, **task}).encode())


async def acknowledged(heard: Heard) -> dict[str, Any]:
    first = await heard()
    assert (first["method"], first["id_of_listen"]) == ("notifications/subscriptions/acknowledged", 7)
    return first["params"]["notifications"]


@pytest.mark.law
async def test_notifications_wait_for_the_acknowledgement_and_what_was_not_promised_is_never_told(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here:
        one, two, strange = given(here, "1"), given(here, "2"), given(here, "1", principal="somebody else")
        async with listening(here, two, strange, one, toolsListChanged=True) as heard:
            watch = await watch_at(here)
            assert watch.task_ids == {"1", "2"}
            says(watch, "1", status="working", x=1.5)
            watch.settle(frozenset({"1"}))
            assert await acknowledged(heard) == {"toolsListChanged": True, "taskIds": [one]}
            update = await heard()
            assert (update["method"], update["params"]["taskId"], update["params"]["x"]) == (
                "notifications/tasks",
                one,
                1.5,
            )
            says(watch, "2", status="working")
            says(watch, "1", status="completed")
            assert (await heard())["params"]["status"] == "completed"
        await until(lambda: watch.closed, "nothing is watched once the client is gone")


async def test_a_server_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_listen, "_SETTLE_S", 0.05)
    async with house(tmp_path) as here, listening(here, given(here, "1"), toolsListChanged=True) as heard:
        (watch,) = await until(lambda: here.source.task_watches, "a watch")
        assert await acknowledged(heard) == {"toolsListChanged": True}
        assert watch.closed
        watch.settle(frozenset({"1"}))
        says(watch, "1", status="completed")
        here.rig.publish("s", "another")
        assert (await heard())["method"] == "notifications/tools/list_changed"


async def test_server_requests_in_notifications_say_which_of_several_servers_asks(tmp_path: Path) -> None:
    server_request = {"method": "elicitation/create", "params": {"message": "Who?"}}
    async with house(tmp_path) as here:
        here.rig.add("other")
        async with listening(here, given(here, "1")) as heard:
            watch = await watch_at(here)
            watch.settle(frozenset({"1"}))
            await acknowledged(heard)
            says(watch, "1", status="input_required", inputRequests={"k": server_request})
            asked = (await heard())["params"]["inputRequests"]["k"]["params"]
            assert asked == {"message": "[s] Who?", "_meta": {"trunkline/server": "s"}}
            says(watch, "1", status="input_required", inputRequests=[])
            says(watch, "1", status="completed")
            assert (await heard())["params"]["status"] == "completed"


async def test_tasks_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "MAX_WATCHED_PER_PRINCIPAL", 2)
    meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}}
    async with house(tmp_path) as here, here.modern() as client:
        listen_filter = {"notifications": {"taskIds": ["1", "2"], "resourceSubscriptions": ["x:1"]}, **meta}
        assert (await client.request("subscriptions/listen", listen_filter)).situation == (429, "TL304", "no")
        listen_filter["notifications"] = {"taskIds": [str(number) for number in range(one_listen.MAX_WATCHED + 1)]}
        assert (await client.request("subscriptions/listen", listen_filter)).error["code"] == -32602
