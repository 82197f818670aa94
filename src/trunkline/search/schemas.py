"""What an input schema says in words: names of parameters, also of those inside others, and their descriptions."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

_DEPTH: Final = 4
MAX_NAMES: Final = 128
MAX_TEXT: Final = 4000
"""Characters of descriptions that are gathered; long lists of allowed values and the like add nothing to find it by."""
_LARGEST: Final = 512 * 1024
"""A schema of more bytes is not looked into at all."""
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Schema(msgspec.Struct):
    properties: dict[str, Raw] = {}


class _Parameter(msgspec.Struct, rename="camel"):
    description: Raw = Raw(b"")
    properties: Raw = Raw(b"")
    items: Raw = Raw(b"")
    any_of: Raw = Raw(b"")


_decode_schema: Final = msgspec.json.Decoder(_Schema).decode
_decode_parameter: Final = msgspec.json.Decoder(_Parameter).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


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
