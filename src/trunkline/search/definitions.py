"""What a tool's definition says about it, read as far as people and searches need it.

Servers write all sorts of things there; what cannot be read counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from trunkline.core.tool import ToolDefinition
from trunkline.protocol.jsonrpc import BadMessage, single_line

SHORT: Final = 160
"""How many characters of a description are shown if many tools are listed."""
MAX_TAGS: Final = 32
_LONGEST_TAG: Final = 64
MAX_NAMES: Final = 128
MAX_TEXT: Final = 4000
"""Characters of parameter descriptions that are read; long lists of allowed values and the like help no search."""
_SCHEMA_DEPTH: Final = 4
_MAX_CHOICES: Final = 8
_LARGEST_SCHEMA: Final = 512 * 1024
"""A schema of more bytes is not read at all."""
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
T = TypeVar("T")
D = TypeVar("D")


class _Tagged(msgspec.Struct):
    tags: Raw = Raw(b"[]")
    keywords: Raw = Raw(b"[]")


class _Definition(_Tagged, rename="camel"):
    title: Raw = Raw(b'""')
    description: Raw = Raw(b'""')
    annotations: Raw = Raw(b"{}")
    input_schema: Raw = Raw(b"")
    meta: Raw = msgspec.field(name="_meta", default=Raw(b"{}"))


class _Annotations(msgspec.Struct):
    title: Raw = Raw(b'""')


class _Schema(msgspec.Struct):
    properties: dict[str, Raw] = {}


class _Parameter(msgspec.Struct, rename="camel"):
    description: Raw = Raw(b"")
    properties: Raw = Raw(b"")
    items: Raw = Raw(b"")
    any_of: Raw = Raw(b"")


def _read(raw: Raw | bytes, decoder: msgspec.json.Decoder[T], otherwise: D) -> T | D:
    """The decoded value, or another if it cannot be decoded."""
    try:
        return decoder.decode(raw)
    except _UNREADABLE:
        return otherwise


_DEFINITION: Final = msgspec.json.Decoder(_Definition)
_ANNOTATIONS: Final = msgspec.json.Decoder(_Annotations)
_TAGGED: Final = msgspec.json.Decoder(_Tagged)
_SCHEMA: Final = msgspec.json.Decoder(_Schema)
_PARAMETER: Final = msgspec.json.Decoder(_Parameter)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_LIST: Final = msgspec.json.Decoder(list[Raw])
_TEXT: Final = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class ParsedDefinition:
    """The members of a tool's definition that people and searches look at."""

    title: str
    description: str
    input_schema: bytes
    """As the server wrote it, on one line; empty if there is none."""
    tags: tuple[str, ...] = ()


def parse_definition(tool: ToolDefinition) -> ParsedDefinition:
    try:
        definition = _DEFINITION.decode(tool.definition)
        schema = single_line(definition.input_schema)
    except (*_UNREADABLE, BadMessage):
        return ParsedDefinition("", "", b"")
    annotations = _read(definition.annotations, _ANNOTATIONS, _Annotations())
    # Tags and keywords, wherever servers put them: beside the name, in `_meta`, or in a member of `_meta`.
    tags = _tags_of(definition)
    if definition.meta != b"{}":
        tags += _tags_in(definition.meta, deeper=True)
    return ParsedDefinition(
        title=_read(definition.title, _TEXT, "") or _read(annotations.title, _TEXT, ""),
        description=_read(definition.description, _TEXT, ""),
        input_schema=schema,
        tags=tuple(dict.fromkeys(tags))[:MAX_TAGS],
    )


def _tags_in(meta: Raw, *, deeper: bool) -> Iterator[str]:
    tagged = _read(meta, _TAGGED, None)
    members = _read(meta, _MEMBERS, None) if deeper else {}
    if tagged is None or members is None:
        return
    yield from _tags_of(tagged)
    for member in list(members.values())[:MAX_TAGS]:
        if bytes(memoryview(member)[:1]) == b"{":
            yield from _tags_in(member, deeper=False)


def _tags_of(tagged: _Tagged) -> list[str]:
    return _texts(tagged.tags) + _texts(tagged.keywords)


def _texts(raw: Raw) -> list[str]:
    if raw == b"[]":
        return []
    texts = [_read(value, _TEXT, "") for value in _read(raw, _LIST, ())[:MAX_TAGS]]
    return [text for text in texts if 0 < len(text) <= _LONGEST_TAG]


class SchemaWords:
    """The words of an input schema, as far as the limits allow: names of parameters, including nested ones, and their
    descriptions."""

    def __init__(self, schema: bytes) -> None:
        self.names: list[str] = []
        self.inner_names: list[str] = []
        self.texts: list[str] = []
        self._room = MAX_TEXT
        if len(schema) <= _LARGEST_SCHEMA:
            self._read_members(_read(schema, _SCHEMA, _Schema()).properties, self.names, _SCHEMA_DEPTH)

    def _read_members(self, members: dict[str, Raw], names: list[str], depth: int) -> None:
        for name, member in members.items():
            if len(self.names) + len(self.inner_names) >= MAX_NAMES:
                return
            names.append(name)
            self._read_parameter(member, depth)

    def _read_parameter(self, schema: Raw, depth: int) -> None:
        parameter = _read(schema, _PARAMETER, None)
        if parameter is None:
            return
        if text := _read(parameter.description, _TEXT, "")[: self._room]:
            self._room -= len(text)
            self.texts.append(text)
        if depth > 0:
            if parameter.properties:
                self._read_members(_read(parameter.properties, _MEMBERS, dict[str, Raw]()), self.inner_names, depth - 1)
            if parameter.items:
                self._read_parameter(parameter.items, depth - 1)
            for choice in _read(parameter.any_of, _LIST, ())[:_MAX_CHOICES] if parameter.any_of else ():
                self._read_parameter(choice, depth - 1)


def shortened(text: str, limit: int = SHORT) -> str:
    """The first line with something in it, cut between words if it is too long."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",.;: ") + "…"
