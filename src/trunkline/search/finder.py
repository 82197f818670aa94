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
from trunkline.runtime.safe_calls import call_safely

if TYPE_CHECKING:
    from trunkline.search.index.arrays import Floats
    from trunkline.search.index.corpus import Collection, Corpus, Group, TagsOf
    from trunkline.search.index.ranking import Hit, MatchExplanation
    from trunkline.search.index.vectors import VectorStore

_LIBRARIES: Final = ("trunkline.search.index.corpus", "trunkline.search.index.vectors")
_POLL_S: Final = 0.01
_CLOSE_S: Final = 5.0
_OUTDATED: Final = -1
_REFRESH_S: Final = 0.2
KEPT: Final = 4
"""How many catalogs are kept indexed. Most clients see the same one; where a server shows a client something else, that
client has a catalog of its own."""


class SearchResult(NamedTuple):
    """The tools that match a query, best first."""

    entries: list[ToolEntry]
    hits: list[Hit]
    explain: Callable[[Hit], MatchExplanation]


Then = Callable[[SearchResult], None]


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


class SearchEngine:
    """Loads numpy, the index and the encoder in a thread when somebody first searches.

    `corpus` is None until it is loaded, and again when semantic search is switched on or off. `encoder_loaded` is None
    until it is known whether there is an encoder."""

    def __init__(
        self, *, semantic: bool, state_dir: Path, on_progress: Callable[[], None], note: Callable[[str], None]
    ) -> None:
        self.corpus: Corpus | None = None
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
        """Turn semantic search on or off; whether that changes anything."""
        if semantic == self._semantic:
            return False
        self._semantic = semantic
        self.corpus = None
        if self._vectors is not None and not semantic:
            self._vectors.cancel_requests()
        return True

    def when_loaded(self, then: Callable[[], object]) -> None:
        """Call `then` now, or once everything is loaded: imports take a tenth of a second, in a thread of their own."""
        if self.closed:
            return
        if self.corpus is not None:
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
            self._note(f"Tools cannot be searched, as a library does not load: {fault}")
            return
        self._begin()
        for then in waiting:
            asyncio.get_running_loop().call_soon(self.when_loaded, then)  # settings may change in between

    def _begin(self) -> None:
        from trunkline.search.index.corpus import Corpus
        from trunkline.search.index.vectors import VectorStore

        if self.corpus is None:
            if self._semantic and self._vectors is None:
                self._vectors = VectorStore(self._state_dir, on_progress=self._on_progress, note=self._note)
                # The first text takes a tenth of a second, for the encoder is loaded by it; no search waits for that.
                self._vectors.query("", self._encoder_tried)
            self.corpus = Corpus(vectors=self.vectors)

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
    collection: Collection
    waiting: list[Callable[[_Indexed], None]]
    working: bool = True


