"""The tools that a client's list shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.search.rig import Registry, parameters, snapshot_of, tool

from trunkline.config.settings import GatewaySettings, SearchSettings
from trunkline.core.call import Caller
from trunkline.core.tool import ToolDefinition
from trunkline.router.options import NameRules
from trunkline.search.own_tool_definitions import INFORMING, SEARCHERS

SEARCHING = [tool.name for tool in SEARCHERS]
INFORMATIVE = [tool.name for tool in INFORMING]
ME = Caller("local", "s1", "some-client")


def many(source: str, count: int, words: int = 60) -> list[ToolDefinition]:
    text = " ".join(f"word{number}" for number in range(words))
    return [tool(source, f"t{number}", text, inputSchema=parameters("a", "b")) for number in range(count)]


def registry(folder: Path, mode: str = "auto", *, search: dict[str, Any] | None = None, **gateway: Any) -> Registry:
    settings = SearchSettings(semantic=False, **(search or {}))
    return Registry(folder, gateway={"disclosure": mode, "search": settings, **gateway})


def names(here: Registry, caller: Caller = ME) -> list[str]:
    return [shown["name"] for shown in json.loads(here.discovery.listing.listing(caller))]


async def test_a_small_catalog_is_shown_whole(tmp_path: Path) -> None:
    here = registry(tmp_path)
    here.serve("s", *many("s", 5))
    assert names(here) == [*INFORMATIVE, *(f"s_t{number}" for number in range(5))]
    assert not here.discovery.listing.searches(ME)
    assert not here.discovery.listing.varies(ME)


async def test_a_catalog_over_the_budget_is_searched(tmp_path: Path) -> None:
    here = registry(tmp_path)
    here.serve("s", *many("s", 100))
    assert names(here) == SEARCHING
    assert here.discovery.listing.searches(ME)
    assert here.discovery.listing.varies(ME)


async def test_searching_is_chosen_only_where_a_whole_dialogue_costs_less(tmp_path: Path) -> None:
    chosen: set[bool] = set()
    for words in (10, 100, 400):
        here = registry(tmp_path / str(words))
        here.add("s")
        for count in (1, 20, 40, 60, 200):
            here.sinks["s"].publish(snapshot_of(*many("s", count, words)))
            costs = here.discovery.listing.costs_of(here.router.catalog)
            searches = here.discovery.listing.searches(ME)
            assert searches == (costs.everything > max(costs.dialogue, costs.budget)), (count, words)
            chosen.add(searches)
    assert chosen == {True, False}


async def test_all_shows_everything_however_much_it_is(tmp_path: Path) -> None:
    here = registry(tmp_path, "all")
    here.serve("s", *many("s", 100))
    assert len(names(here)) == 100 + len(INFORMING)
    assert here.discovery.listing.listing(ME) is here.router.catalog.listing


async def test_search_shows_the_tools_to_search_with_however_few_there_are(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    here.serve("s", *many("s", 1))
    assert names(here) == SEARCHING


@pytest.mark.parametrize("client", ["claude-code", "Claude-Code", "trunkline", "trunkline-cli"])
async def test_clients_that_search_themselves_get_everything_in_auto(tmp_path: Path, client: str) -> None:
    here = registry(tmp_path)
    here.serve("s", *many("s", 100))
    assert len(names(here, Caller("local", "s2", client))) == 100 + len(INFORMING)


async def test_only_the_gateways_own_clients_get_everything_in_search(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    here.serve("s", *many("s", 100))
    assert names(here, Caller("local", "s2", "claude-code")) == SEARCHING
    assert len(names(here, Caller("local", "s3", "trunkline"))) == 100 + len(INFORMING)


async def test_the_list_of_clients_that_get_everything_can_be_set_with_patterns(tmp_path: Path) -> None:
    here = registry(tmp_path, search={"show_all_to": ("cursor*",)})
    here.serve("s", *many("s", 100))
    assert names(here, Caller("local", "s2", "claude-code")) == SEARCHING
    assert len(names(here, Caller("local", "s3", "cursor-vscode"))) == 100 + len(INFORMING)


async def test_without_tools_to_search_with_everything_is_shown(tmp_path: Path) -> None:
    here = Registry(tmp_path, shown=False, gateway={"disclosure": "auto"})
    here.serve("s", *many("s", 100))
    assert len(names(here)) == 100


async def test_pinned_tools_are_always_shown_by_name_address_or_pattern(tmp_path: Path) -> None:
    here = registry(tmp_path, "search", search={"pinned": ("s_t1", "s.t2", "other_*")})
    here.serve("s", *many("s", 5))
    here.serve("other", tool("other", "x"), tool("other", "y"))
    assert names(here) == [*SEARCHING, "s_t1", "s_t2", "other_x", "other_y"]


@pytest.mark.law
async def test_what_a_session_holds_is_shown_to_it_alone_with_the_servers_own_definition(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    here.serve("s", *many("s", 5))
    here.discovery.provisioning.of(ME).add_found("s.t3", 10)
    assert names(here) == [*SEARCHING, "s_t3"]
    assert names(here, Caller("local", "s2")) == SEARCHING
    shown = json.loads(here.discovery.listing.listing(ME))[-1]
    assert shown == {**json.loads(many("s", 5)[3].definition), "name": "s_t3"}


async def test_a_list_is_the_same_object_until_it_changes(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    here.serve("s", *many("s", 5))
    listing = here.discovery.listing.listing
    assert listing(ME) is listing(ME)
    here.discovery.provisioning.of(ME).add_found("s.t3", 10)
    first = listing(ME)
    assert listing(ME) is first
    here.serve("other", tool("other", "x"))
    assert listing(ME) == first


async def test_tools_of_a_server_that_is_away_come_back_with_it(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    here.serve("s", *many("s", 5), grace_s=0.0)
    here.discovery.provisioning.of(ME).add_found("s.t3", 10)
    here.health("s", "down")
    here.router.catalog.hide("s", True)
    assert names(here) == SEARCHING
    here.router.catalog.hide("s", False)
    assert names(here) == [*SEARCHING, "s_t3"]


async def test_a_server_that_goes_down_does_not_make_a_long_list_of_a_short_one(tmp_path: Path) -> None:
    here = registry(tmp_path)
    here.serve("s", *many("s", 100))
    here.serve("small", tool("small", "x"))
    here.router.catalog.hide("s", True)
    assert names(here) == SEARCHING


async def test_new_settings_change_what_is_shown(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    here.serve("s", *many("s", 5))
    changes: list[None] = []
    here.discovery.provisioning.on_change.append(lambda: changes.append(None))
    here.discovery.adopt(GatewaySettings(disclosure="all", state_dir=tmp_path))
    assert len(names(here)) == 5 + len(INFORMING)
    assert changes


async def test_a_renamed_tool_costs_and_shows_its_own_name(tmp_path: Path) -> None:
    here = registry(tmp_path, "search", search={"pinned": ("s_nice",)})
    here.serve("s", tool("s", "ugly", "does something"), rules=NameRules(prefix="s", rename={"ugly": "nice"}))
    assert names(here) == [*SEARCHING, "s_nice"]


async def test_the_tools_to_search_with_cost_a_few_hundred_tokens(tmp_path: Path) -> None:
    here = registry(tmp_path, "search")
    assert here.discovery.listing.costs_of(here.router.catalog).search < 500
    assert len(here.discovery.listing.listing(ME)) < 2000


async def test_a_tool_whose_name_is_anothers_is_in_no_list(tmp_path: Path) -> None:
    here = registry(tmp_path, "search", search={"pinned": ("b.*",)})
    for source in ("a", "b"):
        here.serve(source, tool(source, "x"), rules=NameRules(prefix="same"))
    held = here.discovery.provisioning.of(ME)
    for address in ("a.x", "b.x"):
        held.add_found(address, 1)
    assert names(here) == [*SEARCHING, "same_x"]


async def test_what_nobody_searches_is_not_prepared_for_searches(tmp_path: Path) -> None:
    here = registry(tmp_path)
    here.serve("s", *many("s", 100))
    prepared: list[object] = []
    here.discovery.listing.on_search = prepared.append
    names(here, Caller("local", "s2", "claude-code"))
    assert here.discovery.listing.varies(ME)
    assert not prepared
    names(here)
    names(here)
    assert prepared == [here.router.catalog]
