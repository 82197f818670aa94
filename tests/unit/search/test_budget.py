"""The token cost of listing tools, by server, by tool and by mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.search.rig import Registry, parameters, tool

from trunkline.router.catalog import shown_definition
from trunkline.search.token_costs import tokens_of

LONG = "It tells a great deal about itself before it comes to the point. " * 20


def budget_of(registry: Registry) -> dict[str, Any]:
    return registry.discovery.listing.budget(registry.router.catalog)


def serve_many(registry: Registry, number: int) -> None:
    tools = [tool("many", f"tool_{index}", LONG, inputSchema=parameters("a", "b")) for index in range(number)]
    registry.serve("many", *tools)


async def test_servers_and_tools_stand_with_the_dearest_first(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("small", tool("small", "a", "Short."), tool("small", "b", "Short too."))
    registry.serve("big", tool("big", "c", LONG))
    found = budget_of(registry)
    assert [server["name"] for server in found["servers"]] == ["big", "trunkline", "small"]
    assert [server["tools"] for server in found["servers"]] == [1, 5, 2]
    assert found["tools"][0]["tool_id"] == "big_c"
    costs = [each["tokens"] for each in found["tools"]]
    assert costs == sorted(costs, reverse=True)


async def test_all_sums_agree_with_what_is_listed(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    serve_many(registry, 3)
    found = budget_of(registry)
    whole = found["modes"]["all"]["tokens"]
    assert sum(each["tokens"] for each in found["tools"]) == whole
    assert sum(each["tokens"] for each in found["servers"]) == whole
    assert {each["tool_id"] for each in found["tools"]} == set(registry.listed())
    entry = registry.router.catalog.find("many_tool_0")
    assert entry is not None
    assert found["tools"][0]["tokens"] == tokens_of(shown_definition(entry))


async def test_a_server_that_is_down_counts_too(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    serve_many(registry, 3)
    before = budget_of(registry)
    registry.router.catalog.hide("many", True)
    assert "many_tool_0" not in registry.listed()
    assert budget_of(registry) == before


async def test_a_short_list_is_shown_whole(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.serve("s", tool("s", "a", "Short."))
    found = budget_of(registry)
    assert (found["disclosure"], found["shown"], found["context_tokens"]) == ("auto", "all", 4000)
    assert found["modes"]["auto"] == {"chosen": "all", "why": "the whole list is within `context_tokens` (4,000)"}


async def test_a_long_list_is_searched(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    serve_many(registry, 40)
    found = budget_of(registry)
    search = found["modes"]["search"]
    assert search["tokens"] < search["dialogue"] < found["modes"]["all"]["tokens"]
    assert found["shown"] == found["modes"]["auto"]["chosen"] == "search"
    assert f"a search costs {search['dialogue']:,} at most" in found["modes"]["auto"]["why"]


async def test_a_list_that_a_search_would_not_undercut_is_shown_whole(tmp_path: Path) -> None:
    registry = Registry(tmp_path, gateway={"context_tokens": 1000})
    serve_many(registry, 5)
    found = budget_of(registry)
    assert found["modes"]["auto"]["chosen"] == "all"
    assert "no less than the whole list" in found["modes"]["auto"]["why"]


async def test_without_our_own_tools_there_is_nothing_to_search_with(tmp_path: Path) -> None:
    registry = Registry(tmp_path, shown=False)
    serve_many(registry, 40)
    found = budget_of(registry)
    assert found["shown"] == "all"
    assert "nothing to search with" in found["modes"]["auto"]["why"]


@pytest.mark.parametrize("setting", ["all", "search"])
async def test_a_mode_that_is_set_is_shown_whatever_auto_would_choose(tmp_path: Path, setting: str) -> None:
    registry = Registry(tmp_path, gateway={"disclosure": setting})
    serve_many(registry, 40 if setting == "all" else 1)
    found = budget_of(registry)
    assert (found["disclosure"], found["shown"]) == (setting, setting)
    assert found["modes"]["auto"]["chosen"] != setting
