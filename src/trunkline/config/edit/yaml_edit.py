"""Adds, replaces and removes one key in the text of a YAML or JSON document; every other byte stays as it is.

A group that is written by indentation is edited by lines, one in braces between its commas. The comments that are
indented below an entry belong to it; a comment above one stays where it is: it may be about what comes after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from json import dumps
from typing import Final, NamedTuple

from trunkline.config.edit.outline import Member, Value, follow
from trunkline.config.plain import kind_of

Plain = str | bool | list[str] | dict[str, "Plain"]
"""What an entry is made of."""


class CannotEdit(Exception):
    """The text is of a form that cannot be edited safely; the message says which."""


class Edit(NamedTuple):
    """The text from `start` to `end` is replaced by `new`."""

    start: int
    end: int
    new: str


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits. Their offsets are those of the text before, and they do not overlap."""
    for edit in reversed(sorted(edits, key=lambda edit: edit.start)):  # of two at one place, the first stands first
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


# Edits ---------------------------------------------------------------------------------------------------------------

_EMPTY: Final = re.compile(r"(?:\{[ \t]*\}|null|~)?\Z")
_USUAL_UNIT: Final = "  "


def add_key(text: str, root: Value, path: tuple[str, ...], key: str, value: Plain, *, json: bool) -> list[Edit]:
    """Add a key at the end of the group at `path`, in the style of the file; the group is made if it is not there."""
    parent = follow(root, path)
    if parent is None:
        return _add_first(text, root, path[0], {key: value}, json=json)
    written = text[parent.value.start : parent.value.end]
    if parent.value.form == "block" or (root.form == "block" and _EMPTY.match(written)):
        return _add_lines(text, root, parent, key, value)
    if parent.value.form == "flow":
        return _add_in_braces(text, root, parent.value, key, value, json=json)
    if written == "null" and len(path) == 1:
        return _replace_in_braces(text, root, root, parent, {key: value}, json=json)
    raise CannotEdit(f"`{'.'.join(path)}` is not a group of keys that stands here")


def replace_key(
    text: str, root: Value, path: tuple[str, ...], member: Member, value: Plain, *, json: bool
) -> list[Edit]:
    """Write a key of the group at `path` anew where it stands."""
    group = _group_at(root, path)
    if group.form == "flow":
        return _replace_in_braces(text, root, group, member, value, json=json)
    start, end = _lines_of(text, member)
    lines = _entry_lines(text, root, member.value, member.key, value, indent_of(text, member.start))
    new = newline_of(text).join([*lines, ""])
    return [Edit(start, end, new if text[start:end].endswith("\n") else new.rstrip("\r\n"))]


def remove_key(text: str, root: Value, path: tuple[str, ...], member: Member) -> list[Edit]:
    """Take a key out of the group at `path`, with the comma or the blank lines between it and its neighbours."""
    group = _group_at(root, path)
    return (_remove_in_braces if group.form == "flow" else _remove_lines)(text, group, member)


def _group_at(root: Value, path: tuple[str, ...]) -> Value:
    parent = follow(root, path)
    assert parent is not None
    return parent.value


def _add_first(text: str, root: Value, key: str, value: Plain, *, json: bool) -> list[Edit]:
    if root.form == "flow":
        return _add_in_braces(text, root, root, key, value, json=json)
    if root.form == "other" and root.start != root.end:
        raise CannotEdit("the file is not a group of keys")
    if json:
        return [Edit(0, len(text), Style(json=True).value({key: value}, "") + "\n")]
    return _add_lines(text, root, None, key, value)


# Lines ---------------------------------------------------------------------------------------------------------------

_INDENT: Final = re.compile(r"[ \t]*")


def newline_of(text: str) -> str:
    """The line break the text uses."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_start(text: str, offset: int) -> int:
    """Where the line of this offset begins."""
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """Behind the line break of this offset's line, or the end of the text."""
    return text.find("\n", offset) + 1 or len(text)


def lines_from(text: str, offset: int) -> Iterable[tuple[int, str]]:
    """End and text of each line from the one that begins at `offset`."""
    while offset < len(text):
        end = line_end(text, offset)
        yield end, text[offset:end]
        offset = end


def behind_blank_lines(text: str, offset: int) -> int:
    """Where the blank lines that begin at `offset` end."""
    for end, line in lines_from(text, offset):
        if line.strip():
            break
        offset = end
    return offset


