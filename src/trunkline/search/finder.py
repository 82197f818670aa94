"""Finds the tools of a catalog by what they do: each catalog is indexed in the background, in short steps.

numpy, the index and the encoder are loaded with the first search, or once a client is shown tools to search with.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import translate
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from trunkline.config.settings import SearchSettings
from trunkline.core.names import RESERVED_SOURCE, without_own_prefix
from trunkline.core.tool import ToolDefinition
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.runtime.safe_callbacks import call_safely

if TYPE_CHECKING:
    from trunkline.search.index.arrays import Floats
    from trunkline.search.index.catalog_index import CatalogIndex, SegmentCache, ServerTools, TagsOf
    from trunkline.search.index.ranking import Hit, MatchExplanation
    from trunkline.search.index.vectors import VectorStore

_LIBRARIES: Final = ("trunkline.search.index.catalog_index", "trunkline.search.index.vectors")
_POLL_S: Final = 0.01
_CLOSE_S: Final = 5.0
_OUTDATED: Final = -1
_REFRESH_S: Final = 0.2
MAX_INDEXED: Final = 4
"""How many catalogs are kept indexed. Most clients see the same one; if a server shows a client something else, that
client has a catalog of its own."""


class SearchResult(NamedTuple):
    """The tools that match a query, best first."""

    entries: list[ToolEntry]
    hits: list[Hit]
    explain: Callable[[Hit], MatchExplanation]


OnFound = Callable[[SearchResult], None]


def server_tools(catalog: Catalog) -> list[ToolEntry]:
    """Every tool of a server; the gateway's own are not among them."""
    return [entry for entry in catalog.entries() if entry.tool.source != RESERVED_SOURCE]


class ToolPatterns:
    """Patterns of the configuration that name tools, such as `github_*`, as one regular expression."""

    def __init__(self, patterns: Iterable[str]) -> None:
        alternatives = "|".join(map(translate, patterns))
        self._match = re.compile(alternatives).match if alternatives else None

    def fit(self, tool: ToolDefinition, exposed: str | None) -> bool:
        """Whether any matches the tool's address, or the name that clients see."""
        if self._match is None:
            return False
        return self._match(tool.address) is not None or (exposed is not None and self._match(exposed) is not None)


class SearchBackend:
    """Loads numpy, the index and the encoder in a thread when somebody first searches.

    `segment_cache` is None until it is loaded, and again when semantic search is switched on or off. `encoder_loaded`
    is None until it is known whether there is an encoder."""

    def __init__(
        self, *, semantic: bool, state_dir: Path, on_progress: Callable[[], None], note: Callable[[str], None]
    ) -> None:
        self.segment_cache: SegmentCache | None = None
        self.encoder_loaded: bool | None = None
        self.closed = False
        self._semantic = semantic
        self._state_dir = state_dir
        self._on_progress = on_progress
        self._note = note
        self._vectors: VectorStore | None = None
        self._waiting: list[Callable[[], object]] = []
        self._importing: threading.Thread | None = None

    @property
    def vectors(self) -> VectorStore | None:
        return self._vectors if self._semantic else None

    def switch(self, *, semantic: bool) -> bool:
        """Turn semantic search on or off. Returns whether that changed anything."""
        if semantic == self._semantic:
            return False
        self._semantic = semantic
        self.segment_cache = None
        if self._vectors is not None and not semantic:
            self._vectors.cancel_requests()
        return True

    def when_loaded(self, then: Callable[[], object]) -> None:
        """Call `then` now, or once everything is loaded: imports take a tenth of a second, in a thread of their own."""
        if self.closed:
            return
        if self.segment_cache is not None:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            ended = partial(asyncio.get_running_loop().call_soon_threadsafe, self._imported)
            self._importing = threading.Thread(target=_import_all, args=(ended,), name="search-import", daemon=True)
            self._importing.start()

    def _imported(self, fault: Exception | None) -> None:
        waiting, self._waiting = self._waiting, []
        if self.closed:
            return
        if fault is not None:  # whoever waits runs into its own deadline; the next search tries again
            self._note(f"Tools cannot be searched because a library cannot be loaded: {fault}")
            return
        self._begin()
        for then in waiting:
            asyncio.get_running_loop().call_soon(self.when_loaded, then)  # settings may change in between

    def _begin(self) -> None:
        from trunkline.search.index.catalog_index import SegmentCache
        from trunkline.search.index.vectors import VectorStore

        if self.segment_cache is None:
            if self._semantic and self._vectors is None:
                self._vectors = VectorStore(self._state_dir, on_progress=self._on_progress, note=self._note)
                # The first text takes a tenth of a second, for the encoder is loaded by it; no search waits for that.
                self._vectors.query("", self._encoder_tried)
            self.segment_cache = SegmentCache(vectors=self.vectors)

    def _encoder_tried(self, vector: Floats | None) -> None:
        self.encoder_loaded = vector is not None

    async def close(self) -> None:
        """End all threads. Whoever still waits gets no answer."""
        self.closed = True
        end = time.monotonic() + _CLOSE_S
        while self._importing is not None and self._importing.is_alive() and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
        if self._vectors is not None:
            await self._vectors.close()


