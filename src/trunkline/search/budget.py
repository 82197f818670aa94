"""What the tools of a catalog cost to show: each server, each tool, and every mode of disclosure, in tokens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

from trunkline.core.names import RESERVED_SOURCE
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.search.answers import Answer
from trunkline.search.discovery import Discovery
from trunkline.search.token_costs import Costs, TokenCosts, listed

_STEP_S: Final = 0.002


def budget(discovery: Discovery, catalog: Catalog) -> Answer:
    """The dearest first. `shown` is what clients see that have no search of their own."""
    disclosure = discovery.listing
    costs = disclosure.costs_of(catalog)
    entries = listed(catalog)
    tokens = [disclosure.costs.of(entry) for entry in entries]
    tools: list[Answer] = [
        {"tool_id": entry.public_name, "server": entry.source, "tokens": cost}
        for entry, cost in zip(entries, tokens, strict=True)
    ]
    auto = _auto(costs, searchable=any(entry.source == RESERVED_SOURCE for entry in entries))
    return {
        "servers": _servers(entries, tokens),
        "tools": sorted(tools, key=lambda tool: -tool["tokens"]),
        "modes": {
            "all": {"tokens": costs.everything},
            "search": {"tokens": costs.search, "dialogue": costs.dialogue},
            "auto": auto,
        },
        "disclosure": disclosure.setting,
        "shown": auto["chosen"] if disclosure.setting == "auto" else disclosure.setting,
        "context_tokens": costs.budget,
    }


def when_counted(discovery: Discovery, catalog: Catalog, then: Callable[[], None]) -> None:
    """Count the tokens of every tool, a few at a time in between other work, so that `budget` is quick to tell."""
    _count(discovery.listing.costs, iter(catalog.entries(hidden=True)), then)


def _count(costs: TokenCosts, entries: Iterator[ToolEntry], then: Callable[[], None]) -> None:
    until = perf_counter() + _STEP_S
    for entry in entries:
        costs.of(entry)
        if perf_counter() > until:
            asyncio.get_running_loop().call_soon(_count, costs, entries, then)
            return
    then()


def _servers(entries: list[ToolEntry], tokens: list[int]) -> list[Answer]:
    numbers = Counter(entry.source for entry in entries)
    sums: Counter[str] = Counter()
    for entry, cost in zip(entries, tokens, strict=True):
        sums[entry.source] += cost
    return [{"name": server, "tools": numbers[server], "tokens": cost} for server, cost in sums.most_common()]


def _auto(costs: Costs, *, searchable: bool) -> Answer:
    everything, dialogue, budget = costs.everything, costs.dialogue, costs.budget
    if not searchable:
        return {"chosen": "all", "why": "`meta_tools` is off, so there is nothing to search with"}
    if costs.chosen == "search":
        why = f"the whole list is over `context_tokens` ({budget:,}), and a search costs {dialogue:,} at most"
    elif everything <= budget:
        why = f"the whole list is within `context_tokens` ({budget:,})"
    else:
        why = f"a search may cost {dialogue:,}, which is no less than the whole list"
    return {"chosen": costs.chosen, "why": why}
