"""Indexes the tools of whole catalogs in small steps, reusing what did not change, and searches them.

A server's tools are indexed in segments of a few dozen, each kept by its content, so a change costs its own segment
and joining the segments again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol
from zlib import crc32

from trunkline.core.tool import ToolDefinition
from trunkline.search.index.arrays import Flags, Floats, np
from trunkline.search.index.documents import document_of, server_terms
from trunkline.search.index.lexical import LexicalIndex, Segment, SegmentBuilder, Vocabulary
from trunkline.search.index.ranking import CatalogScores, Hit, MatchExplanation, Ranker, fused_scores
from trunkline.search.index.words import MAX_QUERY

Entry = tuple[ToolDefinition, str | None, tuple[str, ...]]
"""A tool, the name that clients see, and tags beside those of its definition."""
TagsOf = Callable[[ToolDefinition, str | None], tuple[str, ...]]
"""More tags for a tool and the name that clients see. Called while it is indexed, as it may take long."""
_MAX_TAGS: Final = 32
FOUND: Final = 100
"""How many hits a search returns unless told."""
_STEP_S: Final = 0.0015
_USUAL_SEGMENT: Final = 64
_LARGEST_SEGMENT: Final = 128
_MAX_NAMESAKES: Final = 100
SPARE_TOOLS: Final = 10_000
"""Kept beside those of the latest index: other versions of a server, and servers that are away for a while."""


@dataclass(frozen=True, slots=True)
class ServerTools:
    """Tools of one server in their order, all or those of a segment, with the server's instructions."""

    server: str
    server_text: str
    tools: tuple[Entry, ...]


class VectorSource(Protocol):
    """Vectors by text, as far as they are known: `VectorStore`, or a fake in tests and benchmarks."""

    def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]: ...
    def request(self, texts: Sequence[str]) -> None: ...


@dataclass(slots=True)
class _CachedSegment:
    segment: Segment
    last_used: int
    """The number of the last index that used it."""


class SegmentCache:
    """Keeps segments for all indexes, with the vectors and the ranker that they are searched with."""

    def __init__(
        self, ranker: Ranker = fused_scores, vectors: VectorSource | None = None, *, spare_tools: int = SPARE_TOOLS
    ) -> None:
        self.ranker = ranker
        self.vectors = vectors
        self.vocabulary = Vocabulary()
        self._spare_tools = spare_tools
        self._segments: dict[ServerTools, _CachedSegment] = {}
        self._begun = 0
        self._live_terms = 0

    def begin(self, groups: Sequence[ServerTools], tags_of: TagsOf | None = None) -> CatalogIndex:
        self._begun += 1
        if self.vocabulary.full and self._live_terms < len(self.vocabulary) // 2:
            self.vocabulary = Vocabulary()
            self._segments.clear()
        return CatalogIndex(self, groups, tags_of)

    def find(self, vocabulary: Vocabulary, part: ServerTools) -> Segment | None:
        cached = self._segments.get(part)
        if cached is None or vocabulary is not self.vocabulary:
            return None
        cached.last_used = self._begun
        return cached.segment

    def keep(self, vocabulary: Vocabulary, part: ServerTools, segment: Segment) -> None:
        if vocabulary is self.vocabulary:
            self._segments[part] = _CachedSegment(segment, self._begun)

    def settle(self, tools: int, live_terms: int) -> None:
        """Drop the segments unused for longest, once an index of so many tools is ready."""
        self._live_terms = live_terms
        surplus = sum(cached.segment.size for cached in self._segments.values()) - tools - self._spare_tools
        for part in sorted(self._segments, key=lambda part: self._segments[part].last_used) if surplus > 0 else ():
            if surplus <= 0:
                return
            surplus -= self._segments.pop(part).segment.size