def _import_all(then: Callable[[Exception | None], object]) -> None:
    fault: Exception | None = None
    try:
        for module in _LIBRARIES:
            import_module(module)
    except Exception as problem:  # on a processor that is too old for it, say
        fault = problem
    with suppress(RuntimeError):  # the loop is closed: nobody searches any more
        then(fault)


@dataclass(eq=False, slots=True)
class _Indexed:
    """One catalog at one version, and the callbacks that wait until it can be searched."""

    catalog: Catalog
    version: int
    entries: list[ToolEntry]
    index: CatalogIndex
    waiting: list[Callable[[_Indexed], None]]


class Finder:
    """Searches catalogs and keeps the index of the latest few up to date."""

    def __init__(self, settings: SearchSettings, state_dir: Path, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self._backend = SearchBackend(
            semantic=settings.semantic, state_dir=state_dir, on_progress=self._schedule_refresh, note=note
        )
        self._indexes: dict[Catalog, _Indexed] = {}
        self._refreshing: asyncio.TimerHandle | None = None

    def adopt(self, settings: SearchSettings) -> None:
        if self._backend.switch(semantic=settings.semantic) or settings.tags != self._settings.tags:
            for indexed in self._indexes.values():
                indexed.version = _OUTDATED
        self._settings = settings

    def prepare(self, catalog: Catalog) -> None:
        """Index a catalog that will be searched soon."""
        self._backend.when_loaded(lambda: self._indexed(catalog))

    def search(self, catalog: Catalog, query: str, tags: Sequence[str], then: OnFound) -> None:
        """Call `then` with what matches. No search waits for the encoder: until tools have vectors, words decide."""
        query = without_own_prefix(query)
        self._when_ready(catalog, catalog.version, lambda indexed: self._search(indexed, query, tags, then))

    async def settle(self, catalog: Catalog, timeout_s: float) -> None:
        """Wait until every tool has its vector."""
        end = time.monotonic() + timeout_s
        self.prepare(catalog)
        while time.monotonic() < end and not (self._backend.closed or self._is_settled(catalog)):
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """End all threads. Whoever still waits for a search gets no answer."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self._backend.close()

    # -- indexing -------------------------------------------------------------------------------------------------

    def _indexed(self, catalog: Catalog) -> _Indexed:
        """The index of the catalog as it is now, or one of an earlier version that is still being built: a catalog that
        changes all the time could never be searched otherwise."""
        indexed = self._indexes.pop(catalog, None)
        under_way = indexed is not None and indexed.version != _OUTDATED and not indexed.index.ready
        if indexed is None or (indexed.version != catalog.version and not under_way):
            if indexed is not None:
                indexed.index.stop()
            indexed = self._begin(catalog, [] if indexed is None else indexed.waiting)
        self._indexes[catalog] = indexed
        *others, _ = self._indexes  # the one searched longest ago goes first, unless somebody waits for it
        idle = [other for other in others if not self._indexes[other].waiting]
        for other in idle[: max(0, len(self._indexes) - MAX_INDEXED)]:
            del self._indexes[other]
        return indexed

    def _begin(self, catalog: Catalog, waiting: list[Callable[[_Indexed], None]]) -> _Indexed:
        entries = server_tools(catalog)
        segment_cache = self._backend.segment_cache
        assert segment_cache is not None
        index = segment_cache.begin(_groups(catalog, entries), _tagging(self._settings.tags))
        indexed = _Indexed(catalog, catalog.version, entries, index, waiting)
        self._step(indexed)
        return indexed

    def _step(self, indexed: _Indexed) -> None:
        """Do one step now, and the rest a little at a time between other work. An index that was replaced is left
        alone: its successor reuses its segments."""
        current = self._indexes.get(indexed.catalog, indexed)
        if self._backend.closed or current is not indexed:
            return
        try:
            working = indexed.index.step()
        except Exception as problem:  # a bug of ours: the next search begins anew instead of waiting for this one
            indexed.version = _OUTDATED
            indexed.index.stop()
            self._note(f"The tools could not be indexed: {type(problem).__name__}: {problem}")
            return
        if working:
            asyncio.get_running_loop().call_soon(self._step, indexed)
        if indexed.index.ready:
            waiting, indexed.waiting = indexed.waiting, []
            for then in waiting:
                asyncio.get_running_loop().call_soon(then, indexed)

    def _schedule_refresh(self) -> None:
        """Refresh soon, once for many small batches of vectors: each refresh looks at every tool."""
        if self._refreshing is None and not self._backend.closed:
            self._refreshing = asyncio.get_running_loop().call_later(_REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        self._refreshing = None
        for indexed in self._indexes.values():
            if not call_safely("vectors of tools", self._refresh_one, indexed):
                indexed.version = _OUTDATED  # the next search begins anew

    def _refresh_one(self, indexed: _Indexed) -> None:
        was_working = indexed.index.working
        indexed.index.refresh()
        if not was_working:
            self._step(indexed)

    # -- searching ------------------------------------------------------------------------------------------------

    def _when_ready(self, catalog: Catalog, version: int, then: Callable[[_Indexed], None]) -> None:
        """Call `then` with an index of the catalog at this version or later."""

        def ready(indexed: _Indexed) -> None:
            if indexed.version >= version:
                then(indexed)
            else:  # what was under way began before, or with other settings; the next begins now
                self._when_ready(catalog, version, then)

        def loaded() -> None:
            indexed = self._indexed(catalog)
            if indexed.index.ready:
                then(indexed)
            else:
                indexed.waiting.append(ready)

        self._backend.when_loaded(loaded)

    def _search(self, indexed: _Indexed, query: str, tags: Sequence[str], then: OnFound) -> None:
        def rank(vector: Floats | None) -> None:
            then(_search_result(indexed, query, vector, tags))

        vectors = self._backend.vectors
        if vectors is None or not self._backend.encoder_loaded:
            rank(None)
        else:
            vectors.query(query, rank)

    def _is_settled(self, catalog: Catalog) -> bool:
        if self._backend.segment_cache is None:
            return False
        indexed = self._indexed(catalog)
        if indexed.index.working or self._backend.vectors is None:
            return not indexed.index.working
        return self._backend.encoder_loaded is False or (
            self._backend.encoder_loaded is True and indexed.index.vectors_known
        )


def _search_result(indexed: _Indexed, query: str, vector: Floats | None, tags: Sequence[str]) -> SearchResult:
    from trunkline.search.index.ranking import Hit

    index = indexed.index
    among = index.tagged(tags) if tags else None
    if among is not None and not query:
        hits = [Hit(position, 0.0, 0.0, None) for position in among]
    else:
        hits = index.search(query, vector, among=among)
    return SearchResult([indexed.entries[hit.position] for hit in hits], hits, partial(index.explain, query))


def _groups(catalog: Catalog, entries: list[ToolEntry]) -> list[ServerTools]:
    from trunkline.search.index.catalog_index import ServerTools

    groups: list[ServerTools] = []
    for server, theirs in groupby(entries, lambda entry: entry.tool.source):
        snapshot = catalog.snapshot(server)
        tools = tuple([(entry.tool, entry.exposed, ()) for entry in theirs])
        groups.append(ServerTools(server, "" if snapshot is None else snapshot.instructions, tools))
    return groups


def _tagging(tags: Mapping[str, Sequence[str]]) -> TagsOf | None:
    """The tags that the operator gives to tools, by patterns of their names."""
    if not tags:
        return None
    patterns = [(tag, ToolPatterns(theirs)) for tag, theirs in tags.items()]

    def tags_of(tool: ToolDefinition, exposed: str | None) -> tuple[str, ...]:
        return tuple([tag for tag, each in patterns if each.fit(tool, exposed)])

    return tags_of
