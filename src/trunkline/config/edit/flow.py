"""Editing groups in braces: JSON, and YAML that is written like it."""

from __future__ import annotations

import re
from typing import Final

from trunkline.config.edit.entry_text import Flow, Plain, yaml_scalar
from trunkline.config.edit.outline import Member, Value
from trunkline.config.edit.text_edit import Edit, begins_its_line, indent_of, line_start, newline_of

_USUAL_UNIT: Final = "  "
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/|#[^\n]*", re.DOTALL)
_END_OF_LINE: Final = re.compile(r"[ \t]*(?:(?://|#)[^\n]*|/\*[^\n]*?\*/[ \t]*)?\r?\n")


def insert_flow(text: str, root: Value, group: Value, key: str, value: Plain, *, json: bool) -> list[Edit]:
    """Add a key at the end of a group in braces, in the style of the group."""
    if not group.members:
        return _fill(text, root, group, key, value, json=json)
    last = group.members[-1]
    style = _style(text, root, group, json=json)
    behind = _behind_comma(text, last, group.end - 1)
    final_comma = "," if behind > last.end else ""
    if begins_its_line(text, last.start):
        indent = indent_of(text, last.start)
        new = style.newline + indent + style.member(key, value, indent) + final_comma
        # comments after the last key stay with it
        at = last.end + len(text[last.end : group.end - 1].rstrip())
    else:
        new = style.comma[1:] + style._replace(unit=None).member(key, value, "") + final_comma
        at = behind
    if final_comma:
        return [Edit(at, at, new)]
    return [Edit(at, at, f",{new}")] if at == last.end else [Edit(last.end, last.end, ","), Edit(at, at, new)]


def new_json(key: str, value: Plain) -> str:
    """A whole file of one key."""
    return Flow(json=True, unit=_USUAL_UNIT).value({key: value}, "") + "\n"


def remove_flow(text: str, group: Value, member: Member) -> list[Edit]:
    """Take a key out together with one comma, so that the others stay as they are."""
    index = group.members.index(member)
    before = group.members[index - 1] if index else None
    after = group.members[index + 1] if index + 1 < len(group.members) else None
    own_lines = begins_its_line(text, member.start)
    if before is None and after is None:
        return [_emptied(text, group, member)]
    if after is not None and begins_its_line(text, after.start) and own_lines:
        return [Edit(line_start(text, member.start), _rest_of_line(text, _behind_comma(text, member, after.start)), "")]
    if after is not None:
        return [Edit(member.start, after.start, "")]
    assert before is not None
    return _last_out(text, group, before, member, own_lines=own_lines)


def replace_flow(text: str, root: Value, group: Value, member: Member, value: Plain, *, json: bool) -> list[Edit]:
    """Write a key anew where it stands."""
    style = _style(text, root, group, json=json)
    style = style if begins_its_line(text, member.start) else style._replace(unit=None)
    indent = indent_of(text, member.start)
    return [Edit(member.start, member.value.end, style.member(member.key, value, indent))]


def _fill(text: str, root: Value, group: Value, key: str, value: Plain, *, json: bool) -> list[Edit]:
    """The first key of an empty group: on lines of its own, unless the whole file is one line."""
    opening = text.index("{", group.start)
    inside = text[opening + 1 : group.end - 1]
    newline = newline_of(text)
    one_line = "\n" not in text[root.start : root.end] and bool(root.members)
    like_json = json or _has_needless_quotes(text, root)
    style = Flow(json=like_json, unit=None if one_line else _unit(text, root), newline=newline)
    if one_line:
        style = _spacing(text, root, style)
        return [Edit(opening + 1, group.end - 1, style.member(key, value, ""))]
    indent = indent_of(text, opening)
    deeper = indent + (style.unit or "")
    return [
        Edit(
            opening + 1 + len(inside.rstrip()),
            group.end - 1,
            newline + deeper + style.member(key, value, deeper) + newline + indent,
        )
    ]


def _style(text: str, root: Value, group: Value, *, json: bool) -> Flow:
    last = group.members[-1]
    like_json = json or _has_needless_quotes(text, root if root.form == "flow" else group)
    value = text[last.value.start : last.value.end]
    expanded = begins_its_line(text, last.start) and (last.value.form != "flow" or "\n" in value or group is root)
    style = Flow(json=like_json, unit=_unit(text, root) if expanded else None, newline=newline_of(text))
    return _spacing(text, root, style)


def _has_needless_quotes(text: str, group: Value) -> bool:
    """Whether YAML is written like JSON here."""
    return any(text.startswith('"', key.start) and yaml_scalar(key.key) == key.key for key in group.members)


def _spacing(text: str, root: Value, style: Flow) -> Flow:
    """No blanks after `:` and `,` where the file has none; YAML needs them."""
    first = root.members[0] if root.members else None
    if style.json and first is not None and text[first.key_end : first.value.start] == ":":
        return style._replace(colon=":", comma=",")
    return style


def _unit(text: str, root: Value) -> str:
    """One step of indentation: as the file does it the first time."""
    if root.form == "flow" and root.members and begins_its_line(text, root.members[0].start):
        return indent_of(text, root.members[0].start)[len(indent_of(text, root.start)) :] or _USUAL_UNIT
    return _USUAL_UNIT


def _tail(text: str, start: int, end: int) -> str:
    """The text between two places with its comments blanked, so that a comma in it is a comma."""
    return _COMMENT.sub(lambda match: " " * len(match.group()), text[start:end])


def _behind_comma(text: str, member: Member, limit: int) -> int:
    comma = _tail(text, member.end, limit).find(",")
    return member.end if comma < 0 else member.end + comma + 1


def _rest_of_line(text: str, offset: int) -> int:
    """Behind a comment and the line break, where nothing else is left on the line."""
    rest = _END_OF_LINE.match(text, offset)
    return offset if rest is None else rest.end()


def _emptied(text: str, group: Value, member: Member) -> Edit:
    opening = text.index("{", group.start)
    rest = text[opening + 1 : member.start] + text[_behind_comma(text, member, group.end - 1) : group.end - 1]
    if not rest.strip():
        return Edit(opening + 1, group.end - 1, "")
    return Edit(member.start, _behind_comma(text, member, group.end - 1), "")


def _last_out(text: str, group: Value, before: Member, member: Member, *, own_lines: bool) -> list[Edit]:
    """The comma before it goes too, unless the group ends with one anyway."""
    behind = _behind_comma(text, member, group.end - 1)
    comma_behind = _behind_comma(text, before, member.start)
    ends_with_comma = behind > member.end
    end = _rest_of_line(text, behind)
    if own_lines and end > behind:
        comma = [] if ends_with_comma else [Edit(comma_behind - 1, comma_behind, "")]
        # from line break to line break: a file that mixes them keeps the one that was there before
        above = len(text[: line_start(text, member.start)].rstrip("\r\n"))
        return [*comma, Edit(above, len(text[:end].rstrip("\r\n")), "")]
    if _COMMENT.search(text, before.end, member.start):  # it is about the one before, which stays
        comma = [] if ends_with_comma else [Edit(comma_behind - 1, comma_behind, "")]
        return [*comma, Edit(member.start, behind, "")]
    return [Edit(comma_behind, behind, "")] if ends_with_comma else [Edit(before.end, member.end, "")]
