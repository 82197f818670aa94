"""Reads and writes the text of a git configuration without asking git, which would do what the text says."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

_NAME: Final = frozenset(string.ascii_letters + string.digits + "-")
_SPACE: Final = frozenset(" \t\n\r")
_ESCAPES: Final = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}
_WRITTEN: Final = {"\t": "\\t", "\b": "\\b", "\n": "\\n", "\\": "\\\\", '"': '\\"'}
_IN_SUBSECTION: Final = re.compile(r'["\\]')
_IN_VALUE: Final = re.compile(r'[\t\b\n"\\]')


class BadGitConfig(ValueError):
    """The text is not one that git would take."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of it. Section and key are in lower case; a key without `=` has no value, which git reads as true.

    What stands before the first section has none; git takes that, and makes nothing of it.
    """

    section: str
    subsection: str | None
    key: str
    value: str | None

    @property
    def name(self) -> str:
        """As `git config` spells it."""
        if not self.section:
            return self.key
        middle = "" if self.subsection is None else f".{self.subsection}"
        return f"{self.section}{middle}.{self.key}"


def parse(data: bytes) -> list[Entry]:
    """Every entry, in order. Raises BadGitConfig."""
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise BadGitConfig
    return list(_Reading(text).entries())


def written(entries: Iterable[Entry]) -> bytes:
    """A text that says the same as these entries, but for those without a section."""
    lines: list[str] = []
    placed = (entry for entry in entries if entry.section)
    for (section, subsection), group in groupby(placed, lambda entry: (entry.section, entry.subsection)):
        quoted = "" if subsection is None else f' "{_IN_SUBSECTION.sub(lambda found: chr(92) + found[0], subsection)}"'
        lines.append(f"[{section}{quoted}]")
        lines += [f"\t{entry.key}{_assigned(entry.value)}" for entry in group]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def _assigned(value: str | None) -> str:
    return "" if value is None else f' = "{_IN_VALUE.sub(lambda found: _WRITTEN[found[0]], value)}"'


class _Reading:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def entries(self) -> Iterator[Entry]:
        section = ""
        while found := self._next():
            if found in "#;":
                self._skip_line()
            elif found == "[":
                section = self._section()
            elif found not in _SPACE:
                yield self._entry(section, found)

    def _next(self) -> str | None:
        """The next character; None at the end."""
        if self._at >= len(self._text):
            return None
        self._at += 1
        return self._text[self._at - 1]

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end + 1

    def _section(self) -> str:
        found = ""
        while (character := self._next()) != "]":
            if character is not None and character in _SPACE:
                return f"{found}.{self._subsection(character)}"
            if character is None or (character not in _NAME and character != "."):
                raise BadGitConfig
            found += character.lower()
        return found

    def _subsection(self, character: str | None) -> str:
        while character in (" ", "\t", "\r"):
            character = self._next()
        if character != '"':
            raise BadGitConfig
        found = ""
        while (character := self._next()) != '"':
            if character == "\\":
                character = self._next()
            if character is None or character == "\n":
                raise BadGitConfig
            found += character
        if self._next() != "]":
            raise BadGitConfig
        return found

    def _entry(self, section: str, first: str) -> Entry:
        key, following = first, self._next()
        while following is not None and following in _NAME:
            key, following = key + following, self._next()
        while following in (" ", "\t"):
            following = self._next()
        value = self._value() if following == "=" else None
        name, _, subsection = section.partition(".")
        good = first in string.ascii_letters and set(key) <= _NAME and following in ("=", "\n", None)
        if not good or (section and not name):
            raise BadGitConfig
        return Entry(name, subsection if "." in section else None, key.lower(), value)

    def _value(self) -> str:
        found, spaces, quoted = "", "", False
        while (character := self._next()) not in ("\n", None):
            assert character is not None
            if not quoted and character in _SPACE:
                spaces += " " if found else ""
                continue
            if not quoted and character in "#;":
                self._skip_line()
                return found
            if character == '"':
                quoted = not quoted
                if not quoted or not spaces:
                    continue
                character = ""
            elif character == "\\":
                character = self._escaped()
            found, spaces = found + spaces + character, ""
        if quoted:
            raise BadGitConfig
        return found

    def _escaped(self) -> str:
        character = self._next()
        if character in ("\n", None):  # the end counts as the end of a line
            return ""
        if character not in _ESCAPES:
            raise BadGitConfig
        return _ESCAPES[character]
