"""Text and identifiers taken apart into the words that a search compares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_CHUNK: Final = re.compile(r"[^\W_]+")
_INNER_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CAMEL: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_SHORTEST_PLURAL: Final = 4
EMPTY_WORDS: Final = frozenset(
    {"a", "an", "and", "are", "at", "be", "by", "can", "do", "for", "from", "how", "i", "in", "is", "it", "me", "my"}
    | {"of", "on", "or", "some", "that", "the", "this", "to", "tool", "want", "what", "which", "with", "you"}
)
"""Words that people write around what they look for."""


def words(text: str) -> Iterator[str]:
    """Every word in lower case and singular; `createIssue` gives itself and its parts, as a name may be a brand."""
    for chunk in _CHUNK.findall(text):
        yield singular(chunk.casefold())
        if not chunk.islower() and _CAMEL.search(chunk):
            for part in _INNER_WORD.findall(chunk):
                yield singular(part.lower())


def singular(word: str) -> str:
    """A rough guess is enough: both sides of a comparison are treated alike."""
    if len(word) < _SHORTEST_PLURAL or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "ches", "shes", "xes")) else word[:-1]
