"""Results of `tools/call`: made from plain JSON values, and adapted for agents that limit what they show of them."""

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

Block = dict[str, Any]

_WHITESPACE: Final = b" \t\r\n"
_OBJECT: Final = b"{"
_STRING: Final = b'"'
_CONTENT: Final = b'"content"'
_ESCAPE: Final = b"\\u"
"""A member's name may be escaped."""
_HEAD: Final = 0.6
"""The share of the kept characters that comes from the beginning."""
_NOTE: Final = "\n[… {count:,} characters were left out here: the result is too long for the agent. Ask for less …]\n"
_NOTE_CHARACTERS: Final = 160
_STRUCTURE: Final = "structuredContent"
_NOT_JSON: Final = object()
_TOO_DEEP: Final = object()
_MAY_BE_JSON: Final = re.compile(r"[\s]*[-0-9\[\"tfn]")


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
    """The members that clients insist on."""

    content: list[_Text | _Image | _Audio | _Link | _Embedded]
    is_error: bool = False
    meta: dict[str, Raw] = msgspec.field(name="_meta", default_factory=dict[str, Raw])


_decode_mcp_result: Final = msgspec.json.Decoder(_McpResult).decode


def tool_result(value: bytes | Raw, *, is_error: bool = False, meta: Mapping[str, Json] | None = None) -> bytes:
    """A `tools/call` result with this JSON value, which is spliced in as it was written. `meta` are members of `_meta`.

    A string becomes text, and an object also `structuredContent`; an object that is an MCP result already, with a list
    of `content`, is returned as it is.
    """
    line = single_line(value).strip(_WHITESPACE)
    first = line[:1]
    if first == _STRING and not is_error and meta is None:  # most tools just return text
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
    """The result of a tool that failed, with its message."""
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % encode(text)


def _is_mcp_result(value: bytes) -> bool:
    """Whether `content` is a list of MCP's own blocks; any other `content` is just data."""
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
    """`isError` and `_meta`, each after a comma."""
    marks = b',"isError":true' if is_error else b""
    if meta:
        marks += b',"_meta":%b' % encode_members({name: single_line(raw) for name, raw in meta.items()})
    return marks


def shortened(result: Json, most_characters: int) -> bytes | None:
    """A `tools/call` result whose texts are cut to a limit in total; None if it needs no change.

    Agents write a text that they cut to a file, which is useless to a model that cannot open files.
    """
    if len(result) <= most_characters:
        return None  # no character is shorter than a byte
    decoded = _decoded(result)
    content = cast(list[Any], decoded.get("content") or [])
    texts = [held["text"] for block in content if (held := _text_in(block)) is not None]
    structured = decoded.pop("structuredContent", None)  # agents would show this instead of the text
    data_size = 0 if structured is None else len(_encoded(structured))
    if max(sum(map(len, texts)), data_size) <= most_characters:
        return None
    if not texts and structured is not None:
        content = [*content, {"type": "text", "text": _encoded(structured).decode()}]
    decoded["content"] = _cut(content, most_characters)
    return _encoded(decoded)


def _decoded(result: Json) -> dict[str, Any]:
    """Decode with Python's decoder what msgspec refuses: unpaired surrogates, and numbers that are too large."""
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
    """The object with a block's text: the block itself, or the resource that it embeds."""
    if not isinstance(block, dict):
        return None
    outer = cast(Block, block)
    held = outer if outer.get("type") == "text" else outer.get("resource")
    return cast(Block, held) if isinstance(held, dict) and isinstance(cast(Block, held).get("text"), str) else None


def _cut(content: list[Any], most_characters: int) -> list[Any]:
    """Cut each text to the room that those before it left. Texts without room are dropped, with one note at the end."""
    kept: list[Any] = []
    room, dropped = most_characters - _NOTE_CHARACTERS, 0
    for block in content:
        held = _text_in(block)
        if held is None:
            kept.append(block)
        elif len(held["text"]) > room <= _NOTE_CHARACTERS:
            dropped += len(held["text"])
        else:
            held["text"] = cut_text(held["text"], room)
            room -= len(held["text"])
            kept.append(block)
    return [*kept, {"type": "text", "text": _NOTE.format(count=dropped)}] if dropped else kept


def cut_text(text: str, characters: int) -> str:
    """The beginning and the end of a text that is too long, with a note on what is missing."""
    if len(text) <= characters:
        return text
    kept = max(0, characters - _NOTE_CHARACTERS)
    head = text[: int(kept * _HEAD)]
    tail = text[len(text) - (kept - len(head)) :]
    return head + _NOTE.format(count=len(text) - kept) + tail


def with_structure(result: Json) -> bytes | None:
    """The result of a `tools/call` with an empty `structuredContent`; None if it needs none.

    Some agents take a text that is JSON for structured content, and refuse the whole result if it is not an object,
    such as a number or a list, unless there is structured content. They do not show an empty one.
    """
    whole = bytes(result)
    decoded = _decoded_by_agent(whole)
    if not isinstance(decoded, dict) or cast(dict[str, Any], decoded).get(_STRUCTURE) is not None:
        return None
    content = cast(dict[str, Any], decoded).get("content")
    block = cast(list[object], content)[0] if isinstance(content, list) and content else None
    text = cast(dict[str, Any], block).get("text") if isinstance(block, dict) else None
    if not isinstance(text, str) or not _MAY_BE_JSON.match(text) or _decoded_by_agent(text) is _NOT_JSON:
        return None
    begin, brace, rest = whole.partition(b"{")
    if _STRUCTURE in decoded:  # it is null, and of two members the later one would count
        return json.dumps({**decoded, _STRUCTURE: {}}).encode()
    return begin + brace + b'"structuredContent":{},' + rest


def _decoded_by_agent(text: str | bytes) -> object:
    """The value as an agent reads it, which accepts unpaired surrogates and numbers of any size."""
    try:
        return json.loads(text, parse_int=float)
    except json.JSONDecodeError:
        return _NOT_JSON
    except RecursionError:
        return _TOO_DEEP
