"""Rows in columns that fit the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click

from trunkline.cli.terminal import cut, plain, shown_width, terminal_width

_GAP: Final = "  "
_LEAST: Final = 8
"""Columns are not made narrower than this for the sake of others."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], colours: Sequence[str | None] = ()) -> str:
    """Rows under their heads. `colours` are those of the second column, row by row.

    On a terminal every line fits its width. Elsewhere nothing is cut, so that programs see all of it.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(shown_width, column)) for column in zip(heads, *cells, strict=True)]
    if sys.stdout.isatty():
        widths = fitted(widths, terminal_width(sys.stdout) - len(_GAP) * (len(heads) - 1))
    lines = [click.style(_line(heads, widths), bold=True)]
    for row, colour in zip(cells, colours or [None] * len(cells), strict=True):
        lines.append(_line(row, widths, colour))
    return "\n".join(lines)


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths that together take no more than there is room for: the widest column gives way first, and the first one,
    which names what the row is about, last of all."""
    fit = [min(width, max(room, _LEAST)) for width in widths]
    for columns in (range(1, len(fit)), range(len(fit))):
        while sum(fit) > room and columns:
            widest = max(columns, key=fit.__getitem__)
            if fit[widest] <= _LEAST:
                break
            fit[widest] -= 1
    return fit


def _line(cells: Sequence[str], widths: Sequence[int], colour: str | None = None) -> str:
    padded = [_padded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded[-1] = padded[-1].rstrip()
    if colour is not None and len(padded) > 1:
        padded[1] = click.style(padded[1], fg=colour)
    return _GAP.join(padded).rstrip()


def _padded(cell: str, width: int) -> str:
    shown = cut(cell, width)
    return shown + " " * (width - shown_width(shown))
