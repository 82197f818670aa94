"""Splits text into word pieces, given as numbers of the encoder's vocabulary.

A text is lowered, its accents are dropped, and it is split at white space and around punctuation. A word is then the
longest pieces of the vocabulary from left to right; one that cannot be made of pieces is a single unknown piece.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_PIECES: Final = 72
"""The encoder learned from texts of this length: what follows is not read."""

MAX_CHARACTERS: Final = 4000
"""More than `MAX_PIECES` of ordinary text need; bounds the work for any other."""

_CONTINUED: Final = "##"
_ASCII_WORDS: Final = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_FIRST_CHINESE, _LAST_CHINESE = "\u4e00", "\u9fff"


class WordPieces:
    def __init__(self, pieces: list[str]) -> None:
        """The vocabulary in the order of its numbers. Raises KeyError when it lacks the pieces that mark a text."""
        self._numbers: Final = {piece: number for number, piece in enumerate(pieces)}
        self._longest: Final = max(map(len, pieces))
        self._unknown: Final = self._numbers["[UNK]"]
        self._begin: Final = self._numbers["[CLS]"]
        self._end: Final = self._numbers["[SEP]"]

    @classmethod
    def load(cls, path: Path) -> WordPieces:
        """One piece a line. Raises OSError, ValueError and KeyError."""
        return cls(path.read_text(encoding="utf-8").rstrip("\n").split("\n"))

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers(self, text: str) -> list[int]:
        """At most `MAX_PIECES`, between the marks for the beginning and the end."""
        numbers = [self._begin]
        for word in words(text):
            numbers += self._pieces(word)
            if len(numbers) >= MAX_PIECES - 1:
                break
        return [*numbers[: MAX_PIECES - 1], self._end]

    def _pieces(self, word: str) -> list[int]:
        pieces: list[int] = []
        start = 0
        while start < len(word):
            prefix = _CONTINUED if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                number = self._numbers.get(prefix + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return [self._unknown]
        return pieces


def words(text: str) -> Iterator[str]:
    text = text[:MAX_CHARACTERS].lower()
    if text.isascii():
        return (match.group() for match in _ASCII_WORDS.finditer(text))
    return iter("".join(map(_spaced, unicodedata.normalize("NFD", text))).split())


def _spaced(character: str) -> str:
    """The character as a part of its word, with spaces round it when it is a word itself, or nothing at all."""
    if character.isalnum():
        return f" {character} " if _FIRST_CHINESE <= character <= _LAST_CHINESE else character
    category = unicodedata.category(character)
    if category in ("Mn", "Cf"):  # accents, and marks that nobody sees
        return ""
    if category == "Cc":
        return " "
    stands_alone = category[0] == "P" or "!" <= character <= "~"
    return f" {character} " if stands_alone else character
