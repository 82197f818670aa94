"""Parses TOML to a tree with positions: the standard library reads the values, a scanner beside it finds positions.

Should the scanner lose its way, the positions found so far are right and the others are missing.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from typing import Final, NamedTuple, cast

from trunkline.config.problems import InvalidValue, Report, TextPositions, TextSpan, span_at
from trunkline.config.tree import MAX_DEPTH, ListNode, Node, Scalar, Table, TreeBuilder
from trunkline.core.errors import CONFIG_SYNTAX, CONFIG_TOO_DEEP

PathPart = str | int
"""A key, or an index in a list."""

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


class EntrySpans(NamedTuple):
    """The positions of a key and its value."""

    key: TextSpan
    value: TextSpan


def find_spans(text: str) -> dict[tuple[PathPart, ...], EntrySpans]:
    """The positions of every key and list item that is written out, by the path to it."""
    return _Scanner(text).spans


def find_headers(text: str) -> list[tuple[int, tuple[PathPart, ...]]]:
    """The offset of every header (`[a.b]`, `[[c]]`), with the path to its table."""
    return _Scanner(text).headers


class _ScanError(Exception):
    """The scanner does not find what it expects."""


class _Scanner:
    """Finds positions in a document that is known to be valid."""

    def __init__(self, text: str) -> None:
        self.spans: dict[tuple[PathPart, ...], EntrySpans] = {}
        self.headers: list[tuple[int, tuple[PathPart, ...]]] = []
        self._text = text
        self._at = 0
        self._positions = TextPositions(text)
        self._tables: dict[tuple[PathPart, ...], int] = {}
        """How many tables each list of tables has so far."""
        with contextlib.suppress(_ScanError, RecursionError):
            self._scan()

    def _scan(self) -> None:
        table: tuple[PathPart, ...] = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._key_and_value(table)
            self._skip(_BLANK)

    def _header(self) -> tuple[PathPart, ...]:
        start = self._at
        one_of_many = self._text.startswith("[[", self._at)
        self._at += 2 if one_of_many else 1
        self._skip(_BLANK)
        keys = self._keys()
        self._skip(_CLOSING)
        text, span = keys[-1]
        path = (*self._path((), keys[:-1]), text)
        self.spans.setdefault(path, EntrySpans(span, span))
        if one_of_many:
            index = self._tables[path] = self._tables.get(path, -1) + 1
            path = (*path, index)
            self.spans[path] = EntrySpans(span, span)
        self.headers.append((start, path))
        return path

    def _path(self, path: tuple[PathPart, ...], keys: list[tuple[str, TextSpan]]) -> tuple[PathPart, ...]:
        """The path through these keys; in a list of tables, through the latest one."""
        for text, span in keys:
            if len(path) > MAX_DEPTH:
                raise _ScanError  # deeper values are refused, and each path holds all the parts before it
            path = (*path, text)
            self.spans.setdefault(path, EntrySpans(span, span))
            if path in self._tables:
                path = (*path, self._tables[path])
        return path

    def _key_and_value(self, table: tuple[PathPart, ...]) -> None:
        keys = self._keys()
        self._skip(_EQUALS)
        text, span = keys[-1]
        path = (*self._path(table, keys[:-1]), text)
        start = self._at
        self._value(path)
        self.spans[path] = EntrySpans(span, self._positions.span(start, self._at))

    def _value(self, path: tuple[PathPart, ...]) -> None:
        """Skip a value, keeping the positions of what is inside it."""
        here = self._text[self._at : self._at + 1]
        if here == "[":
            self._list(path)
        elif here == "{":
            while self._next_inside("}"):
                self._key_and_value(path)
        elif here in ('"', "'"):
            self._take(_STRING)
        else:
            bare = self._take(_BARE_VALUE)
            self._at -= len(bare) - len(bare.rstrip())

    def _list(self, path: tuple[PathPart, ...]) -> None:
        index = 0
        while self._next_inside("]"):
            start = self._at
            self._value((*path, index))
            span = self._positions.span(start, self._at)
            self.spans[*path, index] = EntrySpans(span, span)
            index += 1

    def _next_inside(self, closing: str) -> bool:
        """Skip the opening bracket or comma before an item; at the closing bracket, skip that and return False."""
        self._skip(_BLANK)
        if self._text[self._at : self._at + 1] in ("[", "{", ","):
            self._at += 1
            self._skip(_BLANK)
        if self._at >= len(self._text):
            raise _ScanError
        if self._text[self._at] != closing:
            return True
        self._at += 1
        return False

    def _keys(self) -> list[tuple[str, TextSpan]]:
        keys = [self._key()]
        while self._skip(_DOT):
            keys.append(self._key())
        return keys

    def _key(self) -> tuple[str, TextSpan]:
        start = self._at
        quoted = self._text[start : start + 1] in ('"', "'")
        written = self._take(_STRING if quoted else _BARE_KEY)
        text = tomllib.loads(f"key={written}")["key"] if quoted else written
        return text, self._positions.span(start, self._at)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _ScanError
        self._at = match.end()
        return match.group()

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        return match is not None


_AT: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)\Z")
# what the standard library needs for a key grows with the square of its parts
_LONG_KEY: Final = re.compile(r"""(?:\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+){100}""")


def parse_toml(text: str, report: Report) -> Node:
    """The tree of the TOML document in `text`. Raises InvalidValue, with the reason reported, if there is none."""
    long_key = _LONG_KEY.search(text)
    if long_key is not None:
        span = span_at(text, long_key.start())
        raise report.error(CONFIG_TOO_DEEP, span, "The file is nested too deeply", "no setting is nested that deeply")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(error, text, report) from None
    except RecursionError:
        raise report.error(CONFIG_TOO_DEEP, None, "The file is nested too deeply") from None
    except ValueError as error:  # dates and numbers that TOML allows and Python cannot hold
        raise report.error(CONFIG_SYNTAX, None, f"The file is not valid TOML: {error}") from None
    spans, builder = find_spans(text), TreeBuilder(report)

    def add(value: object, path: tuple[PathPart, ...], nearest: TextSpan) -> None:
        """Add a value; one whose position was not found has that of its table."""
        if isinstance(value, dict):
            builder.start(Table(nearest))
            for key, inner in cast(dict[str, object], value).items():
                found = spans.get((*path, key), EntrySpans(nearest, nearest))
                builder.scalar(Scalar(found.key, "text", key))
                add(inner, (*path, key), found.value)
            builder.end()
        elif isinstance(value, list):
            builder.start(ListNode(nearest))
            for index, inner in enumerate(cast(list[object], value)):
                add(inner, (*path, index), spans.get((*path, index), EntrySpans(nearest, nearest)).value)
            builder.end()
        else:
            builder.scalar(_scalar(value, nearest))

    add(values, (), TextSpan(1, 1, 1, 2))
    assert builder.root is not None
    return builder.root


def _scalar(value: object, span: TextSpan) -> Scalar:
    if isinstance(value, bool):
        return Scalar(span, "boolean", str(value).lower())
    text = str(value)
    # dates, `inf` and `nan` are not numbers in a configuration
    is_number = isinstance(value, (int, float)) and text[-1].isdigit()
    return Scalar(span, "number" if is_number else "text", text)


def _syntax_error(error: tomllib.TOMLDecodeError, text: str, report: Report) -> InvalidValue:
    what = str(error)
    at = _AT.search(what)
    what = what[:1].lower() + what[1 : None if at is None else at.start()]
    message = f"The file is not valid TOML: {what}"
    if at is None:
        return report.error(CONFIG_SYNTAX, None, message)
    offset = len(text)
    if at["line"] is not None:
        before = text.split("\n", int(at["line"]) - 1)
        offset = min(len(text), len(text) - len(before[-1]) + int(at["column"]) - 1)
    return report.error(CONFIG_SYNTAX, span_at(text, offset), message)
