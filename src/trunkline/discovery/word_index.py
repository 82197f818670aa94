"""Tools found by words: which tool has which word, how telling a word is, and what ranks first."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from trunkline.discovery.facts import facts_of
from trunkline.discovery.words import EMPTY_WORDS, words
from trunkline.router.catalog import Entry

_TITLE: Final = 2.0
_SERVER: Final = 2.0
_PARAMETER: Final = 1.2
_DESCRIPTION: Final = 1.0
_BEGINNING: Final = 0.5
"""What a word counts that only begins like the one asked for: `repo` and `repository`."""
_SHORTEST_BEGINNING: Final = 3
_MAX_BEGINNINGS: Final = 50
_MAX_TEXT: Final = 4000
_MAX_PARAMETERS: Final = 200
_MAX_QUERY: Final = 1000
_MAX_QUERY_WORDS: Final = 32


class WordIndex:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._postings: dict[str, list[tuple[int, float]]] = {}
        self._vocabulary: list[str] = []

    def add(self, entry: Entry) -> None:
        position = len(self.entries)
        self.entries.append(entry)
        for word, weight in _weighted_words(entry).items():
            self._postings.setdefault(word, []).append((position, weight))

    def search(self, query: str) -> list[Entry]:
        """Every tool that has a word of the query, best first; equally good ones in the order of the list."""
        scores: dict[int, float] = {}
        hits: dict[int, int] = {}
        telling_words = 0
        for word in _query_words(query):
            found = self._scores_for(word)
            telling_words += bool(found)
            for position, score in found.items():
                scores[position] = scores.get(position, 0.0) + score
                hits[position] = hits.get(position, 0) + 1
        ranked = sorted(scores, key=lambda position: (-scores[position] * hits[position] / telling_words, position))
        return [self.entries[position] for position in ranked]

    def _scores_for(self, word: str) -> dict[int, float]:
        best: dict[int, float] = {}
        for candidate, factor in self._candidates(word):
            postings = self._postings.get(candidate, ())
            rarity = math.log(1 + (len(self.entries) - len(postings) + 0.5) / (len(postings) + 0.5))
            for position, weight in postings:
                best[position] = max(best.get(position, 0.0), rarity * weight * factor)
        return best

    def _candidates(self, word: str) -> Iterator[tuple[str, float]]:
        """The word, those that begin with it, and those that it begins with."""
        yield word, 1.0
        if len(word) < _SHORTEST_BEGINNING:
            return
        if len(self._vocabulary) != len(self._postings):
            self._vocabulary = sorted(self._postings)
        start = bisect_left(self._vocabulary, word)
        for other in self._vocabulary[start : start + _MAX_BEGINNINGS]:
            if other != word and other.startswith(word):
                yield other, _BEGINNING
        for length in range(max(_SHORTEST_BEGINNING + 1, (len(word) + 1) // 2), len(word)):
            yield word[:length], _BEGINNING


def _weighted_words(entry: Entry) -> dict[str, float]:
    """Each word of a tool with the weight of the best place it stands in. A short name says more by each word."""
    facts = facts_of(entry.tool)
    name = set(words(entry.tool.name))
    weighted = dict.fromkeys(words(facts.description[:_MAX_TEXT]), _DESCRIPTION)
    weighted |= dict.fromkeys(words(" ".join(facts.parameters[:_MAX_PARAMETERS])), _PARAMETER)
    weighted |= dict.fromkeys(words(facts.title[:_MAX_TEXT]), _TITLE)
    weighted |= dict.fromkeys(_shown_words(entry), _SERVER)
    weighted |= dict.fromkeys(name, 3.0 + 2.0 / max(len(name), 1))
    return weighted


def _shown_words(entry: Entry) -> Iterable[str]:
    """The server's name, and what the operator made of the tool's."""
    yield from words(entry.tool.source)
    yield from words(entry.exposed or "")


def _query_words(query: str) -> list[str]:
    found = list(dict.fromkeys(words(query[:_MAX_QUERY])))[:_MAX_QUERY_WORDS]
    return [word for word in found if word not in EMPTY_WORDS] or found
