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

from trunkline.config.settings import SearchSettings
from trunkline.core.names import without_own_prefix
from trunkline.core.tool import Tool
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.runtime.safe_calls import call_safely

if TYPE_CHECKING:
    from trunkline.search.index.arrays import Floats
    from trunkline.search.index.corpus import Collection, Explanation, Group, Hit, TagsOf
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.search.index.arrays import Floats
    from trunkline.search.index.corpus import Corpus
    from trunkline.search.index.vectors import VectorStore
import re
from collections.abc import Iterable
from fnmatch import translate
from typing import TYPE_CHECKING

from trunkline.core.names import RESERVED_SOURCE

if TYPE_CHECKING:
    from trunkline.search.index.corpus import Explanation

# Patterns of the configuration that name tools, such as `github_*`, made quick enough to try on thousands.


class ToolPatterns:
    def __init__(self, patterns: Iterable[str]) -> None:
        alternatives = "|".join(map(translate, patterns))
        self._match = re.compile(alternatives).match if alternatives else None

    def fit(self, tool: Tool, exposed: str | None) -> bool:
        """Whether any is a pattern of the tool's address, or of the name that clients see."""
        if self._match is None:
            return False
        return self._match(tool.address) is not None or (exposed is not None and self._match(exposed) is not None)


# What it takes to search: numpy, the index and the encoder, loaded beside the loop when somebody first searches.

_LIBRARIES: Final = ("trunkline.search.index.corpus", "trunkline.search.index.vectors")
_CLOSE_S: Final = 5.0


class Engine:
    """`corpus` is None until it is loaded, and anew when meaning is switched on or off. `encoder_loaded` is None until
    it is known whether there is an encoder."""

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
    def meaning(self) -> VectorStore | None:
        return self._vectors if self._semantic else None

    def switch(self, *, semantic: bool) -> bool:
        """Search by meaning or not. Whether that is something new."""
        if semantic == self._semantic:
            return False
        self._semantic = semantic
        self.corpus = None
        if self._vectors is not None and not semantic:
            self._vectors.want_nothing()
        return True

    def when_loaded(self, then: Callable[[], object]) -> None:
        """Now, or once everything is there: reading it takes a tenth of a second, in a thread that ends with it."""
        if self.closed:
            return
        if self.corpus is not None:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            loop = asyncio.get_running_loop()
            ended = partial(loop.call_soon_threadsafe, self._imported)
            self._importing = threading.Thread(target=_import_all, args=(ended,), name="search-import", daemon=True)
            self._importing.start()

    def _imported(self, fault: Exception | None) -> None:
        waiting, self._waiting = self._waiting, []
        if self.closed:
            return
        if fault is not None:  # whoever waits hears of it by its own deadline; the next search tries again
            self._note(f"Nothing can be searched, for a library of it does not load: {fault}")
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
                self._vectors.query("", self._loaded)
            self.corpus = Corpus(vectors=self.meaning)

    def _loaded(self, vector: Floats | None) -> None:
        """The first text takes a tenth of a second, for the encoder is loaded by it; no search waits for that."""
        self.encoder_loaded = vector is not None

    async def close(self) -> None:
        """No thread is left. Who still waits is not answered any more."""
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


_POLL_S: Final = 0.01
_OUTDATED: Final = -1
_REFRESH_S: Final = 0.2
KEPT: Final = 4
"""Most clients see the same catalog; one whose server shows it something else has its own."""


class SearchResult(NamedTuple):
    """The tools that a query is about, best first."""

    entries: list[ToolEntry]
    hits: list[Hit]
    explain: Callable[[Hit], Explanation]


Then = Callable[[SearchResult], None]


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
        entries = server_tools(catalog)
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
            if not call_safely("what is known of tools", self._refresh_one, indexed):
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

    def _found(self, indexed: _Indexed, query: str, vector: Floats | None, tags: Sequence[str]) -> SearchResult:
        from trunkline.search.index.ranking import Hit

        collection = indexed.collection
        among = collection.tagged(tags) if tags else None
        if among is not None and not query:
            hits = [Hit(position, 0.0, 0.0, None) for position in among]
        else:
            hits = collection.search(query, vector, among=among)
        entries = [indexed.entries[hit.position] for hit in hits]
        return SearchResult(entries, hits, partial(collection.explain, query))

    def _is_settled_in(self, catalog: Catalog) -> bool:
        return self._engine.corpus is not None and self._is_settled(self._indexed(catalog))

    def _is_settled(self, indexed: _Indexed) -> bool:
        if indexed.working or self._engine.meaning is None:
            return not indexed.working
        return self._engine.encoder_loaded is False or (
            self._engine.encoder_loaded is True and indexed.collection.means_known
        )


def _groups(catalog: Catalog, entries: list[ToolEntry]) -> list[Group]:
    from trunkline.search.index.corpus import Group

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


def server_tools(catalog: Catalog) -> list[ToolEntry]:
    """Every tool of a server; our own are not among them."""
    return [entry for entry in catalog.entries() if entry.tool.source != RESERVED_SOURCE]
