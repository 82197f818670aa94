"""Finds the tools of a catalog by what they do: each catalog is indexed in the background, in short steps.

What it takes to search is loaded with the first search, or once a client is shown tools to search with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.config.gateway import SearchSettings
from trunkline.core.names import without_own_prefix
from trunkline.core.tool import Tool
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.runtime.safe_calls import contained
from trunkline.search.answers import offered
from trunkline.search.engine import Engine
from trunkline.search.patterns import ToolPatterns

if TYPE_CHECKING:
    from trunkline.search.corpus import Collection, Explanation, Group, Hit, TagsOf
    from trunkline.search.numerics import Floats

_POLL_S: Final = 0.01
_OUTDATED: Final = -1
_REFRESH_S: Final = 0.2
KEPT: Final = 4
"""Most clients see the same catalog; one whose server shows it something else has its own."""


class Found(NamedTuple):
    """The tools that a query is about, best first."""

    entries: list[ToolEntry]
    hits: list[Hit]
    explain: Callable[[Hit], Explanation]


Then = Callable[[Found], None]


class _Indexed:
    """One catalog at one version, and who waits until it can be searched."""

    def __init__(
        self,
        catalog: Catalog,
        entries: list[ToolEntry],
        collection: Collection,
        waiting: list[Callable[[_Indexed], None]],
    ) -> None:
        self.catalog = catalog
        self.version = catalog.version
        self.entries = entries
        self.collection = collection
        self.working = True
        self.waiting = waiting

    @property
    def is_under_way(self) -> bool:
        return self.version != _OUTDATED and not self.collection.ready


class Finder:
    def __init__(self, settings: SearchSettings, state_dir: Path, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self._engine = Engine(
            semantic=settings.semantic, state_dir=state_dir, on_progress=self._more_is_known, note=note
        )
        self._kept: dict[Catalog, _Indexed] = {}
        self._refreshing: asyncio.TimerHandle | None = None

    def adopt(self, settings: SearchSettings) -> None:
        if self._engine.switch(semantic=settings.semantic) or settings.tags != self._settings.tags:
            for indexed in self._kept.values():
                indexed.version = _OUTDATED
        self._settings = settings

    def prepare(self, catalog: Catalog) -> None:
        """It will be searched soon."""
        self._engine.when_loaded(lambda: self._indexed(catalog))

    def search(self, catalog: Catalog, query: str, tags: Sequence[str], then: Then) -> None:
        """Until the meaning of tools is known, they are found by their words: no search waits for it."""
        self._engine.when_loaded(lambda: self._search_in(catalog, without_own_prefix(query), tags, then))

    async def settle(self, catalog: Catalog, timeout_s: float) -> None:
        """Until the meaning of every tool is known, for those who rather wait."""
        end = time.monotonic() + timeout_s
        self.prepare(catalog)
        while time.monotonic() < end and not (self._engine.closed or self._is_settled_in(catalog)):
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """No thread is left. Who still waits for a search is not answered any more."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self._engine.close()

    # -- indexing -------------------------------------------------------------------------------------------------

    def _indexed(self, catalog: Catalog) -> _Indexed:
        """As the catalog is now, or as it was when work began that is still under way: a catalog that changes all the
        time would never be searched otherwise."""
        indexed = self._kept.pop(catalog, None)
        if indexed is None or (indexed.version != catalog.version and not indexed.is_under_way):
            if indexed is not None:
                indexed.collection.stop()
            indexed = self._begin(catalog, [] if indexed is None else indexed.waiting)
        self._kept[catalog] = indexed
        self._make_room()
        return indexed

    def _make_room(self) -> None:
        """Those that nobody waits for go, the one searched longest ago first."""
        *others, _ = self._kept
        idle = [catalog for catalog in others if not self._kept[catalog].waiting]
        for catalog in idle[: max(0, len(self._kept) - KEPT)]:
            del self._kept[catalog]

    def _begin(self, catalog: Catalog, waiting: list[Callable[[_Indexed], None]]) -> _Indexed:
        entries = offered(catalog)
        corpus = self._engine.corpus
        assert corpus is not None
        collection = corpus.begin(_groups(catalog, entries), _tagging(self._settings.tags))
        indexed = _Indexed(catalog, entries, collection, waiting)
        self._go_on(indexed)
        return indexed

    def _go_on(self, indexed: _Indexed) -> None:
        """One step now, the others in between other work. One that is out of date is left alone: what it has read
        so far is there for the next."""
        current = self._kept.get(indexed.catalog, indexed)
        if self._engine.closed or current is not indexed:
            return
        try:
            indexed.working = indexed.collection.step()
        except Exception as problem:  # a bug of ours: the next search begins anew instead of waiting for this one
            indexed.version = _OUTDATED
            indexed.working = False
            self._note(f"The tools could not be indexed: {type(problem).__name__}: {problem}")
            return
        if indexed.working:
            asyncio.get_running_loop().call_soon(self._go_on, indexed)
        if indexed.collection.ready:
            waiting, indexed.waiting = indexed.waiting, []
            for then in waiting:
                asyncio.get_running_loop().call_soon(then, indexed)

    def _more_is_known(self) -> None:
        """Of what tools mean. It comes in many small pieces, and taking them over means looking at all."""
        if self._refreshing is None and not self._engine.closed:
            self._refreshing = asyncio.get_running_loop().call_later(_REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        self._refreshing = None
        for indexed in self._kept.values():
            if not contained("what is known of tools", self._refresh_one, indexed):
                indexed.version = _OUTDATED  # the next search begins anew

    def _refresh_one(self, indexed: _Indexed) -> None:
        indexed.collection.refresh()
        if not indexed.working:
            self._go_on(indexed)

    # -- searching ------------------------------------------------------------------------------------------------

    def _search_in(self, catalog: Catalog, query: str, tags: Sequence[str], then: Then) -> None:
        self._when_ready(catalog, catalog.version, lambda indexed: self._search(indexed, query, tags, then))

    def _when_ready(self, catalog: Catalog, version: int, then: Callable[[_Indexed], None]) -> None:
        """With an index that knows the catalog at this version or later."""

        def ready(indexed: _Indexed) -> None:
            if indexed.version >= version:
                then(indexed)
            else:  # what was under way began before, or with other settings; the next begins now
                self._engine.when_loaded(lambda: self._when_ready(catalog, version, then))

        indexed = self._indexed(catalog)
        if indexed.collection.ready:
            then(indexed)
        else:
            indexed.waiting.append(ready)

    def _search(self, indexed: _Indexed, query: str, tags: Sequence[str], then: Then) -> None:
        def rank(vector: Floats | None) -> None:
            then(self._found(indexed, query, vector, tags))

        vectors = self._engine.meaning
        if vectors is None or not self._engine.encoder_loaded:
            rank(None)
        else:
            vectors.query(query, rank)

    def _found(self, indexed: _Indexed, query: str, vector: Floats | None, tags: Sequence[str]) -> Found:
        from trunkline.search.hits import Hit

        collection = indexed.collection
        among = collection.tagged(tags) if tags else None
        if among is not None and not query:
            hits = [Hit(position, 0.0, 0.0, None) for position in among]
        else:
            hits = collection.search(query, vector, among=among)
        entries = [indexed.entries[hit.position] for hit in hits]
        return Found(entries, hits, partial(collection.explain, query))

    def _is_settled_in(self, catalog: Catalog) -> bool:
        return self._engine.corpus is not None and self._is_settled(self._indexed(catalog))

    def _is_settled(self, indexed: _Indexed) -> bool:
        if indexed.working or self._engine.meaning is None:
            return not indexed.working
        return self._engine.encoder_loaded is False or (
            self._engine.encoder_loaded is True and indexed.collection.means_known
        )


def _groups(catalog: Catalog, entries: list[ToolEntry]) -> list[Group]:
    from trunkline.search.corpus import Group

    groups: list[Group] = []
    for server, theirs in groupby(entries, lambda entry: entry.tool.source):
        offer = catalog.snapshot(server)
        tools = tuple([(entry.tool, entry.exposed, ()) for entry in theirs])
        groups.append(Group(server, "" if offer is None else offer.instructions, tools))
    return groups


def _tagging(tags: Mapping[str, Sequence[str]]) -> TagsOf | None:
    """The tags that the operator gives, with patterns of the tools that bear them."""
    if not tags:
        return None
    patterns = [(tag, ToolPatterns(theirs)) for tag, theirs in tags.items()]

    def tags_of(tool: Tool, exposed: str | None) -> tuple[str, ...]:
        return tuple([tag for tag, each in patterns if each.fit(tool, exposed)])

    return tags_of