class CatalogIndex:
    """The index of one version of a catalog. Call `step` until it is `ready`, and on until nothing is left to do."""

    def __init__(self, cache: SegmentCache, groups: Sequence[ServerTools], tags_of: TagsOf | None) -> None:
        self.groups = tuple(groups)
        self._tags_of = tags_of
        self.ready = False
        self.segments: list[Segment] = []
        self._cache = cache
        self._vocabulary = cache.vocabulary
        self._entries: list[tuple[ServerTools, Entry]] = [
            (group, entry) for group in self.groups for entry in group.tools
        ]
        self._index = LexicalIndex((), self._vocabulary)
        self._matrix: Floats | None = None
        self._known: Flags = np.zeros(len(self._entries), dtype=np.bool_)
        self._work: Iterator[None] | None = self._build()
        self._refresh_again = False

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, position: int) -> Entry:
        return self._entries[position][1]

    def step(self) -> bool:
        """Work for about two milliseconds. Returns whether there is more to do."""
        until = perf_counter() + _STEP_S
        while self.working and perf_counter() < until:
            self._advance()
        return self.working

    @property
    def working(self) -> bool:
        """Whether there is more to do."""
        return self._work is not None

    def finish(self) -> None:
        while self.step():
            pass

    def stop(self) -> None:
        """End its work, which would keep it in memory; it can still be searched if it is ready."""
        self._work = None

    def refresh(self) -> None:
        """Take over vectors that arrived, in the next steps."""
        if self._work is not None:
            self._refresh_again = True
        elif not self._known.all():
            self._work = self._take_vectors()

    @property
    def vectors_known(self) -> bool:
        """Whether the vectors of all tools were taken over."""
        return self._work is None and bool(self._known.all())

    def _advance(self) -> None:
        if self._work is not None and next(self._work, self) is self:
            self._work = None
            if self._refresh_again:
                self._refresh_again = False
                self.refresh()

    # -- indexing ---------------------------------------------------------------------------------------------------

    def _build(self) -> Iterator[None]:
        for group in self.groups:
            for part in _segments(group):
                tools = part.tools if self._tags_of is None else tuple(map(self._with_tags, part.tools))
                yield from self._segment(ServerTools(part.server, part.server_text, tools))
        index = LexicalIndex(self.segments, self._vocabulary)
        yield from index.build()
        self._index = index
        self.ready = True
        self._cache.settle(len(self), index.live_terms)
        if self._cache.vectors is not None:
            yield from self._take_vectors()
            self._cache.vectors.request([text for segment in self.segments for text in segment.texts])

    def _with_tags(self, entry: Entry) -> Entry:
        tool, shown, tags = entry
        return entry if self._tags_of is None else (tool, shown, (*tags, *self._tags_of(tool, shown)))

    def _segment(self, part: ServerTools) -> Iterator[None]:
        segment = self._cache.find(self._vocabulary, part)
        if segment is None:
            builder = SegmentBuilder(self._vocabulary)
            terms = server_terms(part.server, part.server_text)
            for tool, shown, tags in part.tools:
                builder.add(document_of(tool, shown, part.server_text, tags), terms, tool.aliases)
                yield
            segment = builder.finished()
            self._cache.keep(self._vocabulary, part, segment)
        self.segments.append(segment)
        yield

    def _take_vectors(self) -> Iterator[None]:
        """Copy known vectors row by row into one matrix, which may be searched meanwhile. A row once known stays, even
        if the store forgets it."""
        vectors = self._cache.vectors
        if vectors is None:
            return
        end = 0
        for segment in self.segments:
            start, end = end, end + segment.size
            if not self._known[start:end].all():
                rows, known = vectors.matrix(segment.texts)
                if self._matrix is None:
                    self._matrix = np.zeros((len(self), rows.shape[1]), dtype=np.float32)
                self._matrix[start:end][known] = rows[known]
                self._known[start:end] |= known
            yield

    # -- searching --------------------------------------------------------------------------------------------------

    def search(
        self, query: str, vector: Floats | None, *, among: Sequence[int] | None = None, limit: int = FOUND
    ) -> list[Hit]:
        """The tools that match, best first, ties in the order of the catalog.

        `vector` is that of the query, or a row for each piece of a long one.
        """
        self._finish_index()
        lexical = self._index.scores(query)
        cosine = self._cosine(vector)
        scores = self._cache.ranker(lexical, cosine, self._known if cosine is not None else None)
        unmatched = self._index.unmatched_weight(query) if cosine is not None else 0.0
        scored = CatalogScores(scores, lexical, cosine, self._known, unmatched)
        return scored.hits(self._named(query.strip()[:MAX_QUERY], scores), among, limit)

    def tagged(self, tags: Sequence[str]) -> list[int]:
        """The tools with any of these tags, in the order of the catalog."""
        self._finish_index()
        return sorted({position for tag in tags[:_MAX_TAGS] for position in self._index.tagged(tag).tolist()})

    def explain(self, query: str, hit: Hit) -> MatchExplanation:
        group, entry = self._entries[hit.position]
        tool, shown, tags = self._with_tags(entry)
        document = document_of(tool, shown, group.server_text, tags)
        words = self._index.explain(query, document, server_terms(group.server, group.server_text))
        return MatchExplanation(words, hit.lexical, hit.cosine, hit.score, hit.named)

    def _finish_index(self) -> None:
        while not self.ready and self._work is not None:
            self._advance()

    def _cosine(self, vectors: Floats | None) -> Floats | None:
        """The cosine of each tool with the query, or with its nearest piece; None if nothing is known."""
        if vectors is None or not vectors.any() or self._matrix is None or not self._known.any():
            return None
        nearness: Floats = self._matrix @ vectors.astype(np.float32, copy=False).T
        return nearness if nearness.ndim == 1 else nearness.max(axis=1)

    def _named(self, name: str, scores: Floats) -> list[int]:
        """The tools with this name in any spelling, those first that have exactly this one."""

        def order(position: int) -> tuple[bool, float, int]:
            tool, shown, _ = self.entry(position)
            return name not in (shown, tool.address), -float(scores[position]), position

        named: list[int] = self._index.named(name)[:_MAX_NAMESAKES].tolist()
        return sorted(named, key=order)


def _segments(group: ServerTools) -> Iterator[ServerTools]:
    """Split a server's tools into segments. A tool's name decides whether a segment ends with it, so that a tool that
    comes or goes changes its own segment only."""
    start = 0
    for end, (tool, _, _) in enumerate(group.tools, 1):
        at_end = crc32(tool.name.encode(errors="replace")) % _USUAL_SEGMENT == 0 or end - start == _LARGEST_SEGMENT
        if at_end or end == len(group.tools):
            yield ServerTools(group.server, group.server_text, group.tools[start:end])
            start = end
