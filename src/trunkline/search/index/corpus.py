"""Tools of whole catalogs made searchable in small steps; what did not change since is taken over.

A server's tools are indexed in segments of a few dozen, each kept by its content, so a change costs its own segment
and putting the segments together again.
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
from trunkline.search.index.ranking import FusedRanker, Hit, MatchExplanation, Ranker, Scored
from trunkline.search.index.words import MAX_QUERY

Entry = tuple[ToolDefinition, str | None, tuple[str, ...]]
"""A tool, the name that clients see, and tags beside those of its definition."""
TagsOf = Callable[[ToolDefinition, str | None], tuple[str, ...]]
"""More tags for a tool and the name that clients see: asked for while it is indexed, as that may take its time."""
_MAX_TAGS: Final = 32
FOUND: Final = 100
"""How many hits a search gives unless told."""
_STEP_S: Final = 0.0015
_USUAL_SEGMENT: Final = 64
_LARGEST_SEGMENT: Final = 128
_MAX_NAMESAKES: Final = 100
SPARE_TOOLS: Final = 10_000
"""Kept beside those of the latest collection: other versions of a server, and servers that are away for a while."""


@dataclass(frozen=True, slots=True)
class Group:
    """The tools of one server in their order, and what the server says of itself."""

    server: str
    server_text: str
    tools: tuple[Entry, ...]


class Vectors(Protocol):
    def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]: ...
    def want(self, texts: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Part:
    """What a segment is made of."""

    server: str
    server_text: str
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class _Kept:
    segment: Segment
    last_used: int
    """By which collection, counted from the first."""


class Corpus:
    """Segments for all collections, and what they are searched with."""

    def __init__(
        self, ranker: Ranker | None = None, vectors: Vectors | None = None, *, spare_tools: int = SPARE_TOOLS
    ) -> None:
        self.ranker: Ranker = ranker or FusedRanker()
        self.vectors = vectors
        self.vocabulary = Vocabulary()
        self._spare_tools = spare_tools
        self._kept: dict[_Part, _Kept] = {}
        self._begun = 0
        self._live_terms = 0

    def begin(self, groups: Sequence[Group], tags_of: TagsOf | None = None) -> Collection:
        self._begun += 1
        if self.vocabulary.full and self._live_terms < len(self.vocabulary) // 2:
            self.vocabulary = Vocabulary()
            self._kept.clear()
        return Collection(self, groups, tags_of)

    def kept(self, vocabulary: Vocabulary, part: _Part) -> Segment | None:
        kept = self._kept.get(part)
        if kept is None or vocabulary is not self.vocabulary:
            return None
        kept.last_used = self._begun
        return kept.segment

    def keep(self, vocabulary: Vocabulary, part: _Part, segment: Segment) -> None:
        if vocabulary is self.vocabulary:
            self._kept[part] = _Kept(segment, self._begun)

    def settle(self, tools: int, live_terms: int) -> None:
        """Called when a collection of so many tools is ready: what was not used for long is let go."""
        self._live_terms = live_terms
        surplus = sum(kept.segment.size for kept in self._kept.values()) - tools - self._spare_tools
        for part in sorted(self._kept, key=lambda part: self._kept[part].last_used) if surplus > 0 else ():
            if surplus <= 0:
                return
            surplus -= self._kept.pop(part).segment.size


class Collection:
    """What one version of a catalog offers to be found. `step` until it is `ready`, and on until nothing is left."""

    def __init__(self, corpus: Corpus, groups: Sequence[Group], tags_of: TagsOf | None = None) -> None:
        self.groups = tuple(groups)
        self._tags_of = tags_of
        self.ready = False
        self.segments: list[Segment] = []
        self._corpus = corpus
        self._vocabulary = corpus.vocabulary
        self._entries: list[tuple[Group, Entry]] = [(group, entry) for group in self.groups for entry in group.tools]
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
        """Work for about two milliseconds; whether there is more to do."""
        until = perf_counter() + _STEP_S
        while self._work is not None and perf_counter() < until:
            self._advance()
        return self._work is not None

    def finish(self) -> None:
        while self._work is not None:
            self._advance()

    def stop(self) -> None:
        """Do no more for it; as far as it is ready it can be searched. What is under way would keep it in memory."""
        self._work = None

    def refresh(self) -> None:
        """More vectors are known: take them over in the next steps."""
        if self._work is not None:
            self._refresh_again = True
        elif not self._known.all():
            self._work = self._take_vectors()

    @property
    def vectors_known(self) -> bool:
        """Whether it is known of every tool what it means, and taken over."""
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
            for part in _parts(group):
                yield from self._segment(self._tagged(part))
        index = LexicalIndex(self.segments, self._vocabulary)
        yield from index.build()
        self._index = index
        self.ready = True
        self._corpus.settle(len(self), index.live_terms)
        if self._corpus.vectors is not None:
            yield from self._take_vectors()
            self._corpus.vectors.want([text for segment in self.segments for text in segment.texts])

    def _tagged(self, part: _Part) -> _Part:
        if self._tags_of is None:
            return part
        return _Part(part.server, part.server_text, tuple(map(self._with_tags, part.entries)))

    def _with_tags(self, entry: Entry) -> Entry:
        tool, shown, tags = entry
        return entry if self._tags_of is None else (tool, shown, (*tags, *self._tags_of(tool, shown)))

    def _segment(self, part: _Part) -> Iterator[None]:
        segment = self._corpus.kept(self._vocabulary, part)
        if segment is None:
            builder = SegmentBuilder(self._vocabulary)
            terms = server_terms(part.server, part.server_text)
            for tool, shown, tags in part.entries:
                builder.add(document_of(tool, shown, part.server_text, tags), terms, tool.aliases)
                yield
            segment = builder.finished()
            self._corpus.keep(self._vocabulary, part, segment)
        self.segments.append(segment)
        yield

    def _take_vectors(self) -> Iterator[None]:
        """Row by row into one matrix, which may be searched meanwhile. A row once known stays, even if it is forgotten
        where it came from."""
        vectors = self._corpus.vectors
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
        """The best tools first, equally good ones in the order of the catalog; only those that something speaks for.

        `vector` is the query's meaning, or a row for each piece of a long one.
        """
        self._finish_words()
        lexical = self._index.scores(query)
        cosine = self._cosine(vector)
        scores = self._corpus.ranker.scores(lexical, cosine, self._known if cosine is not None else None)
        scored = Scored(
            scores, lexical, cosine, self._known, self._index.unmatched_weight(query) if cosine is not None else 0.0
        )
        return scored.hits(self._named(query.strip()[:MAX_QUERY], scores), among, limit)

    def tagged(self, tags: Sequence[str]) -> list[int]:
        """The tools that bear any of these tags, in the order of the catalog."""
        self._finish_words()
        return sorted({position for tag in tags[:_MAX_TAGS] for position in self._index.tagged(tag).tolist()})

    def explain(self, query: str, hit: Hit) -> MatchExplanation:
        group, entry = self._entries[hit.position]
        tool, shown, tags = self._with_tags(entry)
        document = document_of(tool, shown, group.server_text, tags)
        words = self._index.explain(query, document, server_terms(group.server, group.server_text))
        return MatchExplanation(words, hit.lexical, hit.cosine, hit.score, hit.named)

    def _finish_words(self) -> None:
        while not self.ready and self._work is not None:
            self._advance()

    def _cosine(self, vectors: Floats | None) -> Floats | None:
        """How near each tool is to the query, or to the piece of it that is nearest; None where that says nothing."""
        if vectors is None or not vectors.any() or self._matrix is None or not self._known.any():
            return None
        nearness: Floats = self._matrix @ vectors.astype(np.float32, copy=False).T
        return nearness if nearness.ndim == 1 else nearness.max(axis=1)

    def _named(self, name: str, scores: Floats) -> list[int]:
        """Tools that `name` is the name of, those first that clients call exactly so."""
        named: list[int] = self._index.named(name)[:_MAX_NAMESAKES].tolist()
        return sorted(
            named, key=lambda position: (not self._called(position, name), -float(scores[position]), position)
        )

    def _called(self, position: int, name: str) -> bool:
        tool, shown, _ = self.entry(position)
        return name in (shown, tool.address)


def _parts(group: Group) -> Iterator[_Part]:
    """A server's tools in segments. Where one ends is told by names, so that a tool that comes or goes moves none."""
    start = 0
    for end, (tool, _, _) in enumerate(group.tools, 1):
        at_end = crc32(tool.name.encode(errors="replace")) % _USUAL_SEGMENT == 0 or end - start == _LARGEST_SEGMENT
        if at_end or end == len(group.tools):
            yield _Part(group.server, group.server_text, group.tools[start:end])
            start = end
