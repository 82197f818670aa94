"""What it costs a client to see tools: the tokens of each, of a whole catalog, and of searching in place of that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, Literal

from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import Tool
from trunkline.router.catalog import Catalog, ToolEntry, shown_definition
from trunkline.search.offer import SEARCHING
from trunkline.search.tokens import tokens_of

FOUND: Final = 5
"""How many tools a search returns unless it is asked for another number."""
_LISTED_TWICE: Final = 2
"""Before tools are found and once they are there."""
_SPARE: Final = 1000
Mode = Literal["all", "search"]


@dataclass(frozen=True, slots=True)
class Costs:
    """In tokens. `everything` is the whole list, `search` the list of a client that has found nothing yet, and
    `dialogue` the most that one search costs: both lists, and what was found in the answer and in the second list."""

    everything: int
    search: int
    dialogue: int
    budget: int

    @property
    def chosen(self) -> Mode:
        """Searching has to be cheaper for certain, and the whole list more than a session should hold."""
        return "search" if self.everything > max(self.budget, self.dialogue) else "all"


class TokenCosts:
    """Tokens of tools, worked out once for each definition."""

    def __init__(self) -> None:
        self._known: dict[Tool, int] = {}

    def of(self, entry: ToolEntry) -> int:
        tokens = self._known.get(entry.tool)
        if tokens is None:
            tokens = self._known[entry.tool] = tokens_of(shown_definition(entry))
        return tokens

    def forget_all_but(self, entries: Collection[ToolEntry]) -> None:
        """Once there are far more than are in use."""
        known = self._known
        if len(known) > 2 * len(entries) + _SPARE:
            self._known = {entry.tool: known[entry.tool] for entry in entries if entry.tool in known}

    def of_catalog(self, catalog: Catalog, always: list[ToolEntry], budget: int) -> Costs:
        """`always` are the tools that a client sees which searches."""
        entries = listed(catalog)
        base = sum(map(self.of, always))
        dearest = sum(nlargest(FOUND, (self.of(entry) for entry in entries if entry.source != RESERVED_SOURCE)))
        return Costs(
            everything=sum(map(self.of, entries)),
            search=base,
            dialogue=_dialogue(base, dearest, budget),
            budget=budget,
        )

    def chosen(self, catalog: Catalog, always: list[ToolEntry], budget: int) -> Mode:
        """As `Costs.chosen`, without reading thousands of definitions to know that they are many."""
        certain = _dialogue(sum(map(self.of, always)), budget, budget)
        total = 0
        for entry in listed(catalog):
            total += self.of(entry)
            if total > max(certain, budget):
                return "search"
        return self.of_catalog(catalog, always, budget).chosen


def _dialogue(base: int, found: int, budget: int) -> int:
    return _LISTED_TWICE * (base + min(found, budget))


def listed(catalog: Catalog) -> list[ToolEntry]:
    """What a whole list shows, those of servers that are down just now too: a list that changes its nature whenever a
    server comes and goes would help nobody."""
    entries = [entry for entry in catalog.entries(hidden=True) if entry.exposed is not None]
    return [entry for entry in entries if entry.source != RESERVED_SOURCE or entry.name not in SEARCHING]
