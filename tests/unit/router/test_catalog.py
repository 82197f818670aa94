from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.fault.tools import FANCY

from trunkline.core.errors import NAME_COLLISION
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.catalog import Catalog
from trunkline.router.options import NameRules


def tool(source: str, name: str, definition: bytes | None = None) -> ToolDefinition:
    return ToolDefinition(source, name, json.dumps({"name": name}).encode() if definition is None else definition)


def tools_snapshot(source: str, *names: str) -> Snapshot:
    return Snapshot(tools=tuple(tool(source, name) for name in names))


def catalog_of(
    tools: dict[str, list[str]],
    rules: dict[str, dict[str, Any]] | None = None,
    *,
    naming: str = "prefixed",
    max_name: int = 48,
    on_change: Callable[[], None] = lambda: None,
) -> Catalog:
    catalog = Catalog(naming, max_name, on_change)
    for source in tools:
        catalog.add_source(source, NameRules(**{"prefix": source, **(rules or {}).get(source, {})}))
    for source, names in tools.items():
        catalog.replace(source, tools_snapshot(source, *names))
    return catalog


def listed(catalog: Catalog) -> list[str]:
    return [definition["name"] for definition in json.loads(catalog.listing)]


def found(catalog: Catalog, name: str) -> str | None:
    entry = catalog.find(name)
    return None if entry is None else entry.tool.address


# What is listed ------------------------------------------------------------------------------------------------------


def test_tools_come_in_the_order_of_the_file_and_of_their_server() -> None:
    assert listed(catalog_of({"b": ["z", "a"], "a": ["y"]})) == ["b_z", "b_a", "a_y"]


def test_the_order_stays_when_the_first_source_is_the_last_to_come_up() -> None:
    catalog = Catalog("prefixed", 48, lambda: None)
    for source in ("one", "two", "three"):
        catalog.add_source(source, NameRules(prefix=source))
    for source in ("three", "two", "one"):
        catalog.replace(source, tools_snapshot(source, "t"))
    assert listed(catalog) == ["one_t", "two_t", "three_t"]
    assert catalog.addresses_of("t") == ["one.t", "two.t", "three.t"]


def test_a_definition_keeps_every_byte_but_its_name() -> None:
    catalog = Catalog("prefixed", 48, lambda: None)
    catalog.add_source("s", NameRules(prefix="s"))
    catalog.replace("s", Snapshot(tools=(tool("s", "fancy", FANCY),)))
    assert catalog.listing == b"[%b]" % FANCY.replace(b'"name":"fancy"', b'"name":"s_fancy"', 1)


def test_a_definition_under_its_own_name_is_not_touched_at_all() -> None:
    odd = b'{ "x" : 1.10 , "name":"t","b":123456789012345678901234567890,\t"n" : {"name":"no"} }'
    catalog = Catalog("original", 48, lambda: None)
    catalog.add_source("s", NameRules(prefix="s"))
    catalog.replace("s", Snapshot(tools=(tool("s", "t", odd),)))
    assert catalog.listing == b"[%b]" % odd


def test_only_the_definitions_own_name_is_changed() -> None:
    nested = b'{"inputSchema":{"properties":{"name":{"const":"t"}},"name":"t"},"name":"t","title":"\\u0074"}'
    catalog = Catalog("prefixed", 48, lambda: None)
    catalog.add_source("s", NameRules(prefix="s"))
    catalog.replace("s", Snapshot(tools=(tool("s", "t", nested),)))
    assert catalog.listing == b"[%b]" % nested.replace(b'"name":"t","title"', b'"name":"s_t","title"')


def test_original_naming_leaves_the_prefix_off() -> None:
    assert listed(catalog_of({"s": ["read", "a.b"]}, naming="original")) == ["read", "a_b"]


def test_a_prefix_replaces_the_source_in_names_and_an_empty_one_is_left_out() -> None:
    catalog = catalog_of({"s": ["t"], "u": ["v"]}, {"s": {"prefix": "p"}, "u": {"prefix": ""}})
    assert listed(catalog) == ["p_t", "v"]


