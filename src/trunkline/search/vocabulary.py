"""The terms of all tools as numbers, the same for every index, so that one server's part fits any of them."""

from __future__ import annotations

from typing import Final

MAX_TERMS: Final = 400_000
_FREE_SHARE: Final = 0.25
_NEW_WHEN_SCARCE: Final = 12
"""New terms that a tool may bring when a quarter is taken: its name gets in, whatever fills the rest."""
_BEGINNING: Final = 3
_MAX_ALIKE: Final = 1000


class Vocabulary:
    def __init__(self, max_terms: int = MAX_TERMS) -> None:
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
