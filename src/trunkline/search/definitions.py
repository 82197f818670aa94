"""What a tool's definition says about it, read as far as people and searches need it.

Servers write all sorts of things there; what cannot be read counts as not said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.core.tool import Tool
from trunkline.protocol.jsonrpc import BadMessage, single_line

# What an input schema says in words: names of parameters, also of those inside others, and their descriptions.

_DEPTH: Final = 4
MAX_NAMES: Final = 128
MAX_TEXT: Final = 4000
"""Characters of descriptions that are gathered; long lists of allowed values and the like add nothing to find it by."""
_LARGEST: Final = 512 * 1024
"""A schema of more bytes is not looked into at all."""


class _Schema(msgspec.Struct):
    properties: dict[str, Raw] = {}


class _Parameter(msgspec.Struct, rename="camel"):
    description: Raw = Raw(b"")
    properties: Raw = Raw(b"")
    items: Raw = Raw(b"")
    any_of: Raw = Raw(b"")


_decode_schema: Final = msgspec.json.Decoder(_Schema).decode
_decode_parameter: Final = msgspec.json.Decoder(_Parameter).decode


def parameters_of(schema: bytes) -> tuple[str, ...]:
    """The names of the parameters themselves."""
    try:
        return tuple(_decode_schema(schema).properties)
    except _UNREADABLE:
        return ()


class SchemaWords:
    """The words of one schema, gathered as far as the bounds allow."""

    def __init__(self, schema: bytes) -> None:
        self.names: list[str] = []
        self.inner_names: list[str] = []
        self.texts: list[str] = []
        self._room = MAX_TEXT
        if len(schema) <= _LARGEST:
            self._read_members(_properties(schema), self.names, _DEPTH)

    def _read_members(self, members: dict[str, Raw], names: list[str], depth: int) -> None:
        for name, member in members.items():
            if len(self.names) + len(self.inner_names) >= MAX_NAMES:
                return
            names.append(name)
            self._read(member, depth)

    def _read(self, schema: Raw, depth: int) -> None:
        try:
            parameter = _decode_parameter(schema)
        except _UNREADABLE:
            return
        if text := _text(parameter.description)[: self._room]:
            self._room -= len(text)
            self.texts.append(text)
        if depth > 0:
            self._read_inner(parameter, depth - 1)

    def _read_inner(self, parameter: _Parameter, depth: int) -> None:
        if parameter.properties:
            self._read_members(_members(parameter.properties), self.inner_names, depth)
        if parameter.items:
            self._read(parameter.items, depth)
        for choice in _choices(parameter.any_of):
            self._read(choice, depth)


def _properties(schema: bytes) -> dict[str, Raw]:
    try:
        return _decode_schema(schema).properties
    except _UNREADABLE:
        return {}


def _members(raw: Raw) -> dict[str, Raw]:
    try:
        return _decode_members(raw)
    except _UNREADABLE:
        return {}


def _choices(raw: Raw) -> list[Raw]:
    try:
        return _decode_list(raw)[:8] if raw else []
    except _UNREADABLE:
        return []


def _text(raw: Raw) -> str:
    try:
        return _decode_text(raw)
    except _UNREADABLE:
        return ""


SHORT: Final = 160
"""How many characters of a description are shown where many tools are listed."""
MAX_TAGS: Final = 32
_LONGEST_TAG: Final = 64


@dataclass(frozen=True, slots=True)
class ParsedDefinition:
    title: str
    description: str
    parameters: tuple[str, ...]
    input_schema: bytes
    """As the server wrote it, on one line; empty where there is none."""
    tags: tuple[str, ...] = ()
    read_only: bool = False


class _Definition(msgspec.Struct, rename="camel"):
    title: Raw = Raw(b'""')
    description: Raw = Raw(b'""')
    annotations: Raw = Raw(b"{}")
    input_schema: Raw = Raw(b"")
    tags: Raw = Raw(b"[]")
    keywords: Raw = Raw(b"[]")
    meta: Raw = msgspec.field(name="_meta", default=Raw(b"{}"))


class _Annotations(msgspec.Struct, rename="camel"):
    title: Raw = Raw(b'""')
    read_only_hint: Raw = Raw(b"false")


class _Tagged(msgspec.Struct):
    tags: Raw = Raw(b"[]")
    keywords: Raw = Raw(b"[]")


_decode_definition: Final = msgspec.json.Decoder(_Definition).decode
_decode_annotations: Final = msgspec.json.Decoder(_Annotations).decode
_decode_tagged: Final = msgspec.json.Decoder(_Tagged).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def parse_definition(tool: Tool) -> ParsedDefinition:
    try:
        definition = _decode_definition(tool.definition)
        schema = single_line(definition.input_schema)
    except (*_UNREADABLE, BadMessage):
        return ParsedDefinition("", "", (), b"")
    annotations = _annotations(definition.annotations)
    return ParsedDefinition(
        title=_read_text(definition.title) or _read_text(annotations.title),
        description=_read_text(definition.description),
        parameters=parameters_of(schema),
        input_schema=schema,
        tags=_tags(definition),
        read_only=bytes(annotations.read_only_hint) == b"true",
    )


def _read_text(raw: Raw) -> str:
    try:
        return _decode_text(raw)
    except _UNREADABLE:
        return ""


def _annotations(raw: Raw) -> _Annotations:
    try:
        return _decode_annotations(raw)
    except _UNREADABLE:
        return _Annotations()


def _tags(definition: _Definition) -> tuple[str, ...]:
    """Tags and keywords, wherever servers put them: beside the name, in `_meta`, or in a member of `_meta`."""
    found = [*_listed(definition.tags), *_listed(definition.keywords)]
    if definition.meta != b"{}":
        found += _tags_in(definition.meta, deeper=True)
    return tuple(dict.fromkeys(found))[:MAX_TAGS]


def _tags_in(meta: Raw, *, deeper: bool) -> Iterator[str]:
    try:
        tagged = _decode_tagged(meta)
        members = _decode_members(meta) if deeper else {}
    except _UNREADABLE:
        return
    yield from _listed(tagged.tags)
    yield from _listed(tagged.keywords)
    for member in list(members.values())[:MAX_TAGS]:
        if bytes(memoryview(member)[:1]) == b"{":
            yield from _tags_in(member, deeper=False)


def _listed(raw: Raw) -> Iterator[str]:
    if raw == b"[]":
        return
    try:
        texts = [_read_text(value) for value in _decode_list(raw)[:MAX_TAGS]]
    except _UNREADABLE:
        return
    yield from (text for text in texts if 0 < len(text) <= _LONGEST_TAG)


def shortened(text: str, limit: int = SHORT) -> str:
    """The first line with something in it, cut between words where it is too long."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",.;: ") + "…"
