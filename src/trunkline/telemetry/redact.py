"""Takes secrets out of text before it is logged: configured ones by value, bearer tokens and URL passwords by shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Final
from urllib.parse import quote

HIDDEN: Final = "***"
_SHORTEST_SECRET: Final = 4
"""Shorter values (`1`, `no`, `en`) are settings, not secrets; hiding them would make the log unreadable."""
_SHORTEST_PART: Final = 8
"""A part of a value (one line of a key, the token of an Authorization header) must be longer to count as secret."""

_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
"""Bytes of a variable that are no text; what a program prints of them is read as the sign for that."""
_BEARER: Final = re.compile(r"\b(bearer)\s+(?!tokens?\b)[^\s\"',;]+", re.IGNORECASE)
_URL_PASSWORD: Final = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*@")


class Redactor:
    """Knows the secret values of the configuration and replaces them, in the spellings they are likely to appear in."""

    __slots__ = ("_known", "_secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: re.Pattern[str] | None = None
        self._secrets: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Hide these too. Nothing is unlearned: a secret that was replaced may still turn up somewhere."""
        new = set(secrets) - self._secrets
        if not new:
            return
        self._secrets |= new
        spellings = {spelling for secret in self._secrets for spelling in _spellings(secret)}
        longest_first = sorted(spellings, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        return _URL_PASSWORD.sub(f"{HIDDEN}@", text)


def _spellings(secret: str) -> Iterator[str]:
    for value in _parts(secret.strip()):
        yield value
        yield _NO_TEXT.sub("\ufffd", value)
        yield quote(value, safe="", errors="replace")
        yield encode_basestring_ascii(value)[1:-1]
        yield repr(value)[1:-1]


def _parts(secret: str) -> Iterator[str]:
    """The value itself, and what is left of it where a program prints it line by line or word by word."""
    if len(secret) >= _SHORTEST_SECRET:
        yield secret
    for part in secret.split():
        if len(part) >= _SHORTEST_PART:
            yield part
