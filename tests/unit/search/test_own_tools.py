from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import at_most
from tests.unit.router.fakes import problem_of
from tests.unit.search.rig import Registry, snapshot_of, tool

from trunkline.core.call import Caller
from trunkline.core.errors import DRAINING, INTERNAL, UNKNOWN_TOOL
from trunkline.router.options import NameRules
from trunkline.search import own_tools

NAMES = ["list_servers", "server_health", "list_tools", "find_tool", "registry_summary"]


async def test_our_own_tools_come_first_in_the_list_under_their_bare_names(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.add("s", "echo")
    assert registry.listed() == [*NAMES, "s_echo"]


@pytest.mark.parametrize(
    "name", ["list_servers", "trunkline.list_servers", "trunkline_list_servers", "toolhive-gateway.list_servers"]
)
async def test_they_are_called_by_any_of_their_names(tmp_path: Path, name: str) -> None:
    registry = Registry(tmp_path)
    assert await registry.read("list_servers", registry.start(name, {})) == {"servers": []}


@pytest.mark.parametrize("naming, prefix", [("original", "s"), ("prefixed", "")])
async def test_they_keep_their_names_from_a_server_that_wants_them(tmp_path: Path, naming: str, prefix: str) -> None:
    registry = Registry(tmp_path, naming=naming)
    registry.add("s", "find_tool", "other", rules=NameRules(prefix=prefix))
    assert registry.listed() == [*NAMES, "other"]
    (status,) = (await registry.ask("server_health"))["servers"]
    assert status["collisions"] == [
        "`s.find_tool` is not exposed as `find_tool`: the name belongs to `trunkline.find_tool`"
    ]
    found = (await registry.ask("find_tool", {"query": "find_tool"}))["tools"]
    assert [item["name"] for item in found] == ["s.find_tool"], "the way to call it is its address"


async def test_they_can_be_switched_off_and_on_at_any_time(tmp_path: Path) -> None:
    registry = Registry(tmp_path, shown=False)
    changes: list[int] = []
    registry.add("s", "echo", "list_tools", rules=NameRules(prefix=""))
    registry.router.registry.on_list_changed.append(lambda: changes.append(1))
    assert registry.listed() == ["echo", "list_tools"]
    registry.own.show(True)
    assert changes
    assert registry.listed() == [*NAMES, "echo"], "first in order, so they win the name"
    registry.own.show(False)
    assert registry.listed() == ["echo", "list_tools"]
    assert problem_of(registry.start("find_tool", {"query": "x"})).code is UNKNOWN_TOOL
    registry.own.show(True)
    assert registry.listed() == [*NAMES, "echo"]


async def test_showing_them_again_changes_nothing(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    version = registry.router.catalog.version
    registry.own.show(True)
    assert registry.router.catalog.version == version


async def test_they_are_no_server(tmp_path: Path) -> None:
    registry = Registry(tmp_path, shown=False)
    healths: list[str] = []
    registry.events.health.append(lambda source, _: healths.append(source))
    registry.own.show(True)
    registry.add("s", "echo")
    assert healths == ["s"]
    assert list(registry.router.registry.servers()) == ["s"]
    assert [server["name"] for server in (await registry.ask("list_servers"))["servers"]] == ["s"]


async def test_the_first_list_does_not_wait_for_them(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    given: list[bool] = []
    registry.router.when_published(lambda: given.append(True))
    assert given == [True]


async def test_nothing_of_them_is_kept_on_disk(tmp_path: Path) -> None:
    Registry(tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_they_answer_no_more_once_the_gateway_drains(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.router.drain()
    assert problem_of(registry.start("list_servers")).code is DRAINING


@pytest.mark.parametrize("arguments", [None, {}, {"random_string": "dummy"}])
async def test_a_tool_without_arguments_does_not_mind_some(tmp_path: Path, arguments: Any) -> None:
    registry = Registry(tmp_path)
    assert await registry.ask("list_servers", arguments) == {"servers": []}
    assert (await registry.ask("registry_summary", arguments))["servers"] == 0


async def test_null_for_arguments_is_none(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    call = registry.call("list_tools", {"name": "list_tools", "arguments": None})
    assert await registry.read("list_tools", call) == {"tools": [], "total": 0}


async def test_a_bug_of_ours_is_one_failed_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(tmp_path)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(own_tools, "server_tools", broken)
    problem = problem_of(registry.start("list_tools"))
    assert (problem.code, problem.message) == (INTERNAL, "ZeroDivisionError: a bug")
    assert await registry.ask("list_servers") == {"servers": []}


@pytest.mark.law
async def test_a_client_sees_what_a_server_shows_to_it_alone(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("s", tool("s", "login"))
    registry.sinks["s"].publish_for("mine", snapshot_of(tool("s", "login"), tool("s", "secret_door")))
    for session, names in [("mine", ["s_login", "s_secret_door"]), ("other", ["s_login"]), (None, ["s_login"])]:
        listed = (await registry.ask("list_tools", {}, session=session))["tools"]
        assert [item["name"] for item in listed] == names
        found = (await registry.ask("find_tool", {"query": "door"}, session=session))["tools"]
        assert [item["name"] for item in found] == [name for name in names if "door" in name]
        assert (await registry.ask("registry_summary", {}, session=session))["tools"] == len(names)


async def test_a_large_catalog_is_read_in_steps_and_every_search_is_answered(tmp_path: Path) -> None:
    registry = Registry(tmp_path, in_flight_per_source=10)
    registry.serve("s", *(tool("s", f"tool{number}", "does something") for number in range(500)))
    calls = [registry.start("find_tool", {"query": f"tool{number}"}) for number in range(3)]
    cancelled = registry.start("find_tool", {"query": "tool9"})
    assert not any(call.done for call in calls)
    cancelled.cancel("the client took it back")
    async with asyncio.timeout(at_most(30)):
        while not all(call.done for call in calls):
            await asyncio.sleep(0)
    for number, call in enumerate(calls):
        assert (await registry.read("find_tool", call))["tools"][0]["address"] == f"s.tool{number}"
    assert registry.start("find_tool", {"query": "tool7"}).done, "it was read once"


async def test_a_search_notices_that_the_tools_have_changed(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("s", tool("s", "alpha"))
    assert (await registry.ask("find_tool", {"query": "beta"}))["total"] == 0
    registry.sinks["s"].publish(snapshot_of(tool("s", "beta")))
    assert (await registry.ask("find_tool", {"query": "beta"}))["total"] == 1
    assert (await registry.ask("find_tool", {"query": "alpha"}))["total"] == 0


async def test_many_views_keep_few_indexes(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("s", tool("s", "one"))
    for number in range(20):
        registry.sinks["s"].publish_for(f"c{number}", snapshot_of(tool("s", f"only{number}")))
        assert (await registry.ask("find_tool", {"query": f"only{number}"}, session=f"c{number}"))["total"] == 1
    assert (await registry.ask("find_tool", {"query": "only3"}, session="c3"))["total"] == 1


async def test_definitions_are_small_and_say_that_they_only_read(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    listing = registry.router.views.of(Caller()).listing
    tools = json.loads(listing)
    for definition in tools:
        annotations = definition["annotations"]
        assert (annotations["readOnlyHint"], annotations["openWorldHint"]) == (True, False)
        assert annotations["title"]
        assert definition["inputSchema"]["type"] == definition["outputSchema"]["type"] == "object"
    shown_to_models = [{key: item[key] for key in ("name", "description", "inputSchema")} for item in tools]
    assert len(json.dumps(shown_to_models, separators=(",", ":"))) < 1200
    assert len(listing) < 4200
