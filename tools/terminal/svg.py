"""Lines of a terminal as an SVG picture: text stays text, so that it can be selected, searched and read aloud.

The picture has a background of its own and reads well on light and dark pages. Every stretch of text is given its
width, so that columns line up whatever monospaced font is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape, unescape
from typing import Final

from tools.terminal.screen import Line, Style, plain, runs

_FONT_SIZE: Final = 14
_CELL_WIDTH: Final = 8.43
_LINE_HEIGHT: Final = 20
_MARGIN: Final = 18
_FONTS: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_BACKGROUND: Final = "#161b22"
_BORDER: Final = "#30363d"
_TEXT: Final = "#e6edf3"
_CONTINUED: Final = "  "
_ROW: Final = re.compile(r"<text [^>]*>(.*?)</text>")
_SPAN: Final = re.compile(r"<tspan [^>]*>(.*?)</tspan>")
_PALETTE: Final = {
    "black": "#484f58",
    "red": "#ff7b72",
    "green": "#56d364",
    "yellow": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#6cc7f6",
    "white": "#e6edf3",
    "bright_black": "#8b949e",
    "bright_red": "#ffa198",
    "bright_green": "#7ee787",
    "bright_yellow": "#f2cc60",
    "bright_blue": "#a5d6ff",
    "bright_magenta": "#e2c5ff",
    "bright_cyan": "#a5e3ff",
    "bright_white": "#ffffff",
}


def picture(lines: Iterable[Line], *, title: str, columns: int) -> str:
    """The SVG document. Longer lines go on in the next row, as in a terminal."""
    rows = [row for line in lines for row in _wrapped(line, columns)]
    width = round(columns * _CELL_WIDTH + 2 * _MARGIN)
    height = len(rows) * _LINE_HEIGHT + 2 * _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>text{{font:{_FONT_SIZE}px {_FONTS};white-space:pre;fill:{_TEXT}}}"
        ".b{font-weight:bold}.d{opacity:.65}"
        f"{''.join(_rule(colour) for colour in _used(rows))}</style>\n"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{_BACKGROUND}" '
        f'stroke="{_BORDER}"/>\n'
    )
    body = "\n".join(_row(row, number) for number, row in enumerate(rows) if plain(row))
    return f"{head}{body}\n</svg>\n"


def _rule(colour: str) -> str:
    return f".{colour}{{fill:{_PALETTE[colour]}}}"


def _used(rows: Iterable[Line]) -> list[str]:
    return sorted({style.colour for row in rows for _, style in row if style.colour})


def _wrapped(line: Line, columns: int) -> Iterator[Line]:
    yield line[:columns]
    for start in range(columns, len(line), columns - len(_CONTINUED)):
        yield [*((character, Style()) for character in _CONTINUED), *line[start : start + columns - len(_CONTINUED)]]


def _row(row: Line, number: int) -> str:
    baseline = _MARGIN + number * _LINE_HEIGHT + _FONT_SIZE
    spans = "".join(_span(*run) for run in runs(row[: len(plain(row))]))
    return f'<text y="{baseline}" xml:space="preserve">{spans}</text>'


def _span(text: str, style: Style, column: int) -> str:
    names = [style.colour] if style.colour else []
    names += ["b"] * style.bold + ["d"] * style.dim
    kind = f' class="{" ".join(names)}"' if names else ""
    x, length = _MARGIN + column * _CELL_WIDTH, len(text) * _CELL_WIDTH
    return f'<tspan x="{x:.2f}" textLength="{length:.2f}"{kind}>{escape(text, quote=False)}</tspan>'


def rows_of(document: str) -> list[str]:
    """The text of a picture, row by row, empty rows left out."""
    return [unescape("".join(_SPAN.findall(row))).rstrip() for row in _ROW.findall(document)]
