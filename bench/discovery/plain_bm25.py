"""Plain BM25 over name and description, as a textbook writes it: the floor that every search should beat."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from bench.discovery.sets import ToolText

K1, B = 1.2, 0.75
_WORD = re.compile(r"[a-z0-9]+")


class PlainBM25:
    title = "plain BM25, name + description"

    def __init__(self, tools: Sequence[ToolText]) -> None:
        self._ids = [tool.id for tool in tools]
        texts = [_words(f"{tool.name} {tool.description}") for tool in tools]
        self._length = [len(words) for words in texts]
        self._usual_length = sum(self._length) / max(1, len(texts))
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for position, words in enumerate(texts):
            for word, count in Counter(words).items():
                self._postings[word].append((position, count))

    def rank(self, query: str, most: int) -> list[str]:
        scores: dict[int, float] = defaultdict(float)
        for word in _words(query):
            postings = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._ids) - len(postings) + 0.5) / (len(postings) + 0.5))
            for position, count in postings:
                dampened = count + K1 * (1 - B + B * self._length[position] / self._usual_length)
                scores[position] += rarity * count * (K1 + 1) / dampened
        best = sorted(scores, key=lambda position: (-scores[position], position))
        return [self._ids[position] for position in best[:most]]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