def indent_of(text: str, offset: int) -> str:
    """What the line of this offset begins with."""
    indent = _INDENT.match(text, line_start(text, offset))
    return "" if indent is None else indent.group()


def begins_its_line(text: str, offset: int) -> bool:
    return not text[line_start(text, offset) : offset].strip(" \t")


# Groups by indentation -----------------------------------------------------------------------------------------------


def _add_lines(text: str, root: Value, parent: Member | None, key: str, value: Plain) -> list[Edit]:
    """Add a key at the end of the group under `parent`, or of the whole file, that is written by indentation or empty."""
    group = root if parent is None else parent.value
    newline = newline_of(text)
    cleared: list[Edit] = []
    if group.form == "block":
        indent, content_end = indent_of(text, group.members[-1].start), group.members[-1].end
    elif parent is not None:
        indent, content_end = indent_of(text, parent.start) + _indent_unit(text, root), parent.end
        cleared = _without_value(text, parent)
    else:
        lead = newline if text and not text.endswith("\n") else ""
        return [Edit(len(text), len(text), lead + newline.join([*block_lines(key, value), ""]))]
    at = _behind_comments(text, content_end, len(indent))
    lead = "" if text[:at].endswith("\n") else newline
    apart = newline if _stands_apart(text, group) else ""
    like = group.members[-1].value if group.members and group is not root else None
    new = lead + apart + newline.join([*_entry_lines(text, root, like, key, value, indent), ""])
    return [*cleared, Edit(at, at, new.removesuffix(newline) if lead else new)]


def _remove_lines(text: str, group: Value, member: Member) -> list[Edit]:
    start, end = _lines_of(text, member)
    above = _blank_above(text, start)
    if member is group.members[-1]:
        start = above
    elif member is group.members[0] or above < start:
        end = behind_blank_lines(text, end)
    if end == len(text) and not text.endswith("\n"):
        # a file whose last line has no line break keeps it so
        start = len(text[:start].removesuffix("\n").removesuffix("\r"))
    return [Edit(start, end, "")]


def _entry_lines(text: str, root: Value, like: Value | None, key: str, value: Plain, indent: str) -> list[str]:
    """The key by indentation, or in braces on one line if the value it is to be `like` is in braces."""
    if like is not None and like.form == "flow":
        return [indent + Style(json=False, unit=None).member(key, value)]
    return block_lines(key, value, indent, _indent_unit(text, root))


def _without_value(text: str, parent: Member) -> list[Edit]:
    """An empty group, `{}` or `null` makes room for keys below it; a comment behind it stays."""
    start, end = parent.value.start, parent.value.end
    return [Edit(len(text[:start].rstrip(" \t")), end, "")] if start < end else []


def _indent_unit(text: str, root: Value) -> str:
    """One step of indentation: as the file does it the first time."""
    for member in root.members:
        inner = member.value
        if inner.form == "block":
            return indent_of(text, inner.start)[len(indent_of(text, member.start)) :] or _USUAL_UNIT
    return _USUAL_UNIT


def _lines_of(text: str, member: Member) -> tuple[int, int]:
    """From the start of the key's line to behind the last line that belongs to it."""
    if not begins_its_line(text, member.start):
        raise CannotEdit(f"`{member.key}` does not stand on a line of its own")
    start = line_start(text, member.start)
    return start, _behind_comments(text, member.end, member.start - start + 1)


def _behind_comments(text: str, content_end: int, column: int) -> int:
    """Behind the content's last line and the comments after it that are indented at least to `column`."""
    last = line_end(text, content_end)
    for end, line in lines_from(text, last):
        bare = line.lstrip(" \t")
        if bare.startswith("#") and len(line) - len(bare) >= max(column, 1):
            last = end
        elif bare.strip():
            break
    return last


def _stands_apart(text: str, group: Value) -> bool:
    """Whether blank lines stand between the members."""
    starts = [line_start(text, member.start) for member in group.members[1:]]
    return any(_blank_above(text, start) < start for start in starts)


def _blank_above(text: str, start: int) -> int:
    """Where the blank lines right above this line begin."""
    while start and not text[(above := line_start(text, start - 1)) : start].strip():
        start = above
    return start


