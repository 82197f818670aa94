"""Where in a file a piece of a text stands: prompts have many lines, and only one of them is wrong."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice
from typing import Final

from trunkline.agents.workflow.template import Reference
from trunkline.config.report import Span
from trunkline.config.tree import LINE_BREAK, Scalar

_MOST: Final = 500
"""Looking for a piece takes longer the longer the text is: a file full of them is not worth that."""


class Source:
    """The text of a file, by its places."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(line_break.end() for line_break in LINE_BREAK.finditer(text))]
        self._left = _MOST

    def place(self, node: Scalar, piece: str | Reference, nth: int = 0) -> Span:
        """The place of the piece inside the value, of several the one with this number (from 0); that of the value
        where it is not written out as it is."""
        self._left -= 1
        if self._left < 0:
            return node.span
        pattern = re.escape(piece) if isinstance(piece, str) else _pattern(piece)
        start = self._offset(node.span.line, node.span.column)
        end = self._offset(node.span.end_line, node.span.end_column)
        match = next(islice(re.compile(pattern).finditer(self._text, start, end), nth, None), None)
        if match is None or LINE_BREAK.search(match.group()):
            return node.span
        line = bisect_right(self._starts, match.start())
        column = match.start() - self._starts[line - 1] + 1
        return Span(line, column, line, column + len(match.group()))

    def _offset(self, line: int, column: int) -> int:
        return self._starts[min(line, len(self._starts)) - 1] + column - 1


def _pattern(reference: Reference) -> str:
    """However many blanks are in its braces, with or without the first dot."""
    inner = re.escape(str(reference)[3:-2])
    return rf"\{{\{{\s*\.?{inner}\s*\}}\}}"
