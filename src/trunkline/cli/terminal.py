"""How commands look: tables that fit the terminal, colours where there is one, and a sign of life while one waits.

Everything shown comes from servers, so control characters are taken out before a terminal sees them.
"""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Final

import click

STATE_COLOURS: Final = {
    "ready": "green",
    "degraded": "yellow",
    "starting": "yellow",
    "auth_required": "yellow",
    "down": "red",
    "disabled": "bright_black",
}
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_GAP: Final = "  "
_WIDE: Final = ("W", "F")


def plain(text: str) -> str:
    """Text from outside on one line, without anything a terminal would obey."""
    return " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())


def shown_width(text: str) -> int:
    return sum(0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in _WIDE else 1 for ch in text)


def cut(text: str, width: int) -> str:
    """Text in at most so many columns."""
    if shown_width(text) <= width:
        return text
    kept, used = "", 1
    for ch in text:
        used += shown_width(ch)
        if used > width:
            break
        kept += ch
    return f"{kept.rstrip()}…"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], colours: Sequence[str | None] = ()) -> str:
    """Rows under their heads; the last column takes what is left of the line. `colours` are those of the first column
    but one, row by row. On anything but a terminal nothing is cut, so that programs see all of it."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(shown_width, column)) for column in zip(heads, *cells, strict=True)]
    room = sum(widths[:-1]) + len(_GAP) * (len(heads) - 1)
    last = max(20, terminal_width() - room) if sys.stdout.isatty() else widths[-1]
    lines = [click.style(_line(heads, widths, last), bold=True)]
    for row, colour in zip(cells, colours or [None] * len(cells), strict=True):
        lines.append(_line(row, widths, last, colour))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], last: int, colour: str | None = None) -> str:
    padded = [cell + " " * (width - shown_width(cell)) for cell, width in zip(cells[:-1], widths, strict=False)]
    if colour is not None and len(padded) > 1:
        padded[1] = click.style(padded[1], fg=colour)
    return _GAP.join([*padded, cut(cells[-1], last)]).rstrip()


def terminal_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


class Waiting:
    """A spinner on stderr with the newest word about what is waited for. Silent where nobody watches."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._shown = sys.stderr.isatty()
        self._frames = cycle(_FRAMES)
        self._on_screen = False

    def say(self, message: str) -> None:
        if message:
            self._message = message

    def draw(self) -> None:
        if not self._shown:
            return
        self._on_screen = True
        line = cut(f"{next(self._frames)} {plain(self._message)}", terminal_width() - 1)
        sys.stderr.write(f"\r\x1b[2K{click.style(line, dim=True)}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._on_screen:
            self._on_screen = False
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
