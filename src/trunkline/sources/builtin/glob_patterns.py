"""Path patterns of Glob and Grep as regular expressions: `*`, `**`, `?`, `[ab]`, `{a,b}` and `\\` to escape."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.tool import ToolFault

_LONGEST: Final = 4_000  # bytes: ripgrep reads a regular expression from a pipe
_MAX_DEPTH: Final = 10
_SET: Final = re.compile(r"([!^]?)((?:\\.|[^\\])(?:\\.|[^\]\\])*)\]", re.DOTALL)  # a `]` right after `[` is a member
_SET_MEMBER: Final = re.compile(r"(\\.|[^\\])-(\\.|[^\\])|(\\.|[^\\])", re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[\w.*?{},+@ !\^\[\]-]+")
_EMPTY_CHOICE: Final = re.compile(r"\{[,}]|,[,}]")
_SEPARATORS: Final = " ,\t\n"


@dataclass(frozen=True, slots=True)
class PathFilter:
    """A path is taken if it fully matches `wanted` (where there is one) and does not match `unwanted`.

    `names` are globs that the name of every wanted file fits, in a form that ripgrep reads the same way: they save
    work, the regular expressions decide. None at all where there are no such globs.
    """

    wanted: str | None
    unwanted: str | None
    names: Sequence[str]


def path_filter(patterns: Sequence[str]) -> PathFilter:
    """One of the plain patterns must fit, none of those that begin with `!` may. Raises ToolFault."""
    check_length("".join(patterns))
    wanted: list[str] = []
    unwanted: list[str] = []
    names: list[str | None] = []
    for pattern in patterns:
        if pattern.startswith("!"):
            unwanted.append(_regex(pattern[1:]))
        else:
            wanted.append(_regex(pattern))
            names.append(_name_part(pattern))
    known = [name for name in names if name is not None]
    return PathFilter("|".join(wanted) or None, "|".join(unwanted) or None, known if len(known) == len(names) else ())


def check_length(pattern: str) -> None:
    """Raises ToolFault."""
    if len(os.fsencode(pattern)) > _LONGEST:
        raise ToolFault(f"The pattern is longer than {_LONGEST:,} bytes")


def split_patterns(text: str) -> list[str]:
    """The patterns of a list written with blanks or commas; those inside braces belong to their pattern."""
    found: list[str] = []
    current, depth = "", 0
    for char in text:
        if char in _SEPARATORS and depth == 0:
            found.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}" and depth > 0)
        current += char
    return [pattern for pattern in [*found, current] if pattern]


def _regex(pattern: str) -> str:
    """A pattern without a `/` is about names at any depth, one with a `/` about paths from the folder searched."""
    path = pattern.removeprefix("./").removeprefix("/")
    if not path:
        raise ToolFault("A pattern for paths is empty")
    try:
        regex = _Translator(f"{path}**" if path.endswith("/") else path).run()
    except ValueError as error:
        raise ToolFault(f"{shown(pattern)} is not a pattern for paths: {error}") from None
    return f"(?:{regex})" if "/" in pattern else f"(?:(?:.*/)?{regex})"


def _name_part(pattern: str) -> str | None:
    name = pattern.rpartition("/")[2]
    plain = _PLAIN_NAME.fullmatch(name) and "**" not in name and not _EMPTY_CHOICE.search(name)
    return name if plain and name.count("{") == name.count("}") else None


class _Translator:
    """One pass over a pattern. Raises ValueError, with the reason, for what is none."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def run(self) -> str:
        return self._sequence(at_start=True)

    def _sequence(self, *, at_start: bool) -> str:
        """Up to the end of the pattern, or of the alternative inside braces."""
        out: list[str] = []
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if self._depth and char in ",}":
                break
            out.append(self._one(char, at_start=at_start))
            at_start = self._pattern[self._at - 1] == "/"
        return "".join(out)

    def _one(self, char: str, *, at_start: bool) -> str:
        if char == "*":
            return self._stars(at_start=at_start)
        self._at += 1
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._set()
        if char == "{":
            return self._choice(at_start=at_start)
        if char == "\\":
            self._at += 1
            if self._at > len(self._pattern):
                raise ValueError("it ends in a backslash that escapes nothing")
            return re.escape(self._pattern[self._at - 1])
        return re.escape(char)

    def _stars(self, *, at_start: bool) -> str:
        begin = self._at
        while self._pattern[self._at : self._at + 1] == "*":
            self._at += 1
        if self._at - begin == 2 and at_start:
            rest = self._pattern[self._at : self._at + 1]
            if rest == "/":
                self._at += 1
                return "(?:[^/]+/)*"
            if not rest or (self._depth and rest in ",}"):
                return ".+"
        return "[^/]*"

    def _choice(self, *, at_start: bool) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"braces are nested more than {_MAX_DEPTH} deep")
        alternatives = [self._sequence(at_start=at_start)]
        while self._pattern[self._at : self._at + 1] == ",":
            self._at += 1
            alternatives.append(self._sequence(at_start=at_start))
        if self._at >= len(self._pattern):
            raise ValueError("a `{` is never closed")
        self._at += 1
        self._depth -= 1
        return f"(?:{'|'.join(alternatives)})"

    def _set(self) -> str:
        """No set matches `/`."""
        found = _SET.match(self._pattern, self._at)
        if found is None:
            raise ValueError("a `[` is never closed")
        self._at = found.end()
        members = "".join(_set_member(member) for member in _SET_MEMBER.finditer(found[2]))
        return f"(?!/)[{'^' if found[1] else ''}{members}]"


def _set_member(member: re.Match[str]) -> str:
    if member[3]:
        return re.escape(member[3][-1])
    low, high = member[1][-1], member[2][-1]
    if low > high:
        raise ValueError(f"the range `{low}-{high}` is the wrong way round")
    return f"{re.escape(low)}-{re.escape(high)}"
