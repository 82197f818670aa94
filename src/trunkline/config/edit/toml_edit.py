"""Adds, replaces and removes a table in the text of a TOML document, where a server has a header: `[mcp_servers.NAME]`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trunkline.config.edit.outline import Member, Value
from trunkline.config.edit.yaml_edit import (
    CannotEdit,
    Edit,
    Plain,
    behind_blank_lines,
    line_end,
    line_start,
    lines_from,
    newline_of,
    quoted,
)
from trunkline.config.toml_places import Step, find_headers


def outline_toml(text: str) -> Value:
    """Every group at the top with the tables in it that have a header of their own, each once."""
    root = Value(0, len(text))
    for start, end, path in _tables(text):
        within = root
        for key in path[:2] if len(path) > 1 else ():
            member = within.get(str(key))
            if member is None:
                member = Member(str(key), start, start, Value(start, end))
                within.members.append(member)
            within = member.value
    return root


def add_table(text: str, group: str, name: str, body: Mapping[str, Plain]) -> list[Edit]:
    """A new table at the end of the file, with a blank line before it."""
    newline = newline_of(text)
    lead = "" if not text or text.endswith("\n") else newline
    apart = newline if text.strip() and not text.endswith(newline * 2) else ""
    return [Edit(len(text), len(text), lead + apart + newline.join([*table_lines(group, name, body), ""]))]


def remove_table(text: str, group: str, name: str) -> list[Edit]:
    """Take the table out, and the tables inside it."""
    edits = [Edit(start, end, "") for start, end, path in _tables(text) if path[:2] == (group, name)]
    if not edits:
        raise CannotEdit(f"`{name}` has no table `[{group}.{name}]` of its own")
    return edits


def replace_table(text: str, group: str, name: str, body: Mapping[str, Plain]) -> list[Edit]:
    """Write the table anew where its first header stands."""
    first, *others = remove_table(text, group, name)
    newline = newline_of(text)
    old = text[first.start : first.end]
    new = newline.join(table_lines(group, name, body)) + (old[len(old.rstrip()) :] or newline)
    return [first._replace(new=new), *others]


def table_lines(group: str, name: str, body: Mapping[str, Plain]) -> list[str]:
    """A table under its header."""
    return [f"[{group}.{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in body.items())]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def _value(value: Plain) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    return quoted(value)


def _tables(text: str) -> list[tuple[int, int, tuple[Step, ...]]]:
    """Each table from its header to behind its content, with its path."""
    headers = [(line_start(text, offset), path) for offset, path in find_headers(text)]
    limits = [*(start for start, _ in headers[1:]), len(text)]
    return [
        (start, _content_end(text, start, limit), path) for (start, path), limit in zip(headers, limits, strict=False)
    ]


def _content_end(text: str, start: int, limit: int) -> int:
    """Behind the last line that is no comment, and the blank lines after it: comments there are the next table's."""
    last = line_end(text, start)
    for end, line in lines_from(text[:limit], last):
        if line.strip() and not line.lstrip().startswith("#"):
            last = end
    return behind_blank_lines(text[:limit], last)
