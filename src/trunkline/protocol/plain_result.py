"""An MCP result made from what a tool gave that does not speak MCP: one JSON value, or the text of its failure.

The value is spliced in as it was written: numbers keep their digits and names their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import encode, encode_members, single_line

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
