"""Segments put together into one index of a catalog, and tools scored by the words of a request."""

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
    labels,
    meaning_text,
    saturated,
    strengths,
    strengths_by_field,
)
from trunkline.search.index.stemming import stem
from trunkline.search.index.words import halves, joined_words, query_words, squashed

# The terms of all tools as numbers, the same for every index, so that one server's part fits any of them.

VOCABULARY_LIMIT: Final = 400_000
_FREE_SHARE: Final = 0.25
_NEW_WHEN_SCARCE: Final = 12
"""New terms that a tool may bring when a quarter is taken: its name gets in, whatever fills the rest."""
_BEGINNING: Final = 3
_MAX_ALIKE: Final = 1000


class Vocabulary:
    def __init__(self, max_terms: int = VOCABULARY_LIMIT) -> None:
        self._max_terms = max_terms
        self._numbers: dict[str, int] = {}
        self._by_beginning: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def full(self) -> bool:
        return len(self._numbers) >= self._max_terms

    def most_after_a_tool(self) -> int:
        """How many terms there may be after the next tool: no server's words leave no room for another's."""
        free = self._max_terms * _FREE_SHARE
        return (
            self._max_terms
            if len(self._numbers) < free
            else min(len(self._numbers) + _NEW_WHEN_SCARCE, self._max_terms)
        )

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
        """Terms that begin like this and go on, the shortest first."""
        if len(beginning) < _BEGINNING:
            return []
        bucket = self._by_beginning.get(beginning[:_BEGINNING], ())
        found = [term for term in bucket if term != beginning and term.startswith(beginning)]
        return sorted(found, key=lambda term: (len(term), term))


# A few tools of one server as arrays: which terms they have, and how much each says of which tool.


@dataclass(frozen=True, slots=True)
class Segment:
    """Postings in the order of their terms' numbers: the first `counts[0]` are those of `terms[0]`, and so on."""

    size: int
    terms: Integers
    counts: Integers
    tools: Integers
    impacts: Floats
    texts: tuple[str, ...]
    """What the encoder reads of each tool."""


MAX_TOOL_TERMS: Final = 512
"""Terms of one tool that are indexed, beginning with those of its name."""


class SegmentBuilder:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._numbers: list[int] = []
        self._tools: list[int] = []
        self._impacts: list[float] = []
        self._texts: list[str] = []

    def add(self, document: Document, server: ServerTerms, also: Sequence[str] = ()) -> None:
        found = dict.fromkeys(_names(document, also), 1.0)
        found |= {tagging_term(tag): 1.0 for tag in labels(document)}
        found |= islice(strengths(document, server).items(), MAX_TOOL_TERMS)
        self._add_postings(found)
        self._texts.append(meaning_text(document))

    def _add_postings(self, found: dict[str, float]) -> None:
        tool = len(self._texts)
        most = self._vocabulary.most_after_a_tool()
        for term, strength in found.items():
            number = self._vocabulary.number(term, most)
            if number is not None:
                self._numbers.append(number)
                self._tools.append(tool)
                self._impacts.append(saturated(strength))

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


def _names(document: Document, also: Sequence[str]) -> list[str]:
    names = (document.name, document.server + document.name, document.shown, *also)
    return [naming_term(name) for name in names if squashed(name)]


def tagging_term(tag: str) -> str:
    """A term for bearing a tag; no word of a text is like it."""
    return "#" + tag.strip().casefold()


def naming_term(name: str) -> str:
    """A term for being called so, the same for every spelling; no word of a text is like it."""
    return "=" + squashed(name)


_SIMILAR: Final = 0.5
"""What a term counts that only begins like the word asked for: `repo` and `repository`."""
_SHORTEST_BEGINNING: Final = 4
_LONGEST_ENDING: Final = 2
_MAX_CONTINUED: Final = 20


class Telling(NamedTuple):
    """A term that some tools have, for a word of the query."""

    term: str
    start: int
    end: int
    rarity: float
    word: str


