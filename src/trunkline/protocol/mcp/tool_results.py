"""Results for agents that show a model only so much of a text: what is too long is cut here, and says so.

An agent puts the whole of a text that it cut into a file, which is of no use to a model that can open none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import encode, encode_members, single_line

# An MCP result made from what a tool gave that does not speak MCP: one JSON value, or the text of its failure.
#
# The value is spliced in as it was written: numbers keep their digits and names their order.

_WHITESPACE: Final = b" \t\r\n"
_OBJECT: Final = b"{"
_STRING: Final = b'"'
_CONTENT: Final = b'"content"'
_ESCAPE: Final = b"\\u"
"""A name may be spelled with these."""


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Image(msgspec.Struct, tag_field="type", tag="image", rename="camel"):
    data: str
    mime_type: str


class _Audio(msgspec.Struct, tag_field="type", tag="audio", rename="camel"):
    data: str
    mime_type: str


class _Link(msgspec.Struct, tag_field="type", tag="resource_link"):
    uri: str
    name: str


class _Embedded(msgspec.Struct, tag_field="type", tag="resource"):
    resource: dict[str, Raw]


class _McpResult(msgspec.Struct, rename="camel"):
    """What clients insist on: a result that has it otherwise would be no result to them."""

    content: list[_Text | _Image | _Audio | _Link | _Embedded]
    is_error: bool = False
    meta: dict[str, Raw] = msgspec.field(name="_meta", default_factory=dict[str, Raw])


_decode_mcp_result: Final = msgspec.json.Decoder(_McpResult).decode


def result_of(value: bytes | Raw, *, is_error: bool = False, meta: Mapping[str, Json] | None = None) -> bytes:
    """A `tools/call` result with this JSON value in it. `meta` are members of `_meta`.

    A text is shown as it is and an object also as `structuredContent`; an object that is an MCP result already, with
    its list of `content`, stays what it is.
    """
    line = single_line(value).strip(_WHITESPACE)
    first = line[:1]
    if first == _STRING and not is_error and meta is None:  # most tools just say something
        return b'{"content":[{"type":"text","text":%b}]}' % line
    if first == _OBJECT and _is_mcp_result(line):
        return _marked(line, is_error=is_error, meta=meta) if is_error or meta else line
    marks = _marks(is_error=is_error, meta=meta)
    if first == _STRING:
        return b'{"content":[{"type":"text","text":%b}]%b}' % (line, marks)
    text = encode(line.decode())
    if first == _OBJECT:
        return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b}' % (text, line, marks)
    return b'{"content":[{"type":"text","text":%b}]%b}' % (text, marks)


def error_result(text: str) -> bytes:
    """The result of a tool that failed, with what it said about it."""
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % encode(text)


def _is_mcp_result(value: bytes) -> bool:
    """MCP's own blocks and nothing else in `content`; a `content` of another make is just data."""
    if value.find(_CONTENT) < 0 and value.find(_ESCAPE) < 0:
        return False
    try:
        return bool(_decode_mcp_result(value).content)
    except msgspec.MsgspecError:
        return False


def _marked(value: bytes, *, is_error: bool, meta: Mapping[str, Json] | None) -> bytes:
    members = msgspec.json.decode(value, type=dict[str, Raw])
    if is_error:
        members.pop("isError", None)
    own_meta = members.pop("_meta", None)
    if meta and own_meta is not None:
        meta = {**msgspec.json.decode(own_meta, type=dict[str, Raw]), **meta}
    elif own_meta is not None:
        members["_meta"] = own_meta
    marks = _marks(is_error=is_error, meta=meta)
    return b"%b%b}" % (encode_members(members)[:-1], marks)


def _marks(*, is_error: bool, meta: Mapping[str, Json] | None) -> bytes:
    """The members that say how it ended and what belongs to it, each after a comma."""
    marks = b',"isError":true' if is_error else b""
    if meta:
        marks += b',"_meta":%b' % encode_members({name: single_line(raw) for name, raw in meta.items()})
    return marks


_HEAD: Final = 0.6
"""The share of what is kept that comes from the beginning."""
_NOTE: Final = "\n[… {count:,} characters were left out here: the result is too long for the agent. Ask for less …]\n"
_NOTE_CHARACTERS: Final = 160

Block = dict[str, Any]