def test_names_longer_than_the_limit_are_cut_and_told_apart() -> None:
    names = ["x" * 60 + "1", "x" * 60 + "2"]
    exposed = listed(catalog_of({"s": names}, max_name=32))
    assert len(set(exposed)) == 2
    assert all(len(name) == 32 and name.startswith("s_xxxx") for name in exposed)


def test_allow_and_deny_take_patterns_of_the_servers_own_names() -> None:
    rules = {"s": {"allow": ["read_*", "write_x"], "deny": ["*_secret"]}}
    catalog = catalog_of({"s": ["read_a", "read_secret", "write_x", "write_y", "Read_b"]}, rules)
    assert listed(catalog) == ["s_read_a", "s_write_x"]
    for denied in ("s_read_secret", "s.read_secret", "s:write_y", "read_secret", "Read_b"):
        assert catalog.find(denied) is None


def test_a_renamed_tool_is_called_by_its_new_name_and_by_its_address() -> None:
    catalog = catalog_of({"s": ["old", "other"]}, {"s": {"rename": {"old": "new"}}})
    assert listed(catalog) == ["s_new", "s_other"]
    assert found(catalog, "s_new") == "s.old"
    assert found(catalog, "s.old") == "s.old"
    entry = catalog.find("s_new")
    assert entry is not None
    assert entry.params_head == b'{"name":"old"'


def test_the_server_is_called_by_its_own_name_for_a_tool() -> None:
    catalog = catalog_of({"s": ['we"ird\n.näme']})
    entry = catalog.find(listed(catalog)[0])
    assert entry is not None
    assert json.loads(entry.params_head + b"}") == {"name": 'we"ird\n.näme'}


# Changes -------------------------------------------------------------------------------------------------------------


def test_every_change_is_told_and_the_same_snapshot_again_is_none() -> None:
    changes: list[int] = []
    catalog = Catalog("prefixed", 48, lambda: changes.append(1))
    catalog.add_source("s", NameRules(prefix="s"))
    catalog.replace("s", tools_snapshot("s", "a"))
    catalog.replace("s", tools_snapshot("s", "a"))
    assert len(changes) == 1
    catalog.replace("s", tools_snapshot("s", "a", "b"))
    assert listed(catalog) == ["s_a", "s_b"]
    catalog.replace("s", tools_snapshot("s"))
    assert catalog.listing == b"[]"
    assert catalog.find("s_a") is None
    assert len(changes) == 3


def test_a_hidden_source_is_not_listed_but_its_tools_are_still_found() -> None:
    changes: list[int] = []
    catalog = catalog_of({"s": ["a"], "u": ["b"]}, on_change=lambda: changes.append(1))
    changes.clear()
    catalog.hide("s", True)
    catalog.hide("s", True)
    assert listed(catalog) == ["u_b"]
    assert found(catalog, "s_a") == "s.a"
    catalog.hide("s", False)
    assert listed(catalog) == ["s_a", "u_b"]
    assert len(changes) == 2


# Collisions ----------------------------------------------------------------------------------------------------------


def test_names_that_fall_together_only_by_replacement_are_told_apart_by_a_hash() -> None:
    catalog = catalog_of({"s": ["a.b", "a_b", "a/b"]})
    exposed = listed(catalog)
    assert exposed[1] == "s_a_b"
    assert exposed[0].startswith("s_a_b_")
    assert exposed[2].startswith("s_a_b_")
    assert len(set(exposed)) == 3
    assert not catalog.collisions


def test_of_two_tools_with_truly_one_name_the_earlier_source_keeps_it() -> None:
    catalog = catalog_of({"a_b": ["c"], "a": ["b_c"]})
    assert listed(catalog) == ["a_b_c"]
    assert found(catalog, "a_b_c") == "a_b.c"
    (problem,) = catalog.collisions
    assert problem.code is NAME_COLLISION
    assert problem.severity == "warning"
    assert (problem.source, problem.tool) == ("a", "b_c")
    assert "`a.b_c`" in problem.message
    assert "`a_b.c`" in problem.message
    assert found(catalog, "a.b_c") == "a.b_c"