# Groups in braces ----------------------------------------------------------------------------------------------------

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/|#[^\n]*", re.DOTALL)
_END_OF_LINE: Final = re.compile(r"[ \t]*(?:(?://|#)[^\n]*|/\*[^\n]*?\*/[ \t]*)?\r?\n")


def _add_in_braces(text: str, root: Value, group: Value, key: str, value: Plain, *, json: bool) -> list[Edit]:
    if not group.members:
        return _fill(text, root, group, key, value, json=json)
    last = group.members[-1]
    style = _style_of(text, root, group, json=json)
    behind = _behind_comma(text, last, group.end - 1)
    if begins_its_line(text, last.start):
        indent = indent_of(text, last.start)
        new = style.newline + indent + style.member(key, value, indent)
        # comments after the last key stay with it
        at = last.end + len(text[last.end : group.end - 1].rstrip())
    else:
        new = style.comma[1:] + style._replace(unit=None).member(key, value)
        at = behind
    if behind > last.end:
        return [Edit(at, at, f"{new},")]
    return [Edit(last.end, last.end, ","), Edit(at, at, new)]


def _replace_in_braces(text: str, root: Value, group: Value, member: Member, value: Plain, *, json: bool) -> list[Edit]:
    style = _style_of(text, root, group, json=json)
    style = style if begins_its_line(text, member.start) else style._replace(unit=None)
    return [Edit(member.start, member.value.end, style.member(member.key, value, indent_of(text, member.start)))]


def _remove_in_braces(text: str, group: Value, member: Member) -> list[Edit]:
    index = group.members.index(member)
    after = group.members[index + 1] if index + 1 < len(group.members) else None
    if after is not None and begins_its_line(text, member.start) and begins_its_line(text, after.start):
        return [Edit(line_start(text, member.start), _rest_of_line(text, _behind_comma(text, member, after.start)), "")]
    if after is not None:
        return [Edit(member.start, after.start, "")]
    return _remove_last(text, group, group.members[index - 1], member) if index else [_emptied(text, group, member)]


def _remove_last(text: str, group: Value, before: Member, member: Member) -> list[Edit]:
    """The comma before it goes too, unless the group ends with one anyway."""
    behind = _behind_comma(text, member, group.end - 1)
    comma_behind = _behind_comma(text, before, member.start)
    ends_with_comma = behind > member.end
    comma = [] if ends_with_comma else [Edit(comma_behind - 1, comma_behind, "")]
    end = _rest_of_line(text, behind)
    if begins_its_line(text, member.start) and end > behind:
        # from line break to line break: a file that mixes them keeps the one that was there before
        above = len(text[: line_start(text, member.start)].rstrip("\r\n"))
        return [*comma, Edit(above, len(text[:end].rstrip("\r\n")), "")]
    if _COMMENT.search(text, before.end, member.start):  # it is about the one before, which stays
        return [*comma, Edit(member.start, behind, "")]
    return [Edit(comma_behind, behind, "")] if ends_with_comma else [Edit(before.end, member.end, "")]


def _emptied(text: str, group: Value, member: Member) -> Edit:
    opening, behind = text.index("{", group.start), _behind_comma(text, member, group.end - 1)
    if not (text[opening + 1 : member.start] + text[behind : group.end - 1]).strip():
        return Edit(opening + 1, group.end - 1, "")
    return Edit(member.start, behind, "")


def _fill(text: str, root: Value, group: Value, key: str, value: Plain, *, json: bool) -> list[Edit]:
    """The first key of an empty group: on lines of its own, unless the whole file is one line."""
    inside = text.index("{", group.start) + 1
    style = _spacing_of(text, root, Style(json or _has_needless_quotes(text, root), newline=newline_of(text)))
    if "\n" not in text[root.start : root.end] and root.members:
        return [Edit(inside, group.end - 1, style._replace(unit=None).member(key, value))]
    indent = indent_of(text, inside)
    deeper = indent + (style.unit or "")
    entry = style.newline + deeper + style.member(key, value, deeper) + style.newline + indent
    return [Edit(inside + len(text[inside : group.end - 1].rstrip()), group.end - 1, entry)]


def _behind_comma(text: str, member: Member, limit: int) -> int:
    """Behind the comma after this key, or behind the key where there is none; a comma in a comment is none."""
    after = _COMMENT.sub(lambda match: " " * len(match.group()), text[member.end : limit])
    return member.end + after.find(",") + 1