def shortened(result: Json, most_characters: int) -> bytes | None:
    """The result of a `tools/call`, the texts of all its blocks cut to the limit; None where it may stay as it is."""
    if len(result) <= most_characters:
        return None  # no character is shorter than a byte
    decoded = _decoded(result)
    content = cast(list[Any], decoded.get("content") or [])
    texts = [held["text"] for block in content if (held := _text_in(block)) is not None]
    if _fit(texts, decoded.get("structuredContent"), most_characters):
        return None
    structured = decoded.pop("structuredContent", None)  # agents would show this in place of the text
    if not texts and structured is not None:
        content = [*content, {"type": "text", "text": _encoded(structured).decode()}]
    decoded["content"] = _cut(content, most_characters)
    return _encoded(decoded)


def _decoded(result: Json) -> dict[str, Any]:
    """Servers may send halves of characters and numbers without end, which are JSON as well."""
    try:
        return cast(dict[str, Any], msgspec.json.decode(result))
    except msgspec.DecodeError:
        return json.loads(bytes(result), parse_float=_number, parse_int=_number)


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _number(text: str) -> int | float | None:
    number = float(text)
    if not isfinite(number):
        return None
    return int(text) if text.lstrip("-").isdigit() else number


def _text_in(block: object) -> Block | None:
    """Where a block holds its text: in itself, or in the resource that it embeds."""
    if not isinstance(block, dict):
        return None
    outer = cast(Block, block)
    held = outer if outer.get("type") == "text" else outer.get("resource")
    return cast(Block, held) if isinstance(held, dict) and isinstance(cast(Block, held).get("text"), str) else None


def _fit(texts: list[str], structured: object, most_characters: int) -> bool:
    data = 0 if structured is None else len(_encoded(structured))
    return max(sum(map(len, texts)), data) <= most_characters


def _cut(content: list[Any], most_characters: int) -> list[Any]:
    """Each text keeps what is left of the room by those before it. Where next to nothing is, it goes, and one word at
    the end stands for all that went."""
    kept: list[Any] = []
    room, gone = most_characters - _NOTE_CHARACTERS, 0
    for block in content:
        held = _text_in(block)
        if held is None:
            kept.append(block)
        elif len(held["text"]) > room <= _NOTE_CHARACTERS:
            gone += len(held["text"])
        else:
            held["text"] = cut_text(held["text"], room)
            room -= len(held["text"])
            kept.append(block)
    return [*kept, {"type": "text", "text": _NOTE.format(count=gone)}] if gone else kept


def cut_text(text: str, characters: int) -> str:
    """Its beginning and its end, where it is longer, with a word on what is missing."""
    if len(text) <= characters:
        return text
    kept = max(0, characters - _NOTE_CHARACTERS)
    head = text[: int(kept * _HEAD)]
    tail = text[len(text) - (kept - len(head)) :]
    return head + _NOTE.format(count=len(text) - kept) + tail


# Results whose text is JSON, for agents that take it for structured content, which has to be an object: a text that is
# a number, a list or a word of JSON makes them refuse the whole result, unless it has structured content already.

_STRUCTURE: Final = "structuredContent"
_NOT_JSON: Final = object()
_TOO_DEEP: Final = object()
_MAY_BE_JSON: Final = re.compile(r"[\s]*[-0-9\[\"tfn]")


def with_structure(result: Json) -> bytes | None:
    """The result of a `tools/call` with an empty structure, which they do not show; None where none is needed. What is
    there already stays byte for byte."""
    whole = bytes(result)
    decoded = _json_text_result_decoded(whole)
    if not isinstance(decoded, dict) or cast(dict[str, Any], decoded).get(_STRUCTURE) is not None:
        return None
    content = cast(dict[str, Any], decoded).get("content")
    text = _text(cast(list[object], content)[0]) if isinstance(content, list) and content else ""
    if not _MAY_BE_JSON.match(text) or _json_text_result_decoded(text) is _NOT_JSON:
        return None
    begin, brace, rest = whole.partition(b"{")
    if _STRUCTURE in decoded:  # as null, which would count, being the later one
        return json.dumps({**decoded, _STRUCTURE: {}}).encode()
    return begin + brace + b'"structuredContent":{},' + rest


def _text(block: object) -> str:
    if not isinstance(block, dict):
        return ""
    text = cast(dict[str, Any], block).get("text")
    return text if isinstance(text, str) else ""


def _json_text_result_decoded(text: str | bytes) -> object:
    """As an agent reads it, for which neither half a character nor a number without end is a mistake."""
    try:
        return json.loads(text, parse_int=float)
    except json.JSONDecodeError:
        return _NOT_JSON
    except RecursionError:
        return _TOO_DEEP
