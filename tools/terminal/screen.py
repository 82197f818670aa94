"""What a program wrote to a terminal, as lines of styled characters: colours, carriage returns, erased lines.

Only what our own output uses is understood; other control sequences are dropped. Lines are never wrapped: how wide a
line may be is decided by whoever shows it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

_CONTROL: Final = re.compile(r"\x1b\[([0-9;?]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_UNFINISHED: Final = re.compile(r"\x1b(\[[0-9;?]*|\][^\x07\x1b]*)?\Z")
_TAB: Final = 8
_COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


@dataclass(frozen=True, slots=True)
class Style:
    colour: str = ""
    bold: bool = False
    dim: bool = False


PLAIN: Final = Style()
Cell = tuple[str, Style]
Line = list[Cell]


class Screen:
    """Takes bytes as a terminal gets them."""

    def __init__(self) -> None:
        self.lines: list[Line] = [[]]
        self._column = 0
        self._style = PLAIN
        self._pending = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        self._pending = text[unfinished.start() :] if unfinished else ""
        at = 0
        for control in _CONTROL.finditer(text := text[: len(text) - len(self._pending)]):
            self._write(text[at : control.start()])
            self._obey(control[1], control[2])
            at = control.end()
        self._write(text[at:])

    @property
    def text(self) -> list[str]:
        """The lines without their styles; no blanks at the ends, no empty lines at the end."""
        return [plain(line) for line in tidy(self.lines)]

    def _write(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self.lines.append([])
                self._column = 0
            elif character == "\r":
                self._column = 0
            elif character == "\t":
                self._put(" " * (_TAB - self._column % _TAB))
            elif character.isprintable():
                self._put(character)

    def _put(self, characters: str) -> None:
        line = self.lines[-1]
        line += [(" ", PLAIN)] * (self._column - len(line))
        line[self._column : self._column + len(characters)] = [(character, self._style) for character in characters]
        self._column += len(characters)

    def _obey(self, numbers: str | None, command: str | None) -> None:
        if command == "m":
            for number in (numbers or "0").split(";"):
                self._style = _styled(self._style, int(number or 0))
        elif command == "K":
            line = self.lines[-1]
            del line[0 if numbers in ("1", "2") else self._column :]


def _styled(style: Style, number: int) -> Style:
    """The style after one number of an SGR sequence."""
    if number == 0:
        return PLAIN
    if number in (1, 2):
        return replace(style, **{"bold" if number == 1 else "dim": True})
    if number == 22:
        return replace(style, bold=False, dim=False)
    if number == 39:
        return replace(style, colour="")
    if number in range(30, 38):
        return replace(style, colour=_COLOURS[number - 30])
    if number in range(90, 98):
        return replace(style, colour=f"bright_{_COLOURS[number - 90]}")
    return style


def plain(line: Line) -> str:
    return "".join(character for character, _ in line).rstrip()


def tidy(lines: Iterable[Line]) -> list[Line]:
    """The lines without empty ones at the end."""
    kept = list(lines)
    while kept and not plain(kept[-1]):
        kept.pop()
    return kept


def replaced(line: Line, pattern: re.Pattern[str], text: str) -> Line:
    """The line with every match replaced, in the style of the match's first character."""
    done: Line = []
    at = 0
    for match in pattern.finditer(plain(line)):
        style = line[match.start()][1]
        done += [*line[at : match.start()], *((character, style) for character in match.expand(text))]
        at = match.end()
    return done + line[at:]


def runs(line: Line) -> list[tuple[str, Style, int]]:
    """The stretches of one style: their text, style and column."""
    found: list[tuple[str, Style, int]] = []
    column = 0
    for style, cells in groupby(line, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        found.append((text, style, column))
        column += len(text)
    return found
