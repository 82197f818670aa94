"""For any tool names of servers, exposed names are valid and unique, and every accepted spelling finds its tool."""

from __future__ import annotations

import re
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunks import examples, steady

from trunkline.core.names import exposed_name, is_source_name, slug, spellings, split_address
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.router.options import NameRules

often = settings(steady, max_examples=examples(200))
EXPOSABLE = re.compile(r"[A-Za-z0-9_-]+")

tools = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable())
sources = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)
prefixes = st.just("") | sources


@steady
@given(prefixes, tools, sources, st.integers(16, 128), st.booleans())
def test_an_exposed_name_has_only_allowed_characters_and_fits(
    prefix: str, tool: str, source: str, limit: int, hashed: bool
) -> None:
    name = exposed_name(prefix, tool, f"{source}.{tool}", limit, force_hash=hashed)
    assert EXPOSABLE.fullmatch(name)
    assert len(name) <= limit
    assert name == exposed_name(prefix, tool, f"{source}.{tool}", limit, force_hash=hashed)


@steady
@given(sources, tools)
def test_an_address_comes_apart_at_its_first_dot(source: str, tool: str) -> None:
    assert split_address(f"{source}.{tool}") == (source, tool)


@steady
@given(st.text(max_size=30))
def test_a_slug_is_always_a_source_name(text: str) -> None:
    assert is_source_name(slug(text))


# A catalog of clashing names -----------------------------------------------------------------------------------------

PARTS = ("a", "b", "a_b", "a.b", "a-b", "a:b", "b_a", "x" * 40, "x" * 39 + ".", "_", "a__b", "é")


class Scene:
    """Sources and tools whose names clash in every way, from one seed."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.naming = random.choice(("prefixed", "prefixed", "original"))
        self.max_name = random.choice((16, 24, 48))
        names = random.sample(("a", "b", "a_b", "a-b", "b_a", "_"), random.randrange(1, 5))
        self.rules = {name: NameRules(prefix=random.choice((name, name, "", "a", "p"))) for name in names}
        self.snapshots = {name: Snapshot(tools=self._tools(random, name)) for name in names}
        self.order = random.sample(names, len(names))

    def _tools(self, random: Random, source: str) -> tuple[ToolDefinition, ...]:
        names = random.sample(PARTS, random.randrange(0, 6))
        return tuple(
            ToolDefinition(source, name, msgspec.json.encode({"name": name, "from": source})) for name in names
        )

    def catalog(self, order: list[str]) -> Catalog:
        catalog = Catalog(self.naming, self.max_name, lambda: None)
        for name, rules in self.rules.items():
            catalog.add_source(name, rules)
        for name in order:
            catalog.replace(name, self.snapshots[name])
        return catalog

    def entries(self, catalog: Catalog) -> list[ToolEntry]:
        """Every tool, in the order of the file, found by its address."""
        found = [catalog.find(tool.address) for name in self.rules for tool in self.snapshots[name].tools]
        return [entry for entry in found if entry is not None]


scenes = st.integers(0, 2**64).map(Scene)


@often
@given(scenes)
def test_no_two_listed_tools_share_a_name_and_all_names_are_allowed(scene: Scene) -> None:
    listed = [tool["name"] for tool in msgspec.json.decode(scene.catalog(scene.order).listing)]
    assert len(set(listed)) == len(listed)
    assert all(EXPOSABLE.fullmatch(name) and len(name) <= scene.max_name for name in listed)


@often
@given(scenes)
def test_the_list_does_not_depend_on_the_order_in_which_servers_come_up(scene: Scene) -> None:
    one, other = scene.catalog(scene.order), scene.catalog(list(scene.rules))
    assert one.listing == other.listing
    assert [entry.exposed for entry in scene.entries(one)] == [entry.exposed for entry in scene.entries(other)]
    assert [problem.message for problem in one.collisions] == [problem.message for problem in other.collisions]


@often
@given(scenes)
def test_a_tool_without_a_name_is_reported_and_one_with_a_name_is_listed(scene: Scene) -> None:
    catalog = scene.catalog(scene.order)
    nameless = [entry.tool for entry in scene.entries(catalog) if entry.exposed is None]
    assert [(problem.source, problem.tool) for problem in catalog.collisions] == [(t.source, t.name) for t in nameless]
    assert len(msgspec.json.decode(catalog.listing)) + len(nameless) == len(scene.entries(catalog))


@often
@given(scenes)
def test_exposed_names_and_addresses_always_find_their_own_tool(scene: Scene) -> None:
    catalog = scene.catalog(scene.order)
    for tool in (tool for snapshot in scene.snapshots.values() for tool in snapshot.tools):
        entry = catalog.find(tool.address)
        assert entry is not None
        assert entry.tool is tool
        assert catalog.find(f"trunkline.{entry.tool.address}") is entry
        if entry.exposed is not None:
            assert catalog.find(entry.exposed) is entry
            assert catalog.find(f"toolhive-gateway.{entry.exposed}") is entry


@often
@given(scenes)
def test_every_other_spelling_finds_a_tool_that_is_spelled_so(scene: Scene) -> None:
    catalog = scene.catalog(scene.order)
    for entry in scene.entries(catalog):
        for spelling in (*spellings(entry.tool.source, entry.tool.name), entry.tool.name):
            found = catalog.find(spelling)
            if found is None:
                assert spelling == entry.tool.name
                assert sum(other.tool.name == spelling for other in scene.entries(catalog)) > 1
            elif found is not entry:
                ways = (*spellings(found.tool.source, found.tool.name), found.tool.name, found.exposed)
                assert spelling in ways
