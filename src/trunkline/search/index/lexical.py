"""The lexical index: tools scored by the words of a request.

A segment holds a few tools of one server as arrays: which terms they have, with which weight. Segments are joined into
one index of a catalog. A vocabulary numbers the terms of all tools alike for every index, so a segment fits any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log1p
from typing import Final, NamedTuple

from trunkline.search.index.arrays import Floats, Integers, np
from trunkline.search.index.documents import (
    MOST_SATURATED,
    Document,
    ServerTerms,
    encoder_text,
    filter_tags,
    saturated,
    term_weights,
    term_weights_by_field,
)
from trunkline.search.index.stemming import stem
from trunkline.search.index.words import halves, joined_words, normalized_name, query_words

VOCABULARY_LIMIT: Final = 400_000
_FREE_SHARE: Final = 0.25
_NEW_WHEN_SCARCE: Final = 12
"""New terms that a tool may bring when a quarter is taken: its name gets in, whatever fills the rest."""
MAX_TOOL_TERMS: Final = 512
"""Terms of one tool that are indexed, beginning with those of its name."""
_BEGINNING: Final = 3
_MAX_ALIKE: Final = 1000


class Vocabulary:
    """Numbers the terms of all tools."""

    def __init__(self, max_terms: int = VOCABULARY_LIMIT) -> None:
        self._max_terms = max_terms
        self._numbers: dict[str, int] = {}
        self._by_beginning: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def full(self) -> bool:
        return len(self._numbers) >= self._max_terms

    def limit_after_next_tool(self) -> int:
        """How many terms there may be after the next tool, so that no server's words leave others without room."""
        if len(self._numbers) < self._max_terms * _FREE_SHARE:
            return self._max_terms
        return min(len(self._numbers) + _NEW_WHEN_SCARCE, self._max_terms)

    def find(self, term: str) -> int | None:
        return self._numbers.get(term)

    def number(self, term: str, most: int) -> int | None:
        """The term's number, a new one if it has none; None when there would be more than `most`."""
        known = self._numbers.get(term)
        if known is not None or len(self._numbers) >= most:
            return known
        alike = self._by_beginning.setdefault(term[:_BEGINNING], [])
        if len(alike) < _MAX_ALIKE:
            alike.append(term)
        return self._numbers.setdefault(term, len(self._numbers))

    def continued(self, beginning: str) -> list[str]:
        """Longer terms that begin with this text, the shortest first."""
        if len(beginning) < _BEGINNING:
            return []
        bucket = self._by_beginning.get(beginning[:_BEGINNING], ())
        found = [term for term in bucket if term != beginning and term.startswith(beginning)]
        return sorted(found, key=lambda term: (len(term), term))


@dataclass(frozen=True, slots=True)
class Segment:
    """Postings of a few tools, ordered by the numbers of their terms: the first `counts[0]` are those of `terms[0]`."""

    size: int
    terms: Integers
    counts: Integers
    tools: Integers
    impacts: Floats
    texts: tuple[str, ...]
    """The text of each tool for the encoder."""


