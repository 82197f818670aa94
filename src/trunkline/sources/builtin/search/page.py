"""One page of a long result: what was asked for, what fits, and how much is left behind it."""

from __future__ import annotations

from trunkline.sources.builtin.text_size import units

_LOOK_AHEAD = 500
_CUT_CHARACTERS = 500
_BEFORE_MATCH = 100


class Page:
    """Takes line after line. `enough` turns true once it is full and what is left is known well enough."""

    def __init__(self, *, offset: int, limit: int, most_characters: int) -> None:
        self.lines: list[str] = []
        self.left = 0
        self.left_is_all = True
        self.wanted = offset + limit
        self._skip = offset
        self._limit = limit
        self._characters = most_characters

    @property
    def enough(self) -> bool:
        return self.left >= _LOOK_AHEAD

    def add(self, line: str) -> None:
        if self._skip:
            self._skip -= 1
        elif self.left or len(self.lines) >= self._limit or units(line) + 1 > self._characters:
            self.left += 1
        else:
            self._characters -= units(line) + 1
            self.lines.append(line)

    def stopped(self) -> None:
        """Nobody looked any further: there may be more than `left`."""
        self.left_is_all = False


def printable(name: str) -> str:
    """A name in one line, whatever its file is called."""
    if name.isprintable():
        return name
    plain = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in plain)


def cut(line: str, match_at: int) -> str:
    """A line short enough to show, around what was found in it."""
    if len(line) <= _CUT_CHARACTERS:
        return line
    start = 0 if match_at < _CUT_CHARACTERS - _BEFORE_MATCH else match_at - _BEFORE_MATCH
    end = start + _CUT_CHARACTERS
    left_out = f"[line of {len(line):,} characters, cut]"
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''} {left_out}"
