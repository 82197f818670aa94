"""Parses JSON to a tree with positions, which the standard library's parser does not keep, and without recursion.

Parsing is strict, but files of programs that accept comments and trailing commas may have them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal

from trunkline.config.problems import InvalidValue, Report, TextPositions, TextSpan
from trunkline.config.tree import ListNode, Node, Scalar, ScalarKind, SkippedValue, Table, TreeBuilder
from trunkline.core.errors import CONFIG_SYNTAX

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_BLANK_OR_COMMENT: Final = re.compile(r"(?:[ \t\n\r]+|//[^\n\r]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![0-9A-Za-z_.+-])")
_WORD: Final = re.compile(r"(?:true|false|null)\b")

_WORDS: Final[dict[str, ScalarKind]] = {"true": "boolean", "false": "boolean", "null": "null"}

_Expected = Literal["value", "first", "next", "comma", "end"]
"""`first` and `next` are members of a list or table; only a `first` one may be missing."""


def parse_json(text: str, report: Report, *, relaxed: bool = False, only: Collection[str] | None = None) -> Node:
    """The tree of the JSON value in `text`. Raises InvalidValue, with the reason reported, if there is none.

    `relaxed` allows comments and trailing commas. With `only`, the values of all other keys at the top level become
    SkippedValue nodes, however large they are.
    """
    return _JsonParser(text, report, relaxed=relaxed, only=only).parse()


class _JsonParser:
    """A state machine: `_expected` is what may come next."""

    def __init__(self, text: str, report: Report, *, relaxed: bool, only: Collection[str] | None) -> None:
        self._text = text
        self._report = report
        self._relaxed = relaxed
        self._blank = _BLANK_OR_COMMENT if relaxed else _BLANK
        self._only = only
        self._builder = TreeBuilder(report)
        self._closing: list[str] = []
        self._expected: _Expected = "value"
        self._at = 0
        self._positions = TextPositions(text)

    def parse(self) -> Node:
        self._skip_blank()
        if self._at == len(self._text):
            return Scalar(self._span(self._at, self._at), "null", "")
        while self._expected != "end":
            self._step()
            self._skip_blank()
        if self._at < len(self._text):
            raise self._error("text after the end of the JSON value")
        assert self._builder.root is not None
        return self._builder.root

    def _step(self) -> None:
        here, expected = self._peek(), self._expected
        if expected in ("comma", "first") and here == self._closing[-1]:
            self._take(1)
            self._closing.pop()
            self._builder.end()
            self._after_value()
        elif expected == "comma":
            if here != ",":
                raise self._error(f"expected `,` or `{self._closing[-1]}`")
            self._take(1)
            self._expected = "first" if self._relaxed else "next"
        elif expected != "value" and self._closing[-1] == "}":
            self._key()
        else:
            self._value(here)

    def _key(self) -> None:
        if self._peek() != '"':
            raise self._error("expected a key in double quotes", self._comma_hint())
        key = self._string()
        self._builder.scalar(key)
        self._skip_blank()
        if self._peek() != ":":
            raise self._error("expected `:` after the key")
        self._take(1)
        self._skip_blank()
        if self._only is None or len(self._closing) > 1 or key.text in self._only or not self._skip_value():
            self._expected = "value"

    def _value(self, here: str) -> None:
        if here in ("{", "["):
            self._builder.start(Table(self._take(1)) if here == "{" else ListNode(self._take(1)))
            self._closing.append("}" if here == "{" else "]")
            self._expected = "first"
            return
        if here == '"':
            self._builder.scalar(self._string())
        else:
            match = _WORD.match(self._text, self._at) or _NUMBER.match(self._text, self._at)
            if match is None:
                raise self._error("expected a value", self._comma_hint())
            word = match.group()
            self._builder.scalar(Scalar(self._take(len(word)), _WORDS.get(word, "number"), word))
        self._after_value()

    def _after_value(self) -> None:
        self._expected = "comma" if self._closing else "end"

    def _skip_value(self) -> bool:
        """Skip a value without parsing it into nodes; False if the standard library cannot decode it."""
        from json import JSONDecodeError, JSONDecoder

        try:
            value, end = JSONDecoder().raw_decode(self._text, self._at)
        except JSONDecodeError as error:
            self._at = error.pos
            raise self._error(error.msg.lower()) from None
        except (RecursionError, ValueError):
            return False  # parsing reports where it becomes too deep, and accepts numbers of any length
        span = self._positions.span(self._at, end)
        self._at = end
        self._builder.scalar(SkippedValue(span, value))
        self._after_value()
        return True

    def _string(self) -> Scalar:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("unterminated string, or an unescaped line break or control character in it")
        written = match.group()
        span = self._take(len(written))
        return Scalar(span, "text", self._unescape(written, span) if "\\" in written else written[1:-1])

    def _unescape(self, written: str, span: TextSpan) -> str:
        from json import JSONDecodeError, loads

        try:
            return loads(written)
        except JSONDecodeError as error:
            place = TextSpan(span.line, span.column + error.pos, span.line, span.column + error.pos + 1)
            raise self._report.error(CONFIG_SYNTAX, place, f"The file is not valid JSON: {error.msg.lower()}") from None

    def _comma_hint(self) -> str:
        before = self._text[: self._at].rstrip()
        if before.endswith(",") and self._peek() in ("}", "]"):
            return "remove the comma before it"
        if self._text.startswith(("//", "/*", "#"), self._at):
            return "JSON has no comments; YAML has"
        return ""

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, length: int) -> TextSpan:
        start, self._at = self._at, self._at + length
        return self._span(start, self._at)

    def _skip_blank(self) -> None:
        match = self._blank.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at

    def _span(self, start: int, end: int) -> TextSpan:
        line, column = self._positions.at(start)
        return TextSpan(line, column, line, column + end - start)

    def _error(self, message: str, hint: str = "") -> InvalidValue:
        place = self._span(self._at, self._at + 1)
        if self._at >= len(self._text):
            message = f"it ends too early: {message}"
        return self._report.error(CONFIG_SYNTAX, place, f"The file is not valid JSON: {message}", hint)
