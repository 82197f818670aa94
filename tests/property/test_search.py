"""Any definitions can be indexed and any query searched, explained and counted."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.tool import ToolDefinition
from trunkline.search.index.catalog_index import SegmentCache, ServerTools
from trunkline.search.provisioning import ProvisionedTools
from trunkline.search.token_costs import tokens_of

MEMBERS = ("name", "title", "description", "inputSchema", "annotations", "_meta", "tags", "keywords", "properties")
MEMBERS += ("type", "items", "anyOf", "enum", "required", "readOnlyHint", "$ref", "x")
texts = st.sampled_from(["", "a b", "\x00\x1b", "e\u0300\u202e", "\U0001f600", "aB1cD2" * 20, "." * 50, "__", "get"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(MEMBERS) | texts, inner, max_size=5),
    max_leaves=20,
)
definitions = st.dictionaries(st.sampled_from(MEMBERS), values, max_size=10)


def tool(number: int, definition: dict[str, Any]) -> ToolDefinition:
    name = f"tool_{number}"
    return ToolDefinition("server", name, json.dumps({**definition, "name": name}).encode())


@given(st.lists(definitions, max_size=4), texts | st.text(), st.lists(texts | st.text(), max_size=3))
def test_anything_is_indexed_searched_and_explained(offered: list[Any], query: str, tags: list[str]) -> None:
    tools = [tool(number, definition) for number, definition in enumerate(offered)]
    index = SegmentCache().begin(
        [ServerTools("server", query, tuple((each, each.name, tuple(tags)) for each in tools))]
    )
    index.finish()
    assert index.ready
    hits = index.search(query, None)
    assert len({hit.position for hit in hits}) == len(hits) <= len(tools)
    assert all(math.isfinite(hit.score) for hit in hits)
    assert all(math.isfinite(index.explain(query, hit).score) for hit in hits)
    assert set(index.tagged(tags)) <= set(range(len(tools)))
    assert hits == index.search(query, None)


@given(definitions)
def test_the_tokens_of_anything_are_counted(definition: dict[str, Any]) -> None:
    assert tokens_of(tool(1, definition).definition) > 0


steps = st.tuples(st.sampled_from(["find", "ask", "take", "budget"]), st.integers(0, 9), st.integers(1, 120))


@given(st.lists(steps, max_size=40))
def test_what_a_session_holds_is_within_its_budget_and_may_be_executed(taken: list[tuple[str, int, int]]) -> None:
    held = ProvisionedTools(100)
    for step, number, tokens in taken:
        address, cost = f"server.tool_{number}", 7 + 11 * number
        if step == "find" and cost <= held.room:
            held.add_found(address, cost)
        elif step == "ask":
            assert held.add_requested(address, cost) == (address in held.requested)
        elif step == "take":
            held.remove(address)
            assert address not in held.granted
        elif step == "budget":
            held.set_budget(tokens)
        assert not held.found or held.tokens <= held.budget
        assert set(held.listed()) <= held.granted.keys()
        assert not held.requested.keys() & held.found.keys()
