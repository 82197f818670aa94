"""Editing TOML, where a server is a table under a header of its own: `[mcp_servers.NAME]`."""

from __future__ import annotations

import re
from typing import Final

from trunkline.config.edit.entry_text import Plain, toml_lines
from trunkline.config.edit.outline import Member, Value
from trunkline.config.edit.text_edit import CannotEdit, Edit, line_end, lines_from, newline_of

_HEADER: Final = re.compile(
    r"""[ \t]*\[{1,2}[ \t]*(?P<path>[^\[\]\r\n]+?)[ \t]*\]{1,2}[ \t]*(?:\#[^\r\n]*)?[\r\n]*\Z"""
)
_PART: Final = re.compile(
    r"""[ \t]*(?:"(?P<basic>[^"\\]*)"|'(?P<literal>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))[ \t]*(?:\.|\Z)"""
)


def append_toml(text: str, group: str, name: str, body: dict[str, Plain]) -> list[Edit]:
    """A new table at the end of the file, apart from what is there."""
    newline = newline_of(text)
    lead = "" if not text or text.endswith("\n") else newline
    apart = newline if text.strip() and not text.endswith(newline * 2) else ""
    new = newline.join(toml_lines(f"{group}.{name}", body)) + newline
    return [Edit(len(text), len(text), lead + apart + new)]


def remove_toml(text: str, group: str, name: str) -> list[Edit]:
    """Take the table out, and the tables inside it."""
    edits = [Edit(start, end, "") for start, end, path in _tables(text) if path[:2] == (group, name)]
    if not edits:
        raise CannotEdit(f"`{name}` has no table `[{group}.{name}]` of its own")
    return edits


def replace_toml(text: str, group: str, name: str, body: dict[str, Plain]) -> list[Edit]:
    """Write the table anew where its first header stands."""
    first, *others = remove_toml(text, group, name)
    newline = newline_of(text)
    blank = text[first.start : first.end]
    apart = blank[len(blank.rstrip()) :]
    new = newline.join(toml_lines(f"{group}.{name}", body)) + (apart or newline)
    return [first._replace(new=new), *others]


def outline_toml(text: str) -> Value:
    """Every group at the top with the tables in it that have a header of their own, each once."""
    root = Value(0, len(text))
    for start, end, path in _tables(text):
        if len(path) < 2:
            continue
        group = root.get(path[0])
        if group is None:
            group = Member(path[0], start, start, Value(start, end))
            root.members.append(group)
        if group.value.get(path[1]) is None:
            group.value.members.append(Member(path[1], start, start, Value(start, end)))
    return root


def _tables(text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """Each table from its header to the next one's comments, with its path."""
    tables: list[tuple[int, int, tuple[str, ...]]] = []
    headers = [(start, _HEADER.match(line)) for start, _, line in lines_from(text, 0)]
    starts = [(start, match) for start, match in headers if match is not None]
    for index, (start, match) in enumerate(starts):
        limit = starts[index + 1][0] if index + 1 < len(starts) else len(text)
        tables.append((start, _content_end(text, start, limit), _path(match["path"])))
    return tables


def _content_end(text: str, start: int, limit: int) -> int:
    """Behind the last line that is no comment, and the blank lines after it: comments there are the next table's."""
    end = line_end(text, start)
    for _, after, line in lines_from(text[:limit], end):
        if line.strip() and not line.lstrip().startswith("#"):
            end = after
    for _, after, line in lines_from(text[:limit], end):
        if line.strip():
            break
        end = after
    return end


def _path(written: str) -> tuple[str, ...]:
    parts: list[str] = []
    at = 0
    while at < len(written):
        part = _PART.match(written, at)
        if part is None:
            return ()
        parts.append(part["basic"] or part["literal"] or part["bare"] or "")
        at = part.end()
    return tuple(parts)
