"""Finds where the groups of keys in a YAML or JSON text stand, so that one entry can be changed and the rest left alone.

The loader's tree says what a file means; an outline has the places, with aliases and brackets as they are written. The
text has been read without a syntax error before, so nothing is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from json import loads
from typing import Any, Final, Literal, NamedTuple

Form = Literal["block", "flow", "other"]
"""A group written by indentation, a group in braces, or anything that is no group."""


class Value:
    """A value from its first character to behind its last one. Only groups have members."""

    __slots__ = ("end", "form", "members", "start")

    def __init__(self, start: int, end: int, form: Form = "other") -> None:
        self.start = start
        self.end = end
        self.form: Form = form
        self.members: list[Member] = []

    def get(self, key: str) -> Member | None:
        return next((member for member in self.members if member.key == key), None)


class Member(NamedTuple):
    """A key of a group; `start` is where the key begins, and `key_end` where it ends."""

    key: str
    start: int
    key_end: int
    value: Value

    @property
    def end(self) -> int:
        return max(self.key_end, self.value.end)


def follow(root: Value, path: Iterable[str]) -> Member | None:
    """The member that a path of keys leads to."""
    group, member = root, None
    for key in path:
        member = group.get(key)
        if member is None:
            return None
        group = member.value
    return member


class _Token(NamedTuple):
    """A list or group that begins (`[`, `{`) or ends (`]`), or a key or value (``).

    The end of what is written by indentation has no place: it ends with the last value in it.
    """

    kind: Literal["[", "{", "]", ""]
    start: int
    end: int
    key: str = ""
    form: Form = "other"


def outline_yaml(text: str) -> Value:
    """The outline of a YAML document; without any content it is an empty value at the end."""
    return _outline(_yaml_tokens(text), text)


def outline_json(text: str) -> Value:
    """The outline of a JSON document, with comments and final commas where a program allows them."""
    return _outline(_json_tokens(text), text)


def _outline(tokens: Iterator[_Token], text: str) -> Value:
    first = next(tokens, None)
    return Value(len(text), len(text)) if first is None else _value(first, tokens)


def _value(token: _Token, tokens: Iterator[_Token]) -> Value:
    value = Value(token.start, token.end, token.form)
    if not token.kind:
        return value
    for inner in tokens:
        if inner.kind == "]":
            value.end = max(value.end, inner.end)
            break
        key = _value(inner, tokens)
        value.end = key.end
        if token.kind == "{":
            value.members.append(Member(inner.key, key.start, key.end, _value(next(tokens), tokens)))
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
            yield _Token("{", start, end, form="flow" if event.flow_style else "block")
        elif isinstance(event, yaml.SequenceStartEvent):
            in_brackets.append(bool(event.flow_style))
            yield _Token("[", start, end)
        elif isinstance(event, yaml.CollectionEndEvent):
            yield _Token("]", start, end if in_brackets.pop() else 0)
        elif isinstance(event, yaml.NodeEvent):
            # a block text takes the blank lines after it along
            yield _Token("", start, start + len(text[start:end].rstrip()), str(getattr(event, "value", "")))


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|//[^\n\r]*|/\*.*?\*/|[^\s{}\[\],:"/]+', re.DOTALL)


def _json_tokens(text: str) -> Iterator[_Token]:
    for match in _JSON_TOKEN.finditer(text):
        written, (start, end) = match.group(), match.span()
        if written == "{":
            yield _Token("{", start, end, form="flow")
        elif written == "[":
            yield _Token("[", start, end)
        elif written in "]}":
            yield _Token("]", start, end)
        elif not written.startswith(("//", "/*")):
            yield _Token("", start, end, loads(written) if written.startswith('"') else "")
