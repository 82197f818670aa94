from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.bugs import broken, reported_bugs
from tests.support.client import CLIENT_INFO
from tests.support.waiting import at_most, until
from tests.unit.frontends.mcp.listening import listening
from tests.unit.frontends.rig import House, at_pipe, house
from tests.unit.router.fakes import full_snapshot

from trunkline.frontends.mcp import initialize, notifier

TOOLS, PROMPTS, RESOURCES = (f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
ASKED_BY = {TOOLS: "toolsListChanged", PROMPTS: "promptsListChanged", RESOURCES: "resourcesListChanged"}
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"tools": ["new"]}, TOOLS),
    ({"prompts": ["new"]}, PROMPTS),
    ({"resources": ["new:1"]}, RESOURCES),
    ({"templates": ["new:{n}"]}, RESOURCES),
]


def change(here: House, **offered: Any) -> None:
    here.rig.sinks["s"].publish(full_snapshot("s", **{"tools": ["t", "u"], **offered}))


async def next_method(events: AsyncIterator[bytes]) -> str:
    while True:
        event = await asyncio.wait_for(anext(events), at_most(15))
        if event:
            return json.loads(event)["method"]


@pytest.mark.parametrize(("offered", "method"), CHANGES)
async def test_legacy_clients_hear_of_the_list_that_changed_and_of_no_other(
    tmp_path: Path, offered: dict[str, Any], method: str
) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        change(here, **offered)
        assert await next_method(events) == method
        change(here)
        assert await next_method(events) == method, "nothing else came in between"


@pytest.mark.parametrize(("offered", "method"), CHANGES)
async def test_modern_clients_hear_of_the_lists_that_they_asked_for(
    tmp_path: Path, offered: dict[str, Any], method: str
) -> None:
    async with house(tmp_path) as here:
        others = {name: True for name in ASKED_BY.values() if name != ASKED_BY[method]}
        async with (
            listening(here, {ASKED_BY[method]: True}, id=1) as (last_sent, heard),
            listening(here, others, id=2) as (others_told, others_heard),
        ):
            assert (last_sent, others_told) == ({ASKED_BY[method]: True}, others)
            change(here, **offered)
            notifier = await heard()
            assert (notifier["method"], notifier["id_of_listen"]) == (method, 1)
            everything = {"tools": ["x"], "prompts": ["x"], "resources": ["x:1"], "templates": ["x:{n}"]}
            change(here, **everything)
            assert {(await others_heard())["method"] for _ in others} == set(ASKED_BY) - {method}


async def test_one_word_stands_for_all_that_changes_in_a_moment(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        for number in range(20):
            change(here, tools=[f"t{number}"], prompts=[f"p{number}"], resources=[f"x:{number}"], templates=["x:{n}"])
        assert [await next_method(events) for _ in range(3)] == [TOOLS, PROMPTS, RESOURCES]
        change(here)
        assert [await next_method(events) for _ in range(3)] == [TOOLS, PROMPTS, RESOURCES]


async def test_a_client_that_saw_the_new_list_already_is_not_told(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        change(here, tools=["one"], prompts=["p"])
        await client.request("tools/list")
        assert await next_method(events) == PROMPTS
        change(here, tools=["two"], prompts=["p"])
        assert await next_method(events) == TOOLS


async def test_a_list_that_is_again_as_it_was_causes_no_notification(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        change(here, tools=["other"])
        change(here)
        change(here, prompts=["p"])
        assert await next_method(events) == PROMPTS


@pytest.mark.law
async def test_what_one_client_alone_is_offered_notifies_that_client_alone(tmp_path: Path) -> None:
    async with (
        house(tmp_path) as here,
        here.client() as client,
        here.client() as other,
        client.listen() as mine,
        other.listen() as theirs,
    ):
        here.rig.sinks["s"].publish_for(client.session or "", full_snapshot("s", tools=["t", "u"], prompts=["mine"]))
        assert await next_method(mine) == PROMPTS
        change(here, resources=["x:1"])
        assert await next_method(theirs) == RESOURCES


async def test_a_client_that_comes_late_is_not_told_of_the_past(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        change(here, tools=["one"])
        async with here.client() as client, client.listen() as events:
            change(here, tools=["one"], prompts=["p"])
            assert await next_method(events) == PROMPTS


async def test_a_client_that_listens_just_before_a_change_hears_of_that_list_alone(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        change(here, prompts=["p"], resources=["r:1"])
        assert await next_method(events) == PROMPTS
        assert await next_method(events) == RESOURCES
        listen_filter = dict.fromkeys(ASKED_BY.values(), True)
        change(here, prompts=["p"], resources=["r:1"], tools=["t", "new"])
        async with listening(here, listen_filter) as (_, heard):
            assert (await heard())["method"] == TOOLS
            change(here, prompts=["p", "q"], resources=["r:1"], tools=["t", "new"])
            assert (await heard())["method"] == PROMPTS, "nothing else came in between"


@pytest.mark.slow
@pytest.mark.parametrize("leaves", ["before it listens", "afterwards"])
async def test_a_client_that_listens_while_something_comes_and_leaves_at_once_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    monkeypatch.setattr(notifier, "_SETTLE_S", at_most(1))
    async with house(tmp_path) as here, here.client() as client, client.listen() as events:
        change(here, resources=["stays:1"])
        assert await next_method(events) == RESOURCES
        change(here, resources=["stays:1", "comes:1"])
        if leaves == "before it listens":
            change(here, resources=["stays:1"])
        async with listening(here, {"resourcesListChanged": True}) as (_, heard):
            if leaves == "afterwards":
                change(here, resources=["stays:1"])
            assert (await heard())["method"] == RESOURCES


async def test_a_client_is_told_nothing_before_it_is_greeted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "_SETTLE_S", 0.0)
    monkeypatch.setattr(initialize, "_INSTRUCTIONS_WAIT_S", 0.5)
    here = House(tmp_path)
    here.rig.add("late", state="starting")  # greetings wait for it
    async with at_pipe(here) as (pipes, _):
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}
        pipes.send({"id": 0, "method": "initialize", "params": opening})
        await until(lambda: here.server.sessions, "the client is known")
        change(here, tools=["new"])
        assert (await pipes.next())["id"] == 0
        change(here, prompts=["new"])
        assert (await pipes.next())["method"].endswith("/list_changed")


async def test_a_client_that_cannot_be_told_keeps_no_other_from_its_notifications(tmp_path: Path) -> None:
    async with (
        house(tmp_path) as here,
        here.client() as client,
        here.client() as other,
        client.listen() as events,
        other.listen() as other_events,
        listening(here, {ASKED_BY[TOOLS]: True}) as (_, heard),
    ):
        bugs = reported_bugs()
        here.session(client).push = broken
        change(here, tools=["new"])
        assert await next_method(other_events) == TOOLS
        assert (await heard())["method"] == TOOLS
        assert len(bugs) == 1
        del events
        change(here, tools=["newer"])
        assert await next_method(other_events) == TOOLS, "also the next time"