def _rest_of_line(text: str, offset: int) -> int:
    """Behind a comment and the line break, where nothing else is left on the line."""
    rest = _END_OF_LINE.match(text, offset)
    return offset if rest is None else rest.end()


# Style ---------------------------------------------------------------------------------------------------------------

_PLAIN: Final = re.compile(r"(?:--?)?(?:~/)?[A-Za-z_./][A-Za-z0-9_./@+=-]*\Z")
_PLAIN_WITH_COLON: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+=-]*(?::[A-Za-z0-9_./@+=-]+)+\Z")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def quoted(text: str) -> str:
    """Text in double quotes, as JSON, YAML and TOML all read it."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", dumps(text, ensure_ascii=False))


def yaml_scalar(value: str | bool, *, in_braces: bool = False) -> str:
    """In quotes, unless every reader of YAML takes the same text from it without them."""
    if isinstance(value, bool):
        return dumps(value)
    plain = _PLAIN.match(value) or (not in_braces and _PLAIN_WITH_COLON.match(value))
    return value if plain and kind_of(value) == "text" else quoted(value)


def block_lines(key: str, value: Plain, indent: str = "", unit: str = _USUAL_UNIT) -> list[str]:
    """One key with its value in YAML without braces; lists stay on their line."""
    if isinstance(value, dict):
        inner = (block_lines(name, item, indent + unit, unit) for name, item in value.items())
        return [f"{indent}{yaml_scalar(key)}:", *(line for lines in inner for line in lines)]
    written = Style(json=False).value(value, "") if isinstance(value, list) else yaml_scalar(value)
    return [f"{indent}{yaml_scalar(key)}: {written}"]


class Style(NamedTuple):
    """How groups in braces are written: `unit` is one step of indentation, or None for all in one line."""

    json: bool
    unit: str | None = _USUAL_UNIT
    colon: str = ": "
    comma: str = ", "
    newline: str = "\n"

    def scalar(self, value: str | bool) -> str:
        if self.json:
            return dumps(value) if isinstance(value, bool) else quoted(value)
        return yaml_scalar(value, in_braces=True)

    def member(self, key: str, value: Plain, indent: str = "") -> str:
        """One key with its value; `indent` is that of its line."""
        return f"{self.scalar(key)}{self.colon}{self.value(value, indent)}"

    def value(self, value: Plain, indent: str) -> str:
        if isinstance(value, list):
            return f"[{self.comma.join(map(self.scalar, value))}]"
        if not isinstance(value, dict):
            return self.scalar(value)
        if self.unit is None:
            return f"{{{self.comma.join(self.member(key, inner) for key, inner in value.items())}}}"
        deeper = indent + self.unit
        lines = f",{self.newline}".join(deeper + self.member(key, inner, deeper) for key, inner in value.items())
        return f"{{{self.newline}{lines}{self.newline}{indent}}}"


def _style_of(text: str, root: Value, group: Value, *, json: bool) -> Style:
    """How the last key of a group is written."""
    last = group.members[-1]
    like_json = json or _has_needless_quotes(text, root if root.form == "flow" else group)
    value = text[last.value.start : last.value.end]
    expanded = begins_its_line(text, last.start) and (last.value.form != "flow" or "\n" in value or group is root)
    style = _spacing_of(text, root, Style(like_json, newline=newline_of(text)))
    return style if expanded else style._replace(unit=None)


def _spacing_of(text: str, root: Value, style: Style) -> Style:
    """With the file's indentation; no blanks after `:` and `,` where the file has none, which YAML needs."""
    first = root.members[0] if root.members else None
    if first is None:
        return style
    if style.json and text[first.key_end : first.value.start] == ":":
        style = style._replace(colon=":", comma=",")
    if root.form == "flow" and begins_its_line(text, first.start):
        unit = indent_of(text, first.start)[len(indent_of(text, root.start)) :]
        style = style._replace(unit=unit or _USUAL_UNIT)
    return style


def _has_needless_quotes(text: str, group: Value) -> bool:
    """Whether YAML is written like JSON here."""
    return any(text.startswith('"', key.start) and yaml_scalar(key.key) == key.key for key in group.members)
