"""Edits a key in the text of a YAML or JSON document; every other byte stays as it is.

A block mapping is edited by lines, a flow mapping between its commas. Comments indented below an entry belong to
it; a comment above an entry stays, as it may be about what comes next.
"""

from __future__ import annotations

import re
from json import dumps
from typing import Final, NamedTuple

from trunkline.config.edit.outline import (
    Outline,
    OutlineKey,
    TextEdit,
    begins_its_line,
    blank_lines_above,
    indent_of,
    line_end,
    line_start,
    lines_from,
    newline_of,
    outline_json,
    outline_yaml,
    skip_blank_lines,
)
from trunkline.config.tree import plain_scalar_kind

EntryValue = str | bool | list[str] | dict[str, "EntryValue"]
"""The values in an entry."""

_USUAL_UNIT: Final = "  "
_EMPTY: Final = re.compile(r"(?:\{[ \t]*\}|null|~)?\Z")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/|#[^\n]*", re.DOTALL)
_END_OF_LINE: Final = re.compile(r"[ \t]*(?:(?://|#)[^\n]*|/\*[^\n]*?\*/[ \t]*)?\r?\n")


class CannotEdit(Exception):
    """The text cannot be edited safely; the message says why."""


class YamlText:
    """A valid YAML or JSON text, and the edits that change one key."""

    def __init__(self, text: str, *, json: bool) -> None:
        self._text = text
        self._json = json
        self._newline = newline_of(text)
        self.root = outline_json(text) if json else outline_yaml(text)

    def add(self, path: tuple[str, ...], key: str, value: EntryValue) -> list[TextEdit]:
        """Add a key at the end of the mapping at `path`, in the style of the file; a missing mapping is created."""
        parent = self.root.follow(path)
        if parent is None:
            return self._add_to_root(path[0], {key: value})
        written = self._text[parent.value.start : parent.value.end]
        if parent.value.style == "block" or (self.root.style == "block" and _EMPTY.match(written)):
            return self._add_lines(parent, key, value)
        if parent.value.style == "flow":
            return self._add_to_flow(parent.value, key, value)
        if written == "null" and len(path) == 1:
            return self._replace_in_flow(self.root, parent, {key: value})
        raise CannotEdit(f"`{'.'.join(path)}` is not written out as a mapping here")

    def replace(self, path: tuple[str, ...], member: OutlineKey, value: EntryValue) -> list[TextEdit]:
        """Replace a key of the mapping at `path`."""
        mapping = self._mapping(path)
        if mapping.style == "flow":
            return self._replace_in_flow(mapping, member, value)
        start, end = self._lines_of(member)
        lines = self._entry_lines(member.value, member.key, value, indent_of(self._text, member.start))
        new = self._newline.join([*lines, ""])
        return [TextEdit(start, end, new if self._text[start:end].endswith("\n") else new.rstrip("\r\n"))]

    def remove(self, path: tuple[str, ...], member: OutlineKey) -> list[TextEdit]:
        """Remove a key of the mapping at `path`, with the comma or the blank lines beside it."""
        mapping = self._mapping(path)
        if mapping.style == "flow":
            return self._remove_from_flow(mapping, member)
        return self._remove_lines(mapping, member)

    def entry(self, path: tuple[str, ...], key: str, value: EntryValue) -> list[str]:
        """The lines of a key of the mapping at `path`, for a user to copy."""
        return FlowStyle(json=True).member(key, value).split("\n") if self._json else block_lines(key, value)

    def _mapping(self, path: tuple[str, ...]) -> Outline:
        parent = self.root.follow(path)
        assert parent is not None
        return parent.value

    def _add_to_root(self, key: str, value: EntryValue) -> list[TextEdit]:
        root, text = self.root, self._text
        if root.style == "flow":
            return self._add_to_flow(root, key, value)
        if root.style == "block":
            return self._add_lines(None, key, value)
        if root.start != root.end:
            raise CannotEdit("the file is not a mapping")
        if self._json:
            return [TextEdit(0, len(text), FlowStyle(json=True).value({key: value}) + "\n")]
        lead = self._newline if text and not text.endswith("\n") else ""
        return [TextEdit(len(text), len(text), lead + self._newline.join([*block_lines(key, value), ""]))]

    # -- block mappings ----------------------------------------------------------------------------------------

    def _add_lines(self, parent: OutlineKey | None, key: str, value: EntryValue) -> list[TextEdit]:
        """Add a key at the end of the mapping under `parent`, or of the whole file."""
        text, newline = self._text, self._newline
        mapping = self.root if parent is None else parent.value
        cleared: list[TextEdit] = []
        if mapping.members:
            like_key = mapping.start if parent is None else mapping.members[-1].start
            content_end, indent = mapping.members[-1].end, indent_of(text, like_key)
        else:  # `{}` or `null` makes room for keys below it; a comment behind it stays
            assert parent is not None
            content_end, indent = parent.end, indent_of(text, parent.start) + self._indent_unit()
            if mapping.start < mapping.end:
                cleared = [TextEdit(len(text[: mapping.start].rstrip(" \t")), mapping.end, "")]
        at = self._end_of_comments(content_end, len(indent))
        lead = "" if text[:at].endswith("\n") else newline
        starts = [line_start(text, member.start) for member in mapping.members[1:]]
        apart = newline if any(blank_lines_above(text, start) < start for start in starts) else ""
        like = mapping.members[-1].value if mapping.members and parent is not None else None
        new = lead + apart + newline.join([*self._entry_lines(like, key, value, indent), ""])
        return [*cleared, TextEdit(at, at, new.removesuffix(newline) if lead else new)]

    def _remove_lines(self, mapping: Outline, member: OutlineKey) -> list[TextEdit]:
        text = self._text
        start, end = self._lines_of(member)
        above = blank_lines_above(text, start)
        if member is mapping.members[-1]:
            start = above
        elif member is mapping.members[0] or above < start:
            end = skip_blank_lines(text, end)
        if end == len(text) and not text.endswith("\n"):
            # a file without a final line break keeps it so
            start = len(text[:start].removesuffix("\n").removesuffix("\r"))
        return [TextEdit(start, end, "")]

    def _entry_lines(self, like: Outline | None, key: str, value: EntryValue, indent: str) -> list[str]:
        """The lines of a key: in block style, or in flow style on one line if the value `like` it is."""
        if like is not None and like.style == "flow":
            return [indent + FlowStyle(json=False, unit=None).member(key, value)]
        return block_lines(key, value, indent, self._indent_unit())

    def _indent_unit(self) -> str:
        """One step of indentation, from the first in the file."""
        for member in self.root.members:
            if member.value.style == "block":
                outer, inner = indent_of(self._text, member.start), indent_of(self._text, member.value.start)
                return inner[len(outer) :] or _USUAL_UNIT
        return _USUAL_UNIT

    def _lines_of(self, member: OutlineKey) -> tuple[int, int]:
        """The range of the lines that belong to a key."""
        if not begins_its_line(self._text, member.start):
            raise CannotEdit(f"`{member.key}` is not on a line of its own")
        start = line_start(self._text, member.start)
        return start, self._end_of_comments(member.end, member.start - start + 1)

    def _end_of_comments(self, content_end: int, column: int) -> int:
        """The end of the content's last line, and of the comments after it that are indented at least to `column`."""
        last = line_end(self._text, content_end)
        for end, line in lines_from(self._text, last):
            bare = line.lstrip(" \t")
            if bare.startswith("#") and len(line) - len(bare) >= max(column, 1):
                last = end
            elif bare.strip():
                break
        return last

    # -- flow mappings ---------------------------------------------------------------------------------------------

    def _add_to_flow(self, mapping: Outline, key: str, value: EntryValue) -> list[TextEdit]:
        if not mapping.members:
            return self._add_first(mapping, key, value)
        text, last, style = self._text, mapping.members[-1], self._style(mapping)
        behind = self._end_of_comma(last, mapping.end - 1)
        if begins_its_line(text, last.start):
            indent = indent_of(text, last.start)
            new = self._newline + indent + style.member(key, value, indent)
            # comments after the last key stay with it
            at = last.end + len(text[last.end : mapping.end - 1].rstrip())
        else:
            new = style.comma[1:] + style._replace(unit=None).member(key, value)
            at = behind
        if behind > last.end:
            return [TextEdit(at, at, f"{new},")]
        return [TextEdit(last.end, last.end, ","), TextEdit(at, at, new)]

    def _add_first(self, mapping: Outline, key: str, value: EntryValue) -> list[TextEdit]:
        """Add the first key of an empty mapping, on lines of its own unless the whole file is one line."""
        text, root = self._text, self.root
        inside = text.index("{", mapping.start) + 1
        style = self._spacing(like_json=self._json or self._has_needless_quotes(root))
        if "\n" not in text[root.start : root.end] and root.members:
            return [TextEdit(inside, mapping.end - 1, style._replace(unit=None).member(key, value))]
        indent, style = indent_of(text, inside), style._replace(colon=": ", comma=", ")
        deeper = indent + (style.unit or "")
        new = self._newline + deeper + style.member(key, value, deeper) + self._newline + indent
        return [TextEdit(inside + len(text[inside : mapping.end - 1].rstrip()), mapping.end - 1, new)]

    def _replace_in_flow(self, mapping: Outline, member: OutlineKey, value: EntryValue) -> list[TextEdit]:
        style = self._style(mapping)
        style = style if begins_its_line(self._text, member.start) else style._replace(unit=None)
        new = style.member(member.key, value, indent_of(self._text, member.start))
        return [TextEdit(member.start, member.value.end, new)]

    def _remove_from_flow(self, mapping: Outline, member: OutlineKey) -> list[TextEdit]:
        text, index = self._text, mapping.members.index(member)
        if member is not mapping.members[-1]:
            after = mapping.members[index + 1].start
            if begins_its_line(text, member.start) and begins_its_line(text, after):
                end = self._end_of_line(self._end_of_comma(member, after))
                return [TextEdit(line_start(text, member.start), end, "")]
            return [TextEdit(member.start, after, "")]
        if index:
            return self._remove_last(mapping, mapping.members[index - 1], member)
        inside, behind = text.index("{", mapping.start) + 1, self._end_of_comma(member, mapping.end - 1)
        if not (text[inside : member.start] + text[behind : mapping.end - 1]).strip():
            return [TextEdit(inside, mapping.end - 1, "")]
        return [TextEdit(member.start, behind, "")]

    def _remove_last(self, mapping: Outline, before: OutlineKey, member: OutlineKey) -> list[TextEdit]:
        """Remove the last key, with the comma before it unless the mapping has a trailing comma."""
        text = self._text
        behind = self._end_of_comma(member, mapping.end - 1)
        comma_behind = self._end_of_comma(before, member.start)
        ends_with_comma = behind > member.end
        comma = [] if ends_with_comma else [TextEdit(comma_behind - 1, comma_behind, "")]
        end = self._end_of_line(behind)
        if begins_its_line(text, member.start) and end > behind:
            # from line break to line break: a file that mixes kinds of them keeps the first
            above = len(text[: line_start(text, member.start)].rstrip("\r\n"))
            return [*comma, TextEdit(above, len(text[:end].rstrip("\r\n")), "")]
        if _COMMENT.search(text, before.end, member.start):  # it is about the one before, which stays
            return [*comma, TextEdit(member.start, behind, "")]
        return [TextEdit(comma_behind, behind, "")] if ends_with_comma else [TextEdit(before.end, member.end, "")]

    def _end_of_comma(self, member: OutlineKey, limit: int) -> int:
        """The end of the comma after this key, or of the key if there is none; commas in comments do not count."""
        after = _COMMENT.sub(lambda match: " " * len(match.group()), self._text[member.end : limit])
        return member.end + after.find(",") + 1

    def _end_of_line(self, offset: int) -> int:
        """The end of the line, where only a comment is left on it."""
        rest = _END_OF_LINE.match(self._text, offset)
        return offset if rest is None else rest.end()

    def _style(self, mapping: Outline) -> FlowStyle:
        """The style of the last key of a mapping."""
        root, last = self.root, mapping.members[-1]
        like_json = self._json or self._has_needless_quotes(root if root.style == "flow" else mapping)
        spread = last.value.style != "flow" or "\n" in self._text[last.value.start : last.value.end] or mapping is root
        style = self._spacing(like_json=like_json)
        return style if spread and begins_its_line(self._text, last.start) else style._replace(unit=None)

    def _spacing(self, *, like_json: bool) -> FlowStyle:
        """The file's indentation, and whether it has blanks after `:` and `,`."""
        text, root = self._text, self.root
        style = FlowStyle(like_json, newline=self._newline)
        first = root.members[0] if root.members else None
        if first is None:
            return style
        if like_json and text[first.key_end : first.value.start] == ":":
            style = style._replace(colon=":", comma=",")
        if root.style == "flow" and begins_its_line(text, first.start):
            unit = indent_of(text, first.start)[len(indent_of(text, root.start)) :]
            style = style._replace(unit=unit or _USUAL_UNIT)
        return style

    def _has_needless_quotes(self, mapping: Outline) -> bool:
        """Whether this is YAML written like JSON."""
        return any(self._text.startswith('"', key.start) and yaml_scalar(key.key) == key.key for key in mapping.members)


