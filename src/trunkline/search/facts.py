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
from trunkline.search.schemas import parameters_of

SHORT: Final = 160
"""How many characters of a description are shown where many tools are listed."""
MAX_TAGS: Final = 32
_LONGEST_TAG: Final = 64


@dataclass(frozen=True, slots=True)
class Facts:
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


def facts_of(tool: Tool) -> Facts:
    try:
        definition = _decode_definition(tool.definition)
        schema = single_line(definition.input_schema)
    except (*_UNREADABLE, BadMessage):
        return Facts("", "", (), b"")
    annotations = _annotations(definition.annotations)
    return Facts(
        title=_text(definition.title) or _text(annotations.title),
        description=_text(definition.description),
        parameters=parameters_of(schema),
        input_schema=schema,
        tags=_tags(definition),
        read_only=bytes(annotations.read_only_hint) == b"true",
    )


def _text(raw: Raw) -> str:
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
        texts = [_text(value) for value in _decode_list(raw)[:MAX_TAGS]]
    except _UNREADABLE:
        return
    yield from (text for text in texts if 0 < len(text) <= _LONGEST_TAG)


def shortened(text: str, limit: int = SHORT) -> str:
    """The first line with something in it, cut between words where it is too long."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",.;: ") + "…"
