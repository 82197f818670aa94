"""A few tools of one server as arrays: which terms they have, and how much each says of which tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from trunkline.search.documents import Document, labels, meaning_text
from trunkline.search.fields import ServerTerms, saturated, strengths
from trunkline.search.numerics import Floats, Integers, np
from trunkline.search.vocabulary import Vocabulary
from trunkline.search.words import squashed


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


MAX_TERMS: Final = 512
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
        found |= islice(strengths(document, server).items(), MAX_TERMS)
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
