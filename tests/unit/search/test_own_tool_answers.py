from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.search.rig import Registry, parameters, tool

from trunkline.core.source import Health, State
from trunkline.core.tool import Snapshot
from trunkline.router.options import NameRules
from trunkline.search.own_tools import MAX_PAGE, MAX_SCHEMA_BYTES, PAGE
from trunkline.version import __version__


def names(answer: dict[str, object]) -> list[str]:
    return [item["name"] for item in answer["tools"]]  # type: ignore[index,union-attr]


# list_servers and server_health --------------------------------------------------------------------------------------


async def test_servers_are_listed_in_order_with_their_state_and_why(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.add("good", "a", "b")
    registry.add("bad", state=None)
    registry.sinks["bad"].health(Health(state="down", reason="no such\nprogram " + "x" * 500, restarts=2))
    registry.add("off", enabled=False, state=None)
    registry.add("new", state=None)
    good, bad, off, new = (await registry.ask("list_servers"))["servers"]
    assert good == {"name": "good", "state": "ready", "tools": 2}
    assert (bad["name"], bad["state"], bad["reason"]) == ("bad", "down", "no such")
    assert (off["state"], off["reason"]) == ("disabled", "it is disabled in the configuration")
    assert new == {"name": "new", "state": "starting", "tools": 0}


SICK = Health(
    state="down",
    reason="exited with 1",
    since=1_700_000_000.0,
    last_error="exited with 1",
    restarts=4,
    stderr_tail="x" * 1500 + "KeyError: 'TOKEN'",
    hint="set `env.TOKEN`",
)


async def test_health_of_one_server_tells_everything_about_it(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.add("good", "a")
    registry.add("sick", state=None)
    registry.sinks["sick"].health(SICK)
    (sick,) = (await registry.ask("server_health", {"server": "sick"}))["servers"]
    assert (sick["name"], sick["state"], sick["reason"], sick["restarts"]) == ("sick", "down", "exited with 1", 4)
    assert (sick["hint"], sick["lastError"]) == ("set `env.TOKEN`", "exited with 1")
    assert sick["since"] == "2023-11-14T22:13:20Z"
    assert sick["stderrTail"] == SICK.stderr_tail


@pytest.mark.parametrize("arguments", [{}, {"server": None}, {"server": ""}])
async def test_health_of_all_servers_keeps_to_what_matters(tmp_path: Path, arguments: dict[str, object]) -> None:
    registry = Registry(tmp_path)
    registry.add("good", "a")
    registry.add("sick", state=None)
    registry.sinks["sick"].health(SICK)
    good, sick = (await registry.ask("server_health", arguments))["servers"]
    assert "stderrTail" not in good
    assert sick["stderrTail"].endswith("KeyError: 'TOKEN'")
    assert len(sick["stderrTail"]) < 500


async def test_health_names_collisions_and_warnings_within_bounds(tmp_path: Path) -> None:
    registry = Registry(tmp_path, naming="original")
    tools = [f"t{number}" for number in range(60)]
    registry.add("one", *tools)
    registry.add("two", *tools)
    offered = registry.router.catalog.snapshot("two")
    assert offered is not None
    registry.sinks["two"].publish(Snapshot(tools=offered.tools, warnings=("a tool has no name",) * 9))
    (two,) = (await registry.ask("server_health", {"server": "two"}))["servers"]
    assert two["collisions"][0] == "`two.t0` is not exposed as `t0`: the name belongs to `one.t0`"
    assert two["collisions"][-1] == "… and 10 more"
    one, two = (await registry.ask("server_health"))["servers"]
    assert "collisions" not in one
    assert (len(two["collisions"]), two["collisions"][-1]) == (6, "… and 55 more")
    assert (len(two["warnings"]), two["warnings"][-1]) == (6, "… and 4 more")


async def test_an_unknown_server_is_refused_with_the_nearest_ones(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert registry.refused("server_health", {"server": "x"}) == "No server is called `x`: `list_servers` names them"
    registry.add("github")
    registry.add("files")
    assert registry.refused("server_health", {"server": "gihub"}) == (
        "No server is called `gihub`: did you mean `github`?"
    )
    assert registry.refused("list_tools", {"server": "zzzz"}) == (
        "No server is called `zzzz`: the servers are: `github`, `files`"
    )
    assert "trunkline" in registry.refused("server_health", {"server": "trunkline"}), "we are no server"


async def test_a_wrong_argument_is_refused_with_what_would_be_right(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert registry.refused("list_tools", {"srever": "x"}) == ("Unknown argument `srever`: did you mean `server`?")
    assert registry.refused("list_tools", {"limit": "many"}) == ('`limit` must be a whole number, not "many"')
    assert registry.refused("find_tool", {"query": ["a"]}) == '`query` must be text, not ["a"]'
    for nothing in ({}, {"query": " \n"}):
        assert registry.refused("find_tool", nothing).startswith("`query` is missing")


# list_tools ----------------------------------------------------------------------------------------------------------


async def test_tools_are_listed_with_name_address_and_the_first_line_of_their_description(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("files", tool("files", "read.file", "\n  Read a file.\nIt must exist."))
    registry.serve("mail", tool("mail", "send"))
    assert await registry.ask("list_tools") == {
        "tools": [
            {
                "name": "files_read_file",
                "address": "files.read.file",
                "server": "files",
                "description": "Read a file.",
            },
            {"name": "mail_send", "address": "mail.send", "server": "mail", "description": ""},
        ],
        "total": 2,
    }
    assert names(await registry.ask("list_tools", {"server": "mail"})) == ["mail_send"]


async def test_pages_follow_one_another_to_the_end(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("s", *(tool("s", f"t{number}", "word " * 100) for number in range(1000)))
    first = await registry.ask("list_tools")
    assert len(first["tools"]) == PAGE
    assert (first["total"], first["nextOffset"]) == (1000, PAGE)
    seen, offset = [], 0
    while offset is not None:
        page = await registry.ask("list_tools", {"limit": "10000", "offset": offset})
        assert len(page["tools"]) <= MAX_PAGE
        seen += names(page)
        offset = page.get("nextOffset")
    assert seen == [f"s_t{number}" for number in range(1000)]
    assert await registry.ask("list_tools", {"offset": 1000}) == {"tools": [], "total": 1000}
    assert len((await registry.ask("list_tools", {"offset": -5, "limit": 0}))["tools"]) == 1


async def test_a_page_of_tools_with_monstrous_names_is_cut_and_goes_on(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("s", *(tool("s", f"{number}" + "x" * 30_000) for number in range(5)))
    seen, offset = 0, 0
    while offset is not None:
        page = await registry.ask("list_tools", {"offset": offset})
        assert len(json.dumps(page)) < 100_000
        assert page["tools"]
        seen += len(page["tools"])
        offset = page.get("nextOffset")
    assert seen == 5


@pytest.mark.law
async def test_what_a_caller_may_not_call_is_neither_listed_nor_found(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.add("s", "shown", "secret_shown", rules=NameRules(prefix="s", deny=["secret_*"]))
    registry.add("off", enabled=False, state=None)
    registry.add("gone", "shown_once", grace_s=0.0)
    registry.router.catalog.hide("gone", True)
    assert names(await registry.ask("list_tools")) == ["s_shown"]
    assert names(await registry.ask("find_tool", {"query": "shown"})) == ["s_shown"]
    for query in ("s.secret_shown", "gone.shown_once", "gone_shown_once"):
        assert names(await registry.ask("find_tool", {"query": query})) in ([], ["s_shown"])
    assert (await registry.ask("registry_summary"))["tools"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("state", ["starting", "down", "auth_required"])
async def test_servers_whose_tools_may_be_missing_are_named(tmp_path: Path, state: State) -> None:
    registry = Registry(tmp_path)
    registry.add("good", "a")
    registry.add("late", state=state)
    registry.add("off", enabled=False, state=None)
    assert (await registry.ask("list_tools"))["notReady"] == [f"late: {state}"]
    assert (await registry.ask("find_tool", {"query": "a"}))["notReady"] == [f"late: {state}"]
    assert "notReady" not in await registry.ask("list_tools", {"server": "good"})
    assert await registry.ask("list_tools", {"server": "late"}) == {
        "tools": [],
        "total": 0,
        "notReady": [f"late: {state}"],
    }


# find_tool -----------------------------------------------------------------------------------------------------------


async def test_the_best_finds_come_with_their_input_schema(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    schema = parameters("path")
    large = parameters(*(f"p{number}" * 30 for number in range(MAX_SCHEMA_BYTES // 60)))
    tools = [tool("s", f"read_{number}", "read", inputSchema=schema) for number in range(10)]
    registry.serve("s", *tools)
    registry.serve("big", tool("big", "enormous", inputSchema=large), tool("big", "odd", inputSchema="none"))
    answer = await registry.ask("find_tool", {"query": "read"})
    assert (len(answer["tools"]), answer["total"]) == (8, 10)
    assert [item.get("inputSchema") for item in answer["tools"]] == [schema] * 3 + [None] * 5
    for word in ("enormous", "odd"):
        assert "inputSchema" not in (await registry.ask("find_tool", {"query": word}))["tools"][0]
    assert len((await registry.ask("find_tool", {"query": "read", "limit": 2}))["tools"]) == 2


@pytest.mark.parametrize("query", ["b.get", "b_get", " b_get ", "b:get", "trunkline.b.get"])
async def test_a_tool_asked_for_by_its_name_comes_first(tmp_path: Path, query: str) -> None:
    registry = Registry(tmp_path)
    registry.add("a", "get", "get_b", "b_get_b")
    registry.add("b", "get")
    found = names(await registry.ask("find_tool", {"query": query}))
    assert found[0] == "b_get"
    assert len(found) == len(set(found))


# registry_summary ----------------------------------------------------------------------------------------------------


async def test_the_summary_counts_servers_tools_and_the_size_of_the_list(tmp_path: Path) -> None:
    registry = Registry(tmp_path, naming="original")
    registry.add("a", "x", "y")
    registry.add("b", "x")
    registry.add("c", state="down")
    summary = await registry.ask("registry_summary")
    size_bytes = len(registry.router.catalog.listing)
    assert summary.pop("uptimeSeconds") >= 0
    assert summary == {
        "version": __version__,
        "servers": 3,
        "serversByState": {"ready": 2, "down": 1},
        "tools": 3,
        "toolsByServer": {"a": 2, "b": 1, "c": 0},
        "prompts": 0,
        "resources": 0,
        "resourceTemplates": 0,
        "listBytes": size_bytes,
        "listTokensEstimate": size_bytes // 4,
        "collisions": 1,
    }
