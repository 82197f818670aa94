"""Edits a table in the text of a TOML document; every other byte stays as it is.

A server is a table with a header of its own, `[mcp_servers.NAME]`. Comments above a header belong to its table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trunkline.config.edit.outline import (
    Outline,
    OutlineKey,
    TextEdit,
    line_end,
    line_start,
    lines_from,
    newline_of,
    skip_blank_lines,
)
from trunkline.config.edit.yaml_edit import EntryValue, quoted
from trunkline.config.toml_parser import find_headers

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class TomlText:
    """A valid TOML text, and the edits that change one table. Paths have one key, the group of the table."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = newline_of(text)
        headers = [(line_start(text, offset), path) for offset, path in find_headers(text)]
        limits = [*(start for start, _ in headers[1:]), len(text)]
        ends = map(self._content_end, (start for start, _ in headers), limits)
        self._tables = [(start, end, path) for (start, path), end in zip(headers, ends, strict=True)]
        self.root = self._outline()

    def add(self, path: tuple[str, ...], key: str, value: Mapping[str, EntryValue]) -> list[TextEdit]:
        """Add a table at the end of the file, with a blank line before it."""
        text, newline = self._text, self._newline
        lead = "" if not text or text.endswith("\n") else newline
        apart = newline if text.strip() and not text.endswith(newline * 2) else ""
        new = newline.join([*table_lines(path[0], key, value), ""])
        return [TextEdit(len(text), len(text), lead + apart + new)]

    def replace(self, path: tuple[str, ...], member: OutlineKey, value: Mapping[str, EntryValue]) -> list[TextEdit]:
        """Replace a table at its first header."""
        first, *others = self.remove(path, member)
        old = self._text[first.start : first.end]
        new = self._newline.join(table_lines(path[0], member.key, value))
        return [first._replace(new=new + (old[len(old.rstrip()) :] or self._newline)), *others]

    def remove(self, path: tuple[str, ...], member: OutlineKey) -> list[TextEdit]:
        """Remove a table and the tables inside it."""
        return [TextEdit(start, end, "") for start, end, keys in self._tables if keys[:2] == (*path, member.key)]

    def entry(self, path: tuple[str, ...], key: str, value: Mapping[str, EntryValue]) -> list[str]:
        """The lines of a table, for a user to copy."""
        return table_lines(path[0], key, value)

    def _outline(self) -> Outline:
        """The groups at the top level, with the tables in them that have headers."""
        root = Outline(0, len(self._text))
        for start, end, path in self._tables:
            within = root
            for key in map(str, path[:2] if len(path) > 1 else ()):
                member = within.get(key)
                if member is None:
                    member = OutlineKey(key, start, start, Outline(start, end))
                    within.members.append(member)
                within = member.value
        return root

    def _content_end(self, start: int, limit: int) -> int:
        """The end of a table: later comments belong to the next one."""
        text = self._text[:limit]
        last = line_end(text, start)
        for end, line in lines_from(text, last):
            if line.strip() and not line.lstrip().startswith("#"):
                last = end
        return skip_blank_lines(text, last)


def table_lines(group: str, name: str, body: Mapping[str, EntryValue]) -> list[str]:
    """A table under its header."""
    return [f"[{group}.{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in body.items())]


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else quoted(key)


def _value(value: EntryValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    return quoted(value)