class LexicalIndex:
    """`put_together` does the work in small pieces; the index can be asked when it has come to its end."""

    def __init__(self, segments: Sequence[Segment], vocabulary: Vocabulary) -> None:
        self.size = sum(segment.size for segment in segments)
        self._segments = segments
        self._vocabulary = vocabulary
        self._known_terms = len(vocabulary)
        self._starts: Integers = np.zeros(1, dtype=np.int32)
        self._tools: Integers = np.zeros(0, dtype=np.int32)
        self._impacts: Floats = np.zeros(0, dtype=np.float32)

    def put_together(self) -> Iterator[None]:
        counts = np.zeros(self._known_terms, dtype=np.int32)
        for segment in self._segments:
            counts[segment.terms] += segment.counts
            yield
        self._starts = np.zeros(self._known_terms + 1, dtype=np.int32)
        np.cumsum(counts, out=self._starts[1:])
        self._tools = np.empty(int(self._starts[-1]), dtype=np.int32)
        self._impacts = np.empty(int(self._starts[-1]), dtype=np.float32)
        yield
        yield from self._place()

    def _place(self) -> Iterator[None]:
        """Each segment's postings of a term go behind those of the segments before it."""
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
        for _, start, end, rarity, _ in self.telling(query):
            scores[self._tools[start:end]] += self._impacts[start:end] * np.float32(rarity)
        return scores

    def unsaid(self, query: str) -> float:
        """What the words of a query that no tool has could have added to a score."""
        unknown = set(query_words(query).values())
        unknown.difference_update(telling.word for telling in self.telling(query))
        for term, words in joined_words(query) if unknown else ():
            if self._has(term):
                unknown.difference_update(words.split())
        return len(unknown) * MOST_SATURATED * log1p((self.size + 0.5) / 0.5)

    def named(self, name: str) -> Integers:
        """Tools with this name, address or shown name, however it is spelled."""
        start, end = self._range(naming_term(name))  # a query without letters gives a term that no tool has
        return self._tools[start:end]

    def tagged(self, tag: str) -> Integers:
        start, end = self._range(tagging_term(tag))
        return self._tools[start:end]

    def explain(self, query: str, document: Document, server: ServerTerms) -> tuple[tuple[str, str, float], ...]:
        """Which word of the query was found in which field of a tool, and what that added to its score."""
        fields = strengths_by_field(document, server)
        shares: dict[tuple[str, str], float] = {}
        for term, _, _, rarity, word in self.telling(query):
            total = sum(found.get(term, 0.0) for _, found in fields)
            for field, found in fields:
                if term in found:
                    share = rarity * saturated(total) * found[term] / total
                    shares[word, field.name] = shares.get((word, field.name), 0.0) + share
        ranked = sorted(shares.items(), key=lambda item: -item[1])
        return tuple((word, field, share) for (word, field), share in ranked)

    def telling(self, query: str) -> list[Telling]:
        """What tools have of a query's terms. A term that none has stands for those that are like it."""
        found: dict[str, Telling] = {}
        for term, word in query_words(query).items():
            exact = self._telling(term, word)
            for telling in (exact,) if exact.end > exact.start else self._similar(term, word):
                if telling.term not in found or found[telling.term].rarity < telling.rarity:
                    found[telling.term] = telling
        for term, words in joined_words(query):
            joined = self._telling(term, words)
            if joined.end > joined.start:
                found.setdefault(term, joined)
        return list(found.values())

    def _similar(self, term: str, word: str) -> list[Telling]:
        """Terms that begin with this one or that it begins with, and the halves that it may be made of."""
        similar = dict.fromkeys((*self._made_of(word), *self._continued(term), *filter(self._has, shorter(term))))
        found = [self._telling(other, word) for other in similar]
        return [telling._replace(rarity=telling.rarity * _SIMILAR) for telling in found]

    def _continued(self, term: str) -> Iterator[str]:
        """The shortest terms that go on where this one ends, of those that tools have now."""
        found = [*self._vocabulary.continued(term), *self._other_forms(term)]
        return islice(filter(self._has, found), _MAX_CONTINUED)

    def _other_forms(self, term: str) -> Iterator[str]:
        """Only English words have lost their endings; of others those are taken that differ in the last letters."""
        for beginning in () if term.isascii() else shorter(term)[:_LONGEST_ENDING]:
            for other in self._vocabulary.continued(beginning):
                if len(other) <= len(term) + _LONGEST_ENDING:
                    yield other

    def _made_of(self, word: str) -> tuple[str, ...]:
        for first, second in halves(word):
            if self._has(first) and self._has(stem(second)):
                return first, stem(second)
        return ()

    def _has(self, term: str) -> bool:
        start, end = self._range(term)
        return end > start

    def _telling(self, term: str, word: str) -> Telling:
        start, end = self._range(term)
        rarity = log1p((self.size - (end - start) + 0.5) / (end - start + 0.5))
        return Telling(term, start, end, rarity, word)

    def _range(self, term: str) -> tuple[int, int]:
        number = self._vocabulary.find(term)
        if number is None or number >= self._known_terms:
            return 0, 0
        return int(self._starts[number]), int(self._starts[number + 1])


def shorter(term: str) -> list[str]:
    """What a term begins with, the longest first."""
    shortest = max(_SHORTEST_BEGINNING, (len(term) + 1) // 2)
    return [term[:length] for length in range(len(term) - 1, shortest - 1, -1)]