class SegmentBuilder:
    """Collects the postings of tools, one tool at a time."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._numbers: list[int] = []
        self._tools: list[int] = []
        self._impacts: list[float] = []
        self._texts: list[str] = []

    def add(self, document: Document, server: ServerTerms, also: Sequence[str] = ()) -> None:
        names = (document.name, document.server + document.name, document.shown, *also)
        found = {name_key(name): 1.0 for name in names if normalized_name(name)}
        found |= {tag_key(tag): 1.0 for tag in filter_tags(document)}
        found |= islice(term_weights(document, server).items(), MAX_TOOL_TERMS)
        tool = len(self._texts)
        most = self._vocabulary.limit_after_next_tool()
        for term, weight in found.items():
            number = self._vocabulary.number(term, most)
            if number is not None:
                self._numbers.append(number)
                self._tools.append(tool)
                self._impacts.append(saturated(weight))
        self._texts.append(encoder_text(document))

    def finished(self) -> Segment:
        numbers = np.array(self._numbers, dtype=np.int32)
        order = np.argsort(numbers, kind="stable")
        terms, counts = np.unique(numbers, return_counts=True)
        return Segment(
            size=len(self._texts),
            terms=terms,
            counts=counts.astype(np.int32),
            tools=np.array(self._tools, dtype=np.int32)[order],
            impacts=np.array(self._impacts, dtype=np.float32)[order],
            texts=tuple(self._texts),
        )


def tag_key(tag: str) -> str:
    """The term of a tag, which no word of a text can be."""
    return "#" + tag.strip().casefold()


def name_key(name: str) -> str:
    """The term of a name in any spelling, which no word of a text can be."""
    return "=" + normalized_name(name)


_SIMILAR: Final = 0.5
"""The factor for a term that only begins like a word of the query: `repo` and `repository`."""
_SHORTEST_BEGINNING: Final = 4
_LONGEST_ENDING: Final = 2
_MAX_CONTINUED: Final = 20


class MatchedTerm(NamedTuple):
    """A term that some tools have, for a word of the query."""

    term: str
    start: int
    end: int
    rarity: float
    word: str


class LexicalIndex:
    """The postings of all tools of a catalog. `build` yields after each small piece of work; the index can be searched
    once it has come to its end."""

    def __init__(self, segments: Sequence[Segment], vocabulary: Vocabulary) -> None:
        self.size = sum(segment.size for segment in segments)
        self._segments = segments
        self._vocabulary = vocabulary
        self._known_terms = len(vocabulary)
        self._starts: Integers = np.zeros(1, dtype=np.int32)
        self._tools: Integers = np.zeros(0, dtype=np.int32)
        self._impacts: Floats = np.zeros(0, dtype=np.float32)

    def build(self) -> Iterator[None]:
        counts = np.zeros(self._known_terms, dtype=np.int32)
        for segment in self._segments:
            counts[segment.terms] += segment.counts
            yield
        self._starts = np.zeros(self._known_terms + 1, dtype=np.int32)
        np.cumsum(counts, out=self._starts[1:])
        self._tools = np.empty(int(self._starts[-1]), dtype=np.int32)
        self._impacts = np.empty(int(self._starts[-1]), dtype=np.float32)
        yield
        # Each segment's postings of a term go behind those of the segments before it.
        free = self._starts[:-1].copy()
        offset = 0
        for segment in self._segments:
            shift = free[segment.terms] - np.cumsum(segment.counts, dtype=np.int32) + segment.counts
            where = np.arange(len(segment.tools), dtype=np.int32) + np.repeat(shift, segment.counts)
            self._tools[where] = segment.tools + np.int32(offset)
            self._impacts[where] = segment.impacts
            free[segment.terms] += segment.counts
            offset += segment.size
            yield

    @property
    def live_terms(self) -> int:
        return int(np.count_nonzero(np.diff(self._starts)))

    def scores(self, query: str) -> Floats:
        scores = np.zeros(self.size, dtype=np.float32)
        for _, start, end, rarity, _ in self.matched_terms(query):
            scores[self._tools[start:end]] += self._impacts[start:end] * np.float32(rarity)
        return scores

    def unmatched_weight(self, query: str) -> float:
        """The most that those words of a query that no tool has could have added to a score."""
        unknown = set(query_words(query).values())
        unknown.difference_update(matched.word for matched in self.matched_terms(query))
        for term, words in joined_words(query) if unknown else ():
            if self._has(term):
                unknown.difference_update(words.split())
        return len(unknown) * MOST_SATURATED * log1p((self.size + 0.5) / 0.5)

    def named(self, name: str) -> Integers:
        """Tools with this name, address or shown name, however it is spelled."""
        start, end = self._range(name_key(name))  # a query without letters gives a term that no tool has
        return self._tools[start:end]

    def tagged(self, tag: str) -> Integers:
        start, end = self._range(tag_key(tag))
        return self._tools[start:end]

    def explain(self, query: str, document: Document, server: ServerTerms) -> tuple[tuple[str, str, float], ...]:
        """Which word of the query was found in which field of a tool, and what that added to its score."""
        fields = term_weights_by_field(document, server)
        shares: dict[tuple[str, str], float] = {}
        for term, _, _, rarity, word in self.matched_terms(query):
            total = sum(found.get(term, 0.0) for _, found in fields)
            for field, found in fields:
                if term in found:
                    share = rarity * saturated(total) * found[term] / total
                    shares[word, field.name] = shares.get((word, field.name), 0.0) + share
        ranked = sorted(shares.items(), key=lambda item: -item[1])
        return tuple((word, field, share) for (word, field), share in ranked)

    def matched_terms(self, query: str) -> list[MatchedTerm]:
        """The terms of a query that tools have. One that none has stands for similar ones."""
        found: dict[str, MatchedTerm] = {}
        for term, word in query_words(query).items():
            exact = self._matched(term, word)
            for matched in (exact,) if exact.end > exact.start else self._similar(term, word):
                if matched.term not in found or found[matched.term].rarity < matched.rarity:
                    found[matched.term] = matched
        for term, words in joined_words(query):
            joined = self._matched(term, words)
            if joined.end > joined.start:
                found.setdefault(term, joined)
        return list(found.values())

    def _similar(self, term: str, word: str) -> list[MatchedTerm]:
        """Longer terms that begin with this one, its own beginnings, and the halves that it may be made of."""
        longer = self._vocabulary.continued(term)
        # Only English words have lost their endings; other words match if they differ in the last letters only.
        for beginning in () if term.isascii() else shorter(term)[:_LONGEST_ENDING]:
            others = self._vocabulary.continued(beginning)
            longer += [other for other in others if len(other) <= len(term) + _LONGEST_ENDING]
        continued = islice(filter(self._has, longer), _MAX_CONTINUED)
        similar = dict.fromkeys((*self._made_of(word), *continued, *filter(self._has, shorter(term))))
        found = [self._matched(other, word) for other in similar]
        return [matched._replace(rarity=matched.rarity * _SIMILAR) for matched in found]

    def _made_of(self, word: str) -> tuple[str, ...]:
        for first, second in halves(word):
            if self._has(first) and self._has(stem(second)):
                return first, stem(second)
        return ()

    def _has(self, term: str) -> bool:
        start, end = self._range(term)
        return end > start

    def _matched(self, term: str, word: str) -> MatchedTerm:
        start, end = self._range(term)
        rarity = log1p((self.size - (end - start) + 0.5) / (end - start + 0.5))
        return MatchedTerm(term, start, end, rarity, word)

    def _range(self, term: str) -> tuple[int, int]:
        number = self._vocabulary.find(term)
        if number is None or number >= self._known_terms:
            return 0, 0
        return int(self._starts[number]), int(self._starts[number + 1])


def shorter(term: str) -> list[str]:
    """The beginnings of a term, the longest first."""
    shortest = max(_SHORTEST_BEGINNING, (len(term) + 1) // 2)
    return [term[:length] for length in range(len(term) - 1, shortest - 1, -1)]
