"""An MCP result made from what a tool gave that does not speak MCP: one JSON value, or the text of its failure.

The value is spliced in as it was written: numbers keep their digits and names their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trunkline.core.call import Json
from trunkline.wire.jsonrpc import encode, encode_members, single_line

_WHITESPACE: Final = b" \t\r\n"
_OBJECT: Final = b"{"
_STRING: Final = b'"'


class _Block(msgspec.Struct):
    type: str


class _McpResult(msgspec.Struct):
    content: list[_Block]


def result_of(value: bytes, *, is_error: bool = False, meta: Mapping[str, Json] | None = None) -> bytes:
    """A `tools/call` result with this JSON value in it. `meta` are members of `_meta`.

    A text is shown as it is and an object also as `structuredContent`; an object that is an MCP result already, with
    its list of `content`, stays what it is.
    """
    value = value.strip(_WHITESPACE)
    first = value[:1]
    if first == _STRING:
        members = {"content": _text_block(single_line(value))}
    elif first == _OBJECT and _is_mcp_result(value):
        return _marked(value, is_error=is_error, meta=meta)
    else:
        line = single_line(value)
        members = {"content": _text_block(encode(line.decode()))}
        if first == _OBJECT:
            members["structuredContent"] = line
    return _joined(members, is_error=is_error, meta=meta)


def error_result(text: str) -> bytes:
    """The result of a tool that failed, with what it said about it."""
    return _joined({"content": _text_block(encode(text))}, is_error=True, meta=None)


def _is_mcp_result(value: bytes) -> bool:
    """Typed blocks and nothing else in `content`; an app's own `content` of another make is just its data."""
    try:
        return bool(msgspec.json.decode(value, type=_McpResult).content)
    except msgspec.MsgspecError:
        return False


def _marked(value: bytes, *, is_error: bool, meta: Mapping[str, Json] | None) -> bytes:
    members = {name: bytes(raw) for name, raw in msgspec.json.decode(value, type=dict[str, msgspec.Raw]).items()}
    own_meta = members.pop("_meta", None)
    if meta and own_meta is not None:
        meta = {**msgspec.json.decode(own_meta, type=dict[str, msgspec.Raw]), **meta}
    elif own_meta is not None:
        members["_meta"] = own_meta
    members = {name: single_line(raw) for name, raw in members.items()}
    return _joined(members, is_error=is_error and "isError" not in members, meta=meta)


def _text_block(text: bytes) -> bytes:
    return b'[{"type":"text","text":%b}]' % text


def _joined(members: dict[str, bytes], *, is_error: bool, meta: Mapping[str, Json] | None) -> bytes:
    if is_error:
        members["isError"] = b"true"
    if meta:
        members["_meta"] = encode_members({name: single_line(raw) for name, raw in meta.items()})
    return encode_members(members)
