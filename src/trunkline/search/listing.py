"""What a client's list of tools shows: everything there is, or the tools to search with and those they brought.

This is what `gateway.disclosure` decides. What may be called is another matter: a tool that is not listed can be called
all the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Any, Final
from weakref import WeakKeyDictionary

from trunkline.config.settings import GatewaySettings
from trunkline.core.call import Caller
from trunkline.core.names import RESERVED_SOURCE
from trunkline.router.catalog import Catalog, ToolEntry, shown_definition
from trunkline.router.router import Router
from trunkline.search.finder import ToolPatterns
from trunkline.search.own_tool_definitions import SEARCHING
from trunkline.search.provisioning import ProvisionedTools, Provisioning
from trunkline.search.token_costs import ListCosts, Mode, TokenCosts, listed

_OWN_CLIENTS: Final = "trunkline"
"""Commands, and other gateways of ours: they show or search the whole list themselves."""
_STEP_S: Final = 0.002


class _CatalogListing:
    """What clients are shown of one catalog, for as long as it and the settings stay as they are."""

    def __init__(self, version: tuple[int, int], always: list[ToolEntry], mode: Mode) -> None:
        self.version = version
        self.always = always
        self.mode: Mode = mode
        self.is_searched = False
        self.listing = _as_json(always)
        self.of_sessions: WeakKeyDictionary[ProvisionedTools, tuple[int, bytes]] = WeakKeyDictionary()


class ClientListing:
    """Decides for each client between the whole list and the tools to search with, and makes its `tools/list`."""

    def __init__(self, router: Router, settings: GatewaySettings, provisioning: Provisioning) -> None:
        self.costs = TokenCosts()
        self.on_search: Callable[[Catalog], None] | None = None
        """Called with a catalog that a client will search, once for each of its versions."""
        self._router = router
        self._settings = settings
        self._pinned = ToolPatterns(settings.search.pinned)
        self._settings_version = 0
        self._provisioning = provisioning
        self._listings: WeakKeyDictionary[Catalog, _CatalogListing] = WeakKeyDictionary()

    def adopt(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._pinned = ToolPatterns(settings.search.pinned)
        self._settings_version += 1

    def searches(self, caller: Caller) -> bool:
        """Whether this client is shown tools to search with in place of the whole list."""
        if self._settings.disclosure == "all":
            return False
        catalog = self._router.views.of(caller)
        return self._mode(caller, catalog, self._of(catalog)) == "search"

    def varies(self, caller: Caller) -> bool:
        """Whether clients are shown different tools."""
        return self._settings.disclosure != "all" and self._of(self._router.views.of(caller)).mode == "search"

    def listing(self, caller: Caller) -> bytes:
        """`tools/list`'s array for this client: the same object until it changes."""
        catalog = self._router.views.of(caller)
        if self._settings.disclosure == "all":
            return catalog.listing
        shown = self._of(catalog)
        if self._mode(caller, catalog, shown) == "all":
            return catalog.listing
        held = self._provisioning.existing(caller)
        if held is None or not (held.requested or held.found):
            return shown.listing
        kept = shown.of_sessions.get(held)
        if kept is None or kept[0] != held.version:
            found = (catalog.find(address) for address in held.listed())
            # A tool whose name is another's cannot be listed: it is executed by its address, which no model API takes
            # for the name of a tool.
            entries = [entry for entry in found if entry is not None and entry.exposed is not None]
            brought = [e for e in entries if not catalog.is_hidden(e.source) and e not in shown.always]
            kept = (held.version, _as_json([*shown.always, *brought]))
            shown.of_sessions[held] = kept
        return kept[1]

    def is_pinned(self, entry: ToolEntry) -> bool:
        return self._pinned.fit(entry.tool, entry.exposed)

    def _of(self, catalog: Catalog) -> _CatalogListing:
        version = (catalog.version, self._settings_version)
        shown = self._listings.get(catalog)
        if shown is None or shown.version != version:
            always = self._always(catalog)
            mode: Mode = "search"
            if not any(entry.source == RESERVED_SOURCE for entry in always):
                mode = "all"  # there is nothing to search with
            elif self._settings.disclosure != "search":
                mode = self.costs.chosen(catalog, always, self._settings.context_tokens)
            shown = self._listings[catalog] = _CatalogListing(version, always, mode)
            self.costs.forget_all_but(catalog.entries(hidden=True))
        return shown

    def _mode(self, caller: Caller, catalog: Catalog, shown: _CatalogListing) -> Mode:
        settings = self._settings
        if settings.disclosure == "all" or shown.mode == "all" or caller.client.startswith(_OWN_CLIENTS):
            return "all"
        client = caller.client.casefold()
        if settings.disclosure == "auto" and any(
            fnmatchcase(client, name.casefold()) for name in settings.search.show_all_to
        ):
            return "all"
        if not shown.is_searched and self.on_search is not None:
            shown.is_searched = True
            self.on_search(catalog)
        return "search"

    def _always(self, catalog: Catalog) -> list[ToolEntry]:
        """The tools to search with, and those that are pinned."""
        entries = catalog.entries()
        searching = [entry for entry in entries if entry.source == RESERVED_SOURCE and entry.name in SEARCHING]
        if not self._settings.search.pinned:
            return searching
        others = (entry for entry in entries if entry.source != RESERVED_SOURCE and entry.exposed is not None)
        return searching + [entry for entry in others if self.is_pinned(entry)]

    # -- what showing tools costs ---------------------------------------------------------------------------------

    def costs_of(self, catalog: Catalog) -> ListCosts:
        return self.costs.of_catalog(catalog, self._always(catalog), self._settings.context_tokens)

    def budget(self, catalog: Catalog) -> dict[str, Any]:
        """What each server, each tool and each mode costs in tokens, most expensive first.

        `shown` is the mode of clients that have no search of their own."""
        setting = self._settings.disclosure
        costs = self.costs_of(catalog)
        entries = listed(catalog)
        numbers = Counter(entry.source for entry in entries)
        by_server: Counter[str] = Counter()
        tools: list[dict[str, Any]] = []
        for entry in entries:
            tokens = self.costs.of(entry)
            by_server[entry.source] += tokens
            tools.append({"tool_id": entry.public_name, "server": entry.source, "tokens": tokens})
        chosen, why = costs.choice(searchable=RESERVED_SOURCE in numbers)
        return {
            "servers": [
                {"name": server, "tools": numbers[server], "tokens": tokens}
                for server, tokens in by_server.most_common()
            ],
            "tools": sorted(tools, key=lambda tool: -tool["tokens"]),
            "modes": {
                "all": {"tokens": costs.everything},
                "search": {"tokens": costs.search, "dialogue": costs.dialogue},
                "auto": {"chosen": chosen, "why": why},
            },
            "disclosure": setting,
            "shown": chosen if setting == "auto" else setting,
            "context_tokens": costs.budget,
        }

    def when_counted(self, catalog: Catalog, then: Callable[[], None]) -> None:
        """Count the tokens of every tool, a few at a time in between other work, so that `budget` is fast."""
        self._count(iter(catalog.entries(hidden=True)), then)

    def _count(self, entries: Iterator[ToolEntry], then: Callable[[], None]) -> None:
        until = perf_counter() + _STEP_S
        for entry in entries:
            self.costs.of(entry)
            if perf_counter() > until:
                asyncio.get_running_loop().call_soon(self._count, entries, then)
                return
        then()


def _as_json(entries: Iterable[ToolEntry]) -> bytes:
    return b"[%b]" % b",".join(map(shown_definition, entries))
