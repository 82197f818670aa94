from __future__ import annotations

import json

from tests.unit.router.fakes import full_snapshot, item

from trunkline.core.tool import Snapshot
from trunkline.router.catalog import Catalog
from trunkline.router.options import NameRules


def catalog_of(naming: str = "prefixed", max_name: int = 48, **sources: Snapshot) -> Catalog:
    catalog = Catalog(naming, max_name, lambda: None)
    for name, snapshot in sources.items():
        catalog.add_source(name, NameRules(prefix=name))
        catalog.replace(name, snapshot)
    return catalog


def names(catalog: Catalog) -> list[str]:
    return [prompt["name"] for prompt in json.loads(catalog.prompts.listing)]


def found(catalog: Catalog, name: str) -> tuple[str, str] | None:
    entry = catalog.prompts.find(name)
    return None if entry is None else (entry.source, entry.name)


def test_prompts_are_listed_under_the_prefix_of_their_server_in_the_order_of_the_file() -> None:
    catalog = catalog_of(b=full_snapshot("b", prompts=["one"]), a=full_snapshot("a", prompts=["two", "one"]))
    assert names(catalog) == ["b_one", "a_two", "a_one"]


def test_every_spelling_of_a_tools_name_will_do_for_a_prompt() -> None:
    catalog = catalog_of(a=full_snapshot("a", prompts=["x.y"]))
    for spelling in ("a_x_y", "a.x.y", "a_x.y", "a__x.y", "a:x.y", "x.y", "trunkline.a.x.y"):
        assert found(catalog, spelling) == ("a", "x.y"), spelling
    assert found(catalog, "a_z") is None


def test_without_prefixes_the_first_server_keeps_a_name_and_the_other_goes_by_its_address() -> None:
    catalog = catalog_of("plain", a=full_snapshot("a", prompts=["p"]), b=full_snapshot("b", prompts=["p"]))
    assert names(catalog) == ["p"]
    assert found(catalog, "p") == ("a", "p")
    assert found(catalog, "b.p") == ("b", "p")
    assert [problem.source for problem in catalog.prompts.collisions] == ["b"]
    assert catalog.prompts.addresses_of("p") == ["a.p", "b.p"]


def test_a_prompt_and_a_tool_of_one_name_do_not_collide() -> None:
    catalog = catalog_of("plain", a=full_snapshot("a", prompts=["p"], tools=["p"]))
    assert names(catalog) == ["p"]
    assert not catalog.collisions
    assert not catalog.prompts.collisions


def test_long_names_are_cut_with_a_hash() -> None:
    catalog = catalog_of(max_name=24, a=full_snapshot("a", prompts=["x" * 60]))
    [name] = names(catalog)
    assert len(name) == 24
    assert found(catalog, name) == ("a", "x" * 60)


def test_everything_but_the_name_is_as_the_server_wrote_it() -> None:
    raw = item("a", "name", "p", title="é", big=12345678901234567890123)
    catalog = catalog_of(a=Snapshot(prompts=(raw,)))
    assert catalog.prompts.listing == b"[" + raw.definition.replace(b'"name":"p"', b'"name":"a_p"') + b"]"


def test_prompts_of_a_server_that_is_away_are_found_and_not_listed() -> None:
    catalog = catalog_of(a=full_snapshot("a", prompts=["p"]), b=full_snapshot("b", prompts=["q"]))
    catalog.hide("a", True)
    assert names(catalog) == ["b_q"]
    assert found(catalog, "a_p") == ("a", "p")


def test_a_change_is_seen_by_whoever_looks_next() -> None:
    catalog = catalog_of(a=full_snapshot("a", prompts=["p"]))
    assert names(catalog) == ["a_p"]
    catalog.replace("a", full_snapshot("a", prompts=["q"]))
    assert names(catalog) == ["a_q"]
    assert names(catalog.overlaid({"a": full_snapshot("a", prompts=["r"])})) == ["a_r"]
    assert names(catalog) == ["a_q"]
