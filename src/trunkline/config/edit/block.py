"""Editing groups that are written by indentation, as YAML mostly is.

An entry is its lines, with the comments that are indented below it. A comment above an entry stays where it is: it may
be about what comes after.
"""

from __future__ import annotations

from typing import Final

from trunkline.config.edit.entry_text import Flow, Plain, block_lines
from trunkline.config.edit.outline import Member, Value
from trunkline.config.edit.text_edit import (
    CannotEdit,
    Edit,
    begins_its_line,
    indent_of,
    line_end,
    line_start,
    lines_from,
    newline_of,
)

_USUAL_UNIT: Final = "  "


def insert_block(text: str, root: Value, parent: Member, key: str, value: Plain) -> list[Edit]:
    """Add a key at the end of the group under `parent`, which is written by indentation or is empty."""
    if parent.value.form == "block":
        last = parent.value.members[-1]
        indent, after = indent_of(text, last.start), last.end
        return [_new_lines(text, root, after, indent, parent.value, key, value)]
    emptied = _without_value(text, parent)
    indent = indent_of(text, parent.start) + _unit(text, root)
    return [*emptied, _new_lines(text, root, parent.end, indent, None, key, value)]


def append_block(text: str, root: Value, key: str, value: Plain) -> list[Edit]:
    """Add a key at the end of the file; `root` is a group written by indentation, or nothing at all."""
    if root.form == "block":
        last = root.members[-1]
        return [_new_lines(text, root, last.end, indent_of(text, root.start), root, key, value)]
    newline = newline_of(text)
    lead = newline if text and not text.endswith("\n") else ""
    return [Edit(len(text), len(text), lead + _joined(block_lines(key, value, "", _USUAL_UNIT), newline))]


def remove_block(text: str, group: Value, member: Member) -> list[Edit]:
    """Take a key out, with the blank lines that kept it apart from the others."""
    start, end = _extent(text, member)
    is_first, is_last = member is group.members[0], member is group.members[-1]
    above = _blank_above(text, start)
    if is_last:
        start = above
    elif is_first or above < start:
        end = _blank_below(text, end)
    if end == len(text) and not text.endswith("\n"):
        # a file whose last line has no line break keeps it so
        start = len(text[:start].removesuffix("\n").removesuffix("\r"))
    return [Edit(start, end, "")]


def replace_block(text: str, root: Value, member: Member, value: Plain) -> list[Edit]:
    """Write a key anew where it stands."""
    start, end = _extent(text, member)
    lines = _entry_lines(text, root, member.value, member.key, value, indent_of(text, member.start))
    new = _joined(lines, newline_of(text))
    return [Edit(start, end, new if text[start:end].endswith("\n") else new.rstrip("\r\n"))]


def _new_lines(text: str, root: Value, after: int, indent: str, siblings: Value | None, key: str, value: Plain) -> Edit:
    newline = newline_of(text)
    at = _below(text, after, len(indent))
    lead = "" if text[:at].endswith("\n") else newline
    if siblings is not None and _stands_apart(text, siblings):
        lead += newline
    like = siblings.members[-1].value if siblings is not None and siblings is not root else None
    lines = _entry_lines(text, root, like, key, value, indent)
    new = lead + _joined(lines, newline)
    return Edit(at, at, new if text[:at].endswith("\n") or at < len(text) else new.removesuffix(newline))


def _entry_lines(text: str, root: Value, like: Value | None, key: str, value: Plain, indent: str) -> list[str]:
    """The key by indentation, or in braces on one line if the value it is to be `like` is in braces."""
    if like is not None and like.form == "flow":
        return [indent + Flow(json=False, unit=None).member(key, value, "")]
    return block_lines(key, value, indent, _unit(text, root))


def _joined(lines: list[str], newline: str) -> str:
    return newline.join(lines) + newline


def _without_value(text: str, parent: Member) -> list[Edit]:
    """An empty group, `{}` or `null` makes room for keys below it; a comment behind it stays."""
    start, end = parent.value.start, parent.value.end
    if start == end:
        return []
    while text[start - 1 : start] in (" ", "\t"):
        start -= 1
    return [Edit(start, end, "")]


def _unit(text: str, root: Value) -> str:
    """One step of indentation: as the file does it the first time."""
    for member in root.members:
        inner = member.value
        if inner.form == "block":
            return indent_of(text, inner.start)[len(indent_of(text, member.start)) :] or _USUAL_UNIT
    return _USUAL_UNIT


def _extent(text: str, member: Member) -> tuple[int, int]:
    """From the start of the key's line to behind the last line that belongs to it."""
    if not begins_its_line(text, member.start):
        raise CannotEdit(f"`{member.key}` does not stand on a line of its own")
    start = line_start(text, member.start)
    return start, _below(text, member.end, member.start - start + 1)


def _below(text: str, content_end: int, column: int) -> int:
    """Behind the content's last line and the comments after it that are indented at least to `column`."""
    end = line_end(text, content_end)
    for _, next_line, line in lines_from(text, end):
        bare = line.lstrip(" \t")
        if bare.startswith("#") and len(line) - len(bare) >= max(column, 1):
            end = next_line
        elif bare.strip():
            break
    return end


def _stands_apart(text: str, group: Value) -> bool:
    """Whether blank lines stand between the members."""
    return any(
        _blank_above(text, line_start(text, member.start)) < line_start(text, member.start)
        for member in group.members[1:]
    )


def _blank_above(text: str, start: int) -> int:
    """Where the blank lines right above this line begin."""
    while start and not text[(above := line_start(text, start - 1)) : start].strip():
        start = above
    return start


def _blank_below(text: str, end: int) -> int:
    for _, next_line, line in lines_from(text, end):
        if line.strip():
            break
        end = next_line
    return end