def test_the_order_of_the_file_decides_even_when_the_later_source_was_up_first() -> None:
    catalog = Catalog("original", 48, lambda: None)
    for source in ("first", "second"):
        catalog.add_source(source, NameRules(prefix=source))
    catalog.replace("second", tools_snapshot("second", "t"))
    assert found(catalog, "t") == "second.t"
    catalog.replace("first", tools_snapshot("first", "t"))
    assert found(catalog, "t") == "first.t"
    assert [problem.source for problem in catalog.collisions] == ["second"]
    catalog.replace("first", tools_snapshot("first"))
    assert found(catalog, "t") == "second.t"
    assert not catalog.collisions


def test_a_hidden_source_keeps_its_names() -> None:
    """Its tools come back; another server must not take over calls meant for it meanwhile."""
    catalog = catalog_of({"first": ["t"], "second": ["t"]}, naming="original")
    catalog.hide("first", True)
    assert listed(catalog) == []
    assert found(catalog, "t") == "first.t"


def test_a_hashed_name_that_another_tool_really_has_is_a_collision_too() -> None:
    hashed = listed(catalog_of({"s": ["a.b", "a_b"]}))[0]
    catalog = catalog_of({"s": [hashed.removeprefix("s_"), "a.b", "a_b"]})
    assert listed(catalog) == [hashed, "s_a_b"]
    assert [problem.tool for problem in catalog.collisions] == ["a.b"]
    assert found(catalog, "s.a.b") == "s.a.b"


# Spellings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "p_tool",
        "src.tool",
        "src_tool",
        "src__tool",
        "src:tool",
        "tool",
        "trunkline.p_tool",
        "trunkline.src.tool",
        "toolhive-gateway.src:tool",
        "toolhive-gateway.tool",
    ],
)
def test_every_accepted_spelling_finds_the_tool(name: str) -> None:
    assert found(catalog_of({"src": ["tool"], "other": ["else"]}, {"src": {"prefix": "p"}}), name) == "src.tool"


@pytest.mark.parametrize("name", ["", ".", "src.", "src", "src.tool.x", "SRC.tool", "src/tool", "x.src.tool", "p.tool"])
def test_other_spellings_find_nothing(name: str) -> None:
    assert catalog_of({"src": ["tool"], "other": ["else"]}, {"src": {"prefix": "p"}}).find(name) is None


def test_the_first_dot_of_an_address_ends_the_source() -> None:
    catalog = catalog_of({"a": ["b.c"], "x": ["c"]})
    assert found(catalog, "a.b.c") == "a.b.c"
    assert found(catalog, "b.c") == "a.b.c"
    assert found(catalog, "a.b") is None


def test_a_bare_name_is_taken_only_when_one_source_has_it() -> None:
    catalog = catalog_of({"a": ["same", "mine"], "b": ["same"]})
    assert catalog.find("same") is None
    assert found(catalog, "mine") == "a.mine"


def test_an_exposed_name_wins_over_every_other_spelling() -> None:
    catalog = catalog_of({"a": ["b_c"], "x": ["y"]}, {"x": {"rename": {"y": "c"}, "prefix": "a__b"}})
    assert found(catalog, "a__b_c") == "x.y"
    assert found(catalog, "a:b_c") == "a.b_c"


def test_an_address_wins_over_a_bare_name_with_a_dot() -> None:
    catalog = catalog_of({"a": ["b.t"], "b": ["t"]})
    assert found(catalog, "b.t") == "b.t"


# Names that are not known yet ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s.t", "s_t", "s__t", "s:t", "p_t", "trunkline.s.t"])
def test_a_source_that_may_have_an_unknown_name_is_told_by_how_it_begins(name: str) -> None:
    catalog = Catalog("prefixed", 48, lambda: None)
    catalog.add_source("s", NameRules(prefix="p"))
    catalog.add_source("other", NameRules(prefix="other"))
    assert catalog.sources_that_may_have(name) == ["s"]


def test_without_prefixes_any_source_may_have_any_name() -> None:
    original = Catalog("original", 48, lambda: None)
    bare = Catalog("prefixed", 48, lambda: None)
    for catalog, prefix in ((original, "s"), (bare, "")):
        catalog.add_source("s", NameRules(prefix=prefix))
        assert catalog.sources_that_may_have("anything") == ["s"]
