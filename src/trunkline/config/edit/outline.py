"""Offsets in the text of a file: its lines, an outline of its mappings, and edits that replace text.

The loader's tree says what a file means; an outline has the offsets of its keys and values, with aliases and brackets
as they are written. The text is known to be valid, so nothing is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from json import loads
from typing import Any, Final, Literal, NamedTuple

CollectionStyle = Literal["block", "flow", "other"]
"""A block mapping, a flow mapping, or anything else."""


class Outline:
    """The range of a value. Only mappings have members."""

    __slots__ = ("end", "members", "start", "style")

    def __init__(self, start: int, end: int, style: CollectionStyle = "other") -> None:
        self.start = start
        self.end = end
        self.style: CollectionStyle = style
        self.members: list[OutlineKey] = []

    def get(self, key: str) -> OutlineKey | None:
        return next((member for member in self.members if member.key == key), None)

    def follow(self, path: Iterable[str]) -> OutlineKey | None:
        """The key that a path of keys leads to."""
        mapping, member = self, None
        for key in path:
            member = mapping.get(key)
            if member is None:
                return None
            mapping = member.value
        return member


class OutlineKey(NamedTuple):
    """A key of a mapping, from `start` to `key_end`, and its value."""

    key: str
    start: int
    key_end: int
    value: Outline

    @property
    def end(self) -> int:
        return max(self.key_end, self.value.end)


class _Token(NamedTuple):
    """The beginning (`[`, `{`) or end (`]`) of a list or mapping, or a scalar (``).

    A block mapping ends with the last value in it, so its end has no offset.
    """

    kind: Literal["[", "{", "]", ""]
    start: int
    end: int
    key: str = ""
    style: CollectionStyle = "other"


def outline_yaml(text: str) -> Outline:
    """The outline of a YAML document; an empty value at the end if it has no content."""
    return _outline(_yaml_tokens(text), text)


def outline_json(text: str) -> Outline:
    """The outline of a JSON document, which may have comments and trailing commas."""
    return _outline(_json_tokens(text), text)


def _outline(tokens: Iterator[_Token], text: str) -> Outline:
    first = next(tokens, None)
    return Outline(len(text), len(text)) if first is None else _value(first, tokens)


def _value(token: _Token, tokens: Iterator[_Token]) -> Outline:
    value = Outline(token.start, token.end, token.style)
    if not token.kind:
        return value
    for inner in tokens:
        if inner.kind == "]":
            value.end = max(value.end, inner.end)
            break
        key = _value(inner, tokens)
        value.end = key.end
        if token.kind == "{":
            value.members.append(OutlineKey(inner.key, key.start, key.end, _value(next(tokens), tokens)))
            value.end = value.members[-1].end
    return value


def _yaml_tokens(text: str) -> Iterator[_Token]:
    import yaml

    pyyaml: Any = yaml
    in_brackets: list[bool] = []
    for event in pyyaml.parse(text, Loader=getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)):
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.MappingStartEvent):
            in_brackets.append(bool(event.flow_style))
            yield _Token("{", start, end, style="flow" if event.flow_style else "block")
        elif isinstance(event, yaml.SequenceStartEvent):
            in_brackets.append(bool(event.flow_style))
            yield _Token("[", start, end)
        elif isinstance(event, yaml.CollectionEndEvent):
            yield _Token("]", start, end if in_brackets.pop() else 0)
        elif isinstance(event, yaml.NodeEvent):
            # a block scalar includes the blank lines after it
            yield _Token("", start, start + len(text[start:end].rstrip()), str(getattr(event, "value", "")))


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|//[^\n\r]*|/\*.*?\*/|[^\s{}\[\],:"/]+', re.DOTALL)


def _json_tokens(text: str) -> Iterator[_Token]:
    for match in _JSON_TOKEN.finditer(text):
        written, (start, end) = match.group(), match.span()
        if written == "{":
            yield _Token("{", start, end, style="flow")
        elif written == "[":
            yield _Token("[", start, end)
        elif written in "]}":
            yield _Token("]", start, end)
        elif not written.startswith(("//", "/*")):
            yield _Token("", start, end, loads(written) if written.startswith('"') else "")


# -- lines and edits -------------------------------------------------------------------------------------------------


class TextEdit(NamedTuple):
    """Replaces the text from `start` to `end` by `new`."""

    start: int
    end: int
    new: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """The text after all edits, whose offsets are those before any of them. They must not overlap."""
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.start):  # two at one place stay in their order
        parts += [text[done : edit.start], edit.new]
        done = edit.end
    return "".join([*parts, text[done:]])


def newline_of(text: str) -> str:
    """The line break that the text uses."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """The end of the line at this offset, including its line break."""
    return text.find("\n", offset) + 1 or len(text)


def lines_from(text: str, offset: int) -> Iterable[tuple[int, str]]:
    """The end and text of each line from `offset`."""
    while offset < len(text):
        end = line_end(text, offset)
        yield end, text[offset:end]
        offset = end


def skip_blank_lines(text: str, offset: int) -> int:
    """The end of the blank lines at `offset`."""
    for end, line in lines_from(text, offset):
        if line.strip():
            break
        offset = end
    return offset


def indent_of(text: str, offset: int) -> str:
    line = text[line_start(text, offset) : line_end(text, offset)]
    return line[: len(line) - len(line.lstrip(" \t"))]


def begins_its_line(text: str, offset: int) -> bool:
    return not text[line_start(text, offset) : offset].strip(" \t")


def blank_lines_above(text: str, start: int) -> int:
    """The start of the blank lines right above the line at `start`."""
    while start and not text[(above := line_start(text, start - 1)) : start].strip():
        start = above
    return start