# -- writing entries -------------------------------------------------------------------------------------------------

_PLAIN: Final = re.compile(r"(?:--?)?(?:~/)?[A-Za-z_./][A-Za-z0-9_./@+=-]*\Z")
_PLAIN_WITH_COLON: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+=-]*(?::[A-Za-z0-9_./@+=-]+)+\Z")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def quoted(text: str) -> str:
    """Text in double quotes, as JSON, YAML and TOML all read it."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", dumps(text, ensure_ascii=False))


def yaml_scalar(value: str | bool, *, in_flow: bool = False) -> str:
    """A scalar, in quotes unless all YAML parsers read it alike without them."""
    if isinstance(value, bool):
        return dumps(value)
    plain = _PLAIN.match(value) or (not in_flow and _PLAIN_WITH_COLON.match(value))
    return value if plain and plain_scalar_kind(value) == "text" else quoted(value)


def block_lines(key: str, value: EntryValue, indent: str = "", unit: str = _USUAL_UNIT) -> list[str]:
    """A key with its value in YAML as a block mapping; lists are on one line."""
    if isinstance(value, dict):
        inner = (block_lines(name, item, indent + unit, unit) for name, item in value.items())
        return [f"{indent}{yaml_scalar(key)}:", *(line for lines in inner for line in lines)]
    written = FlowStyle(json=False).value(value) if isinstance(value, list) else yaml_scalar(value)
    return [f"{indent}{yaml_scalar(key)}: {written}"]


class FlowStyle(NamedTuple):
    """The style of flow mappings: `unit` is one step of indentation, or None for a single line."""

    json: bool
    unit: str | None = _USUAL_UNIT
    colon: str = ": "
    comma: str = ", "
    newline: str = "\n"

    def member(self, key: str, value: EntryValue, indent: str = "") -> str:
        """A key with its value; `indent` is that of its line."""
        return f"{self._scalar(key)}{self.colon}{self.value(value, indent)}"

    def value(self, value: EntryValue, indent: str = "") -> str:
        if isinstance(value, list):
            return f"[{self.comma.join(map(self._scalar, value))}]"
        if not isinstance(value, dict):
            return self._scalar(value)
        if self.unit is None:
            return f"{{{self.comma.join(self.member(key, inner) for key, inner in value.items())}}}"
        deeper = indent + self.unit
        lines = f",{self.newline}".join(deeper + self.member(key, inner, deeper) for key, inner in value.items())
        return f"{{{self.newline}{lines}{self.newline}{indent}}}"

    def _scalar(self, value: str | bool) -> str:
        if self.json:
            return dumps(value) if isinstance(value, bool) else quoted(value)
        return yaml_scalar(value, in_flow=True)
