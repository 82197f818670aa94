"""Edits of a text by places, and the few questions about lines that all of them ask."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_INDENT: Final = re.compile(r"[ \t]*")


class Edit(NamedTuple):
    """The text from `start` to `end` is replaced by `new`."""

    start: int
    end: int
    new: str


class CannotEdit(Exception):
    """The text is of a form that cannot be edited safely; the message says which."""


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits, whose places are those of the text before and do not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def newline_of(text: str) -> str:
    """The line break the text uses."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_start(text: str, offset: int) -> int:
    """Where the line of this place begins."""
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """Behind the line break of this place's line, or the end of the text."""
    return text.find("\n", offset) + 1 or len(text)


def indent_of(text: str, offset: int) -> str:
    """What the line of this place begins with."""
    indent = _INDENT.match(text, line_start(text, offset))
    return "" if indent is None else indent.group()


def begins_its_line(text: str, offset: int) -> bool:
    return not text[line_start(text, offset) : offset].strip(" \t")


def lines_from(text: str, offset: int) -> Iterable[tuple[int, int, str]]:
    """Start, end and text of each line from the one that begins at `offset`."""
    while offset < len(text):
        end = line_end(text, offset)
        yield offset, end, text[offset:end]
        offset = end
