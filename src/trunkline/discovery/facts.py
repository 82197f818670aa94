"""What a tool's definition says about it, read as far as people and searches need it.

Servers write all sorts of things there; what cannot be read counts as not said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.core.tool import Tool
from trunkline.wire.jsonrpc import BadMessage, single_line

SHORT: Final = 160
"""How many characters of a description are shown where many tools are listed."""


@dataclass(frozen=True, slots=True)
class Facts:
    title: str
    description: str
    parameters: tuple[str, ...]
    input_schema: bytes
    """As the server wrote it, on one line; empty where there is none."""


class _Definition(msgspec.Struct, rename="camel"):
    title: Raw = Raw(b'""')
    description: Raw = Raw(b'""')
    annotations: Raw = Raw(b"{}")
    input_schema: Raw = Raw(b"")


class _Annotations(msgspec.Struct):
    title: str = ""


class _Schema(msgspec.Struct):
    properties: dict[str, Raw] = {}


_decode_definition: Final = msgspec.json.Decoder(_Definition).decode
_decode_annotations: Final = msgspec.json.Decoder(_Annotations).decode
_decode_schema: Final = msgspec.json.Decoder(_Schema).decode
_decode_text: Final = msgspec.json.Decoder(str).decode


def facts_of(tool: Tool) -> Facts:
    try:
        definition = _decode_definition(tool.definition)
        schema = single_line(definition.input_schema)
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return Facts("", "", (), b"")
    title = _text(definition.title) or _annotated_title(definition.annotations)
    return Facts(title, _text(definition.description), _parameters(schema), schema)


def _text(raw: Raw) -> str:
    try:
        return _decode_text(raw)
    except msgspec.MsgspecError:
        return ""


def _annotated_title(raw: Raw) -> str:
    try:
        return _decode_annotations(raw).title
    except (msgspec.MsgspecError, RecursionError):
        return ""


def _parameters(schema: bytes) -> tuple[str, ...]:
    try:
        return tuple(_decode_schema(schema).properties)
    except (msgspec.MsgspecError, RecursionError):
        return ()


def shortened(text: str, limit: int = SHORT) -> str:
    """The first line with something in it, cut between words where it is too long."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",.;: ") + "…"
