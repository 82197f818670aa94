"""Where the groups and keys of a file stand in its text, for edits that change one entry and leave every other byte.

The tree that the loader reads has what a file means; this has its places, aliases and brackets included. It is made
of text that has been read without a syntax error, so it checks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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


def outline_yaml(text: str) -> Value:
    """The outline of a YAML document; without any content it is an empty value at the end."""
    import yaml

    pyyaml: Any = yaml
    events = pyyaml.parse(text, Loader=getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader))
    for event in events:
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent, yaml.ScalarEvent)):
            return _yaml_value(event, events, text)
    return Value(len(text), len(text))


def _yaml_value(event: Any, events: Iterator[Any], text: str) -> Value:
    import yaml

    start, end = event.start_mark.index, event.end_mark.index
    if isinstance(event, yaml.MappingStartEvent):
        return _yaml_group(event, events, text)
    if isinstance(event, yaml.SequenceStartEvent):
        item = next(events)
        while not isinstance(item, yaml.SequenceEndEvent):
            end = _yaml_value(item, events, text).end
            item = next(events)
        return Value(start, item.end_mark.index if event.flow_style else end)
    # a block text takes the blank lines after it along
    return Value(start, start + len(text[start:end].rstrip()))


def _yaml_group(event: Any, events: Iterator[Any], text: str) -> Value:
    import yaml

    group = Value(event.start_mark.index, event.end_mark.index, "flow" if event.flow_style else "block")
    key = next(events)
    while not isinstance(key, yaml.MappingEndEvent):
        where = _yaml_value(key, events, text)
        value = _yaml_value(next(events), events, text)
        group.members.append(Member(str(getattr(key, "value", "")), where.start, where.end, value))
        group.end = group.members[-1].end
        key = next(events)
    if group.form == "flow":
        group.end = key.end_mark.index
    return group


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|//[^\n\r]*|/\*.*?\*/|[^\s{}\[\],:"/]+', re.DOTALL)


def outline_json(text: str) -> Value:
    """The outline of a JSON document, with comments and final commas where a program allows them."""
    tokens = (match for match in _TOKEN.finditer(text) if not match.group().startswith(("//", "/*")))
    first = next(tokens, None)
    return Value(len(text), len(text)) if first is None else _json_value(first, tokens)


def _json_value(token: re.Match[str], tokens: Iterator[re.Match[str]]) -> Value:
    value = Value(token.start(), token.end(), "flow" if token.group() == "{" else "other")
    if token.group() not in "{[":
        return value
    for inner in tokens:
        if inner.group() in "}]":
            value.end = inner.end()
            return value
        if inner.group() == ",":
            continue
        if value.form == "flow":
            next(tokens)  # the colon
            member = _json_value(next(tokens), tokens)
            value.members.append(Member(_json_text(inner.group()), inner.start(), inner.end(), member))
        else:
            _json_value(inner, tokens)
    return value


def _json_text(written: str) -> str:
    from json import loads

    return loads(written)
