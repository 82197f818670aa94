"""\"Did you mean …?\": the nearest allowed word to one that is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LIST_AT_MOST: Final = 12
_LONGEST_TYPO: Final = 64


def nearest(word: str, allowed: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """The allowed word somebody who wrote `word` most likely meant; a higher cutoff asks for more likeness."""
    # a word of thousands of characters is no slip of the finger, and comparing it would be slow
    if not word or len(word) > _LONGEST_TYPO:
        return None
    by_plain = {_plain(candidate): candidate for candidate in allowed}
    plain = _plain(word)
    if plain in by_plain:
        return by_plain[plain]
    for plain_candidate, candidate in by_plain.items():
        if len(plain) > 2 and sorted(plain_candidate) == sorted(plain):
            return candidate
    from difflib import get_close_matches  # only a file with a mistake pays for this import

    matches = get_close_matches(plain, by_plain, n=1, cutoff=cutoff)
    return by_plain[matches[0]] if matches else None


def hint_for(word: str, allowed: Iterable[str], what: str) -> str:
    """The hint for a word that is not allowed: the nearest one, and all of them when they are few."""
    words = list(allowed)
    guess = nearest(word, words)
    if guess is not None:
        return f"did you mean `{guess}`?"
    if 0 < len(words) <= _LIST_AT_MOST:
        return f"{what}: {listed(words)}"
    return ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
