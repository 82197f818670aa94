"""Where the keys and values of a TOML document stand. The document is valid: only places are looked for here.

A second reading beside the standard library's, which keeps no places. Should it ever lose its way, the places it has
found so far are right, and the others are missing.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from bisect import bisect_right
from typing import Final, NamedTuple

from trunkline.config.report import Span
from trunkline.config.tree import LINE_BREAK, MAX_DEPTH

Step = str | int
"""A key, or a position in a list."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_EQUALS: Final = re.compile(r"[ \t]*=[ \t]*")
_CLOSING: Final = re.compile(r"[ \t]*\]{1,2}")
_STRING: Final = re.compile(
    r'''
      """ (?: [^\\"]+ | \\. | "{1,2}(?!") )* "{3,5}
    | \'\'\' (?: [^']+ | '{1,2}(?!') )* '{3,5}
    | "(?:[^"\\]|\\.)*"
    | '[^']*'
    ''',
    re.VERBOSE | re.DOTALL,
)
_BARE_VALUE: Final = re.compile(r"[^,\]}#\r\n]+")


class Place(NamedTuple):
    key: Span
    value: Span


class _Key(NamedTuple):
    text: str
    start: int
    end: int


def find_places(text: str) -> dict[tuple[Step, ...], Place]:
    """The place of every key and list item that is written out, by the path to it."""
    return _scanned(text).places


def find_headers(text: str) -> list[tuple[int, tuple[Step, ...]]]:
    """The offset of every header (`[a.b]`, `[[c]]`), with the path to its table."""
    return _scanned(text).headers


def _scanned(text: str) -> _Scanner:
    scanner = _Scanner(text)
    with contextlib.suppress(_Lost, RecursionError):
        scanner.scan()
    return scanner


class _Lost(Exception):
    """The text is not what it should be here."""


class _Scanner:
    """A place in the text, and the table that the next key belongs to."""

    def __init__(self, text: str) -> None:
        self.places: dict[tuple[Step, ...], Place] = {}
        self.headers: list[tuple[int, tuple[Step, ...]]] = []
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in LINE_BREAK.finditer(text))]
        self._tables: dict[tuple[Step, ...], int] = {}
        """How many tables each list of tables has so far."""

    def scan(self) -> None:
        table: tuple[Step, ...] = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._key_and_value(table)
            self._skip(_BLANK)

    def _header(self) -> tuple[Step, ...]:
        start = self._at
        one_of_many = self._text.startswith("[[", self._at)
        self._at += 2 if one_of_many else 1
        self._skip(_BLANK)
        keys = self._keys()
        self._skip(_CLOSING)
        path = self._path((), keys[:-1])
        path = (*path, keys[-1].text)
        span = self._span(keys[-1].start, keys[-1].end)
        self.places.setdefault(path, Place(span, span))
        if one_of_many:
            index = self._tables[path] = self._tables.get(path, -1) + 1
            path = (*path, index)
            self.places[path] = Place(span, span)
        self.headers.append((start, path))
        return path

    def _path(self, path: tuple[Step, ...], keys: list[_Key]) -> tuple[Step, ...]:
        """The path through these keys; in a list of tables, through the latest one."""
        for key in keys:
            if len(path) > MAX_DEPTH:
                raise _Lost  # nobody will read that far, and each step holds all those before it
            path = (*path, key.text)
            span = self._span(key.start, key.end)
            self.places.setdefault(path, Place(span, span))
            if path in self._tables:
                path = (*path, self._tables[path])
        return path

    def _key_and_value(self, table: tuple[Step, ...]) -> None:
        keys = self._keys()
        self._skip(_EQUALS)
        path = (*self._path(table, keys[:-1]), keys[-1].text)
        start = self._at
        self._value(path)
        self.places[path] = Place(self._span(keys[-1].start, keys[-1].end), self._span(start, self._at))

    def _value(self, path: tuple[Step, ...]) -> None:
        """Go past a value, keeping the places of what is inside it."""
        here = self._text[self._at : self._at + 1]
        if here == "[":
            self._list(path)
        elif here == "{":
            self._inline_table(path)
        elif here in ('"', "'"):
            self._take(_STRING)
        else:
            bare = self._take(_BARE_VALUE)
            self._at -= len(bare) - len(bare.rstrip())

    def _list(self, path: tuple[Step, ...]) -> None:
        index = 0
        while self._next_inside("]"):
            start = self._at
            self._value((*path, index))
            span = self._span(start, self._at)
            self.places[*path, index] = Place(span, span)
            index += 1

    def _inline_table(self, path: tuple[Step, ...]) -> None:
        while self._next_inside("}"):
            self._key_and_value(path)

    def _next_inside(self, closing: str) -> bool:
        """Go past the opening bracket or the comma to what comes next; False, and past the end, at the closing one."""
        self._skip(_BLANK)
        if self._text[self._at : self._at + 1] in ("[", "{", ","):
            self._at += 1
            self._skip(_BLANK)
        if self._at >= len(self._text):
            raise _Lost
        if self._text[self._at] != closing:
            return True
        self._at += 1
        return False

    def _keys(self) -> list[_Key]:
        keys = [self._key()]
        while self._skip(_DOT):
            keys.append(self._key())
        return keys

    def _key(self) -> _Key:
        start = self._at
        quoted = self._text[start : start + 1] in ('"', "'")
        written = self._take(_STRING if quoted else _BARE_KEY)
        text = tomllib.loads(f"key={written}")["key"] if quoted else written
        return _Key(text, start, self._at)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _Lost
        self._at = match.end()
        return match.group()

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        return match is not None

    def _span(self, start: int, end: int) -> Span:
        return Span(*self._place(start), *self._place(end))

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1