class Finder:
    """Searches catalogs and keeps the index of the latest few up to date."""

    def __init__(self, settings: SearchSettings, state_dir: Path, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self._engine = SearchEngine(
            semantic=settings.semantic, state_dir=state_dir, on_progress=self._schedule_refresh, note=note
        )
        self._kept: dict[Catalog, _Indexed] = {}
        self._refreshing: asyncio.TimerHandle | None = None

    def adopt(self, settings: SearchSettings) -> None:
        if self._engine.switch(semantic=settings.semantic) or settings.tags != self._settings.tags:
            for indexed in self._kept.values():
                indexed.version = _OUTDATED
        self._settings = settings

    def prepare(self, catalog: Catalog) -> None:
        """Index a catalog that will be searched soon."""
        self._engine.when_loaded(lambda: self._indexed(catalog))

    def search(self, catalog: Catalog, query: str, tags: Sequence[str], then: Then) -> None:
        """Until tools have vectors they are found by their words alone: no search waits for the encoder."""
        query = without_own_prefix(query)
        self._when_ready(catalog, catalog.version, lambda indexed: self._search(indexed, query, tags, then))

    async def settle(self, catalog: Catalog, timeout_s: float) -> None:
        """Wait until every tool has its vector."""
        end = time.monotonic() + timeout_s
        self.prepare(catalog)
        while time.monotonic() < end and not (self._engine.closed or self._is_settled(catalog)):
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """End all threads. Whoever still waits for a search gets no answer."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        await self._engine.close()

    # -- indexing -------------------------------------------------------------------------------------------------

    def _indexed(self, catalog: Catalog) -> _Indexed:
        """As the catalog is now, or as it was when indexing began that is still under way: a catalog that changes all
        the time would never be searched otherwise."""
        indexed = self._kept.pop(catalog, None)
        under_way = indexed is not None and indexed.version != _OUTDATED and not indexed.collection.ready
        if indexed is None or (indexed.version != catalog.version and not under_way):
            if indexed is not None:
                indexed.collection.stop()
            indexed = self._begin(catalog, [] if indexed is None else indexed.waiting)
        self._kept[catalog] = indexed
        *others, _ = self._kept  # the one searched longest ago goes first, unless somebody waits for it
        idle = [other for other in others if not self._kept[other].waiting]
        for other in idle[: max(0, len(self._kept) - KEPT)]:
            del self._kept[other]
        return indexed

    def _begin(self, catalog: Catalog, waiting: list[Callable[[_Indexed], None]]) -> _Indexed:
        entries = server_tools(catalog)
        corpus = self._engine.corpus
        assert corpus is not None
        collection = corpus.begin(_groups(catalog, entries), _tagging(self._settings.tags))
        indexed = _Indexed(catalog, catalog.version, entries, collection, waiting)
        self._step(indexed)
        return indexed

    def _step(self, indexed: _Indexed) -> None:
        """Do one step now and the others in between other work. An outdated catalog is left alone: what was read of it
        is there for the next."""
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
            asyncio.get_running_loop().call_soon(self._step, indexed)
        if indexed.collection.ready:
            waiting, indexed.waiting = indexed.waiting, []
            for then in waiting:
                asyncio.get_running_loop().call_soon(then, indexed)

    def _schedule_refresh(self) -> None:
        """Vectors arrive in many small batches, and taking them over means looking at every tool."""
        if self._refreshing is None and not self._engine.closed:
            self._refreshing = asyncio.get_running_loop().call_later(_REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        self._refreshing = None
        for indexed in self._kept.values():
            if not call_safely("vectors of tools", self._refresh_one, indexed):
                indexed.version = _OUTDATED  # the next search begins anew

    def _refresh_one(self, indexed: _Indexed) -> None:
        indexed.collection.refresh()
        if not indexed.working:
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
            if indexed.collection.ready:
                then(indexed)
            else:
                indexed.waiting.append(ready)

        self._engine.when_loaded(loaded)

    def _search(self, indexed: _Indexed, query: str, tags: Sequence[str], then: Then) -> None:
        def rank(vector: Floats | None) -> None:
            then(_search_result(indexed, query, vector, tags))

        vectors = self._engine.vectors
        if vectors is None or not self._engine.encoder_loaded:
            rank(None)
        else:
            vectors.query(query, rank)

    def _is_settled(self, catalog: Catalog) -> bool:
        if self._engine.corpus is None:
            return False
        indexed = self._indexed(catalog)
        if indexed.working or self._engine.vectors is None:
            return not indexed.working
        return self._engine.encoder_loaded is False or (
            self._engine.encoder_loaded is True and indexed.collection.vectors_known
        )


def _search_result(indexed: _Indexed, query: str, vector: Floats | None, tags: Sequence[str]) -> SearchResult:
    from trunkline.search.index.ranking import Hit

    collection = indexed.collection
    among = collection.tagged(tags) if tags else None
    if among is not None and not query:
        hits = [Hit(position, 0.0, 0.0, None) for position in among]
    else:
        hits = collection.search(query, vector, among=among)
    return SearchResult([indexed.entries[hit.position] for hit in hits], hits, partial(collection.explain, query))


def _groups(catalog: Catalog, entries: list[ToolEntry]) -> list[Group]:
    from trunkline.search.index.corpus import Group

    groups: list[Group] = []
    for server, theirs in groupby(entries, lambda entry: entry.tool.source):
        snapshot = catalog.snapshot(server)
        tools = tuple([(entry.tool, entry.exposed, ()) for entry in theirs])
        groups.append(Group(server, "" if snapshot is None else snapshot.instructions, tools))
    return groups


def _tagging(tags: Mapping[str, Sequence[str]]) -> TagsOf | None:
    """The tags that the operator gives to tools, by patterns of their names."""
    if not tags:
        return None
    patterns = [(tag, ToolPatterns(theirs)) for tag, theirs in tags.items()]

    def tags_of(tool: ToolDefinition, exposed: str | None) -> tuple[str, ...]:
        return tuple([tag for tag, each in patterns if each.fit(tool, exposed)])

    return tags_of
