"""What a client's list of tools shows: everything there is, or the tools to search with and what they brought.

What may be called is another matter: a tool that is not shown can be called all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Final
from weakref import WeakKeyDictionary

from trunkline.config.settings import GatewaySettings
from trunkline.core.call import Caller
from trunkline.core.names import RESERVED_SOURCE
from trunkline.router.catalog import Catalog, ToolEntry, shown_definition
from trunkline.router.router import Router
from trunkline.search.finder import ToolPatterns
from trunkline.search.own_tool_definitions import SEARCHING
from trunkline.search.provisioning import ProvisionedTools, Provisioning
from trunkline.search.token_costs import Costs, Mode, TokenCosts

_OWN_CLIENTS: Final = "trunkline"
"""Commands, and other gateways of ours: they show or search the whole list themselves."""


class _CatalogListing:
    """What clients are shown of one catalog, for as long as it and the settings stay as they are."""

    __slots__ = ("always", "is_searched", "listing", "mode", "of_sessions", "version")

    def __init__(self, version: tuple[int, int], always: list[ToolEntry], mode: Mode) -> None:
        self.version = version
        self.always = always
        self.mode: Mode = mode
        self.is_searched = False
        self.listing = _listing(always)
        self.of_sessions: WeakKeyDictionary[ProvisionedTools, tuple[int, bytes]] = WeakKeyDictionary()


class ClientListing:
    def __init__(self, router: Router, settings: GatewaySettings, provisioning: Provisioning) -> None:
        self.costs = TokenCosts()
        self.on_search: Callable[[Catalog], None] | None = None
        """Told of a catalog that a client will search, once for each of its versions."""
        self._router = router
        self._settings = settings
        self._pinned = ToolPatterns(settings.search.pinned)
        self._settings_version = 0
        self._provisioning = provisioning
        self._shown: WeakKeyDictionary[Catalog, _CatalogListing] = WeakKeyDictionary()

    def adopt(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._pinned = ToolPatterns(settings.search.pinned)
        self._settings_version += 1

    @property
    def setting(self) -> str:
        return self._settings.disclosure

    def searches(self, caller: Caller) -> bool:
        """Whether this client is shown tools to search with in place of a list of all."""
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
        held = self._provisioning.seen_by(caller)
        if held is None or not (held.asked or held.found):
            return shown.listing
        kept = shown.of_sessions.get(held)
        if kept is None or kept[0] != held.version:
            found = (catalog.find(address) for address in held.listed())
            entries = [entry for entry in found if entry is not None and _has_name(entry, catalog)]
            kept = (held.version, _listing([*shown.always, *(each for each in entries if each not in shown.always)]))
            shown.of_sessions[held] = kept
        return kept[1]

    def is_pinned(self, entry: ToolEntry) -> bool:
        return self._pinned.fit(entry.tool, entry.exposed)

    def costs_of(self, catalog: Catalog) -> Costs:
        return self.costs.of_catalog(catalog, self._always(catalog), self._settings.context_tokens)

    def _of(self, catalog: Catalog) -> _CatalogListing:
        version = (catalog.version, self._settings_version)
        shown = self._shown.get(catalog)
        if shown is None or shown.version != version:
            always = self._always(catalog)
            shown = self._shown[catalog] = _CatalogListing(version, always, self._chosen(catalog, always))
            self.costs.forget_all_but(catalog.entries(hidden=True))
        return shown

    def _chosen(self, catalog: Catalog, always: list[ToolEntry]) -> Mode:
        settings = self._settings
        if not any(entry.source == RESERVED_SOURCE for entry in always):
            return "all"  # there is nothing to search with
        if settings.disclosure == "search":
            return "search"
        return self.costs.chosen(catalog, always, settings.context_tokens)

    def _mode(self, caller: Caller, catalog: Catalog, shown: _CatalogListing) -> Mode:
        settings = self._settings
        if settings.disclosure == "all" or shown.mode == "all" or caller.client.startswith(_OWN_CLIENTS):
            return "all"
        if settings.disclosure == "auto" and _named(caller.client, settings.search.show_all_to):
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


def _has_name(entry: ToolEntry, catalog: Catalog) -> bool:
    """Whether a list can show it. One whose name is another's is executed by its address, which no model API takes for
    the name of a tool."""
    return entry.exposed is not None and not catalog.is_hidden(entry.source)


def _named(client: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(client.casefold(), name.casefold()) for name in names)


def _listing(entries: Iterable[ToolEntry]) -> bytes:
    return b"[%b]" % b",".join(map(shown_definition, entries))
