"""Translates results, tools and errors of servers for clients of another protocol version.

Results and tools of newer servers are reduced to what an older client knows; everything else stays byte for byte, and
what needs no change is returned as the same object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    decode_list,
    decode_members,
    decode_text,
    encode,
    encode_members,
    members_of,
    text_member,
)
from trunkline.protocol.mcp.versions import LEGACY

Rewrite = Callable[[Members], bytes | None]
"""Returns a content block for an older client; None if it needs no change."""

_WITHOUT_STRUCTURE: Final = frozenset(LEGACY[:2])
_WITHOUT_AUDIO: Final = frozenset(LEGACY[:1])
_STRUCTURE_OTHER_THAN_OBJECT: Final = re.compile(rb'"structuredContent"\s*:\s*[^{\s]')
_OLD_CONTENT: Final = re.compile(rb'"structuredContent"\s*:|"resource_link"|"audio"')
_KEPT: Final = ("annotations", "_meta")
_OPEN_BRACE: Final = 0x7B

RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
_TO_LEGACY: Final = {-32020: INTERNAL, -32021: INVALID_PARAMS, -32022: INTERNAL}


class _ContentBlockType(msgspec.Struct):
    type: str = ""


class _Schema(msgspec.Struct):
    type: Raw = Raw(b"null")


class _ToolOutputSchema(msgspec.Struct, rename="camel"):
    output_schema: Raw | UnsetType = UNSET


_decode_block_type: Final = msgspec.json.Decoder(_ContentBlockType).decode
_decode_schema: Final = msgspec.json.Decoder(_Schema).decode
_decode_tool_output_schema: Final = msgspec.json.Decoder(_ToolOutputSchema).decode


# -- results ----------------------------------------------------------------------------------------------------------


def downgraded_result(raw: Json, version: str, text: bytes | None = None) -> Json:
    """The result of `tools/call` or `prompts/get` for a client of this legacy version.

    `text` is the whole message that contains `raw`, if at hand: searching it is cheaper.
    """
    pattern = _OLD_CONTENT if version in _WITHOUT_STRUCTURE else _STRUCTURE_OTHER_THAN_OBJECT
    if pattern.search(raw if text is None else text) is None:
        return raw
    try:
        return _rewritten(raw, version)
    except (msgspec.MsgspecError, RecursionError):  # not a valid result: passed on as it is
        return raw


def _rewritten(raw: Json, version: str) -> Json:
    members: dict[str, Json | Raw] = {**decode_members(raw)}
    changed = False
    if version in _WITHOUT_STRUCTURE:
        rewrite = _without_audio if version in _WITHOUT_AUDIO else _without_links
        # A tool's content is a list of blocks; a prompt has messages with one block each.
        changed = _rewrite_each(members, "content", lambda block: _rewritten_block(block, rewrite))
        changed |= _rewrite_each(members, "messages", lambda message: _rewritten_message(message, rewrite))
    structure = members.get("structuredContent")
    if structure is not None and (version in _WITHOUT_STRUCTURE or memoryview(structure)[0] != _OPEN_BRACE):
        del members["structuredContent"]
        members["content"] = _with_text(members.get("content", b"[]"), bytes(structure))
        changed = True
    return encode_members(members) if changed else raw


def _rewrite_each(members: dict[str, Json | Raw], name: str, rewritten: Callable[[Raw], Json | Raw]) -> bool:
    """Rewrite the entries of one list in the result; returns whether any changed."""
    entries = members.get(name)
    if entries is None:
        return False
    before = decode_list(entries)
    after = [rewritten(entry) for entry in before]
    if after == before:
        return False
    members[name] = _encode_list(after)
    return True


def _rewritten_message(message: Raw, rewrite: Rewrite) -> Json | Raw:
    members = decode_members(message)
    content = members.get("content")
    if content is None or memoryview(content)[0] != _OPEN_BRACE:
        return message
    shown = _rewritten_block(content, rewrite)
    return message if shown is content else encode_members({**members, "content": shown})


def _rewritten_block(block: Raw, rewrite: Rewrite) -> Json | Raw:
    shown = rewrite(decode_members(block))
    return block if shown is None else shown


def _encode_list(items: list[Json | Raw]) -> bytes:
    return b"[%b]" % b",".join(items)


# -- content blocks ---------------------------------------------------------------------------------------------------


def _without_links(block: Members) -> bytes | None:
    if _text_of(block, "type") != "resource_link":
        return None
    name, uri = _text_of(block, "name"), _text_of(block, "uri")
    return _text_block(f"{name}: {uri}" if name else uri, block)


def _without_audio(block: Members) -> bytes | None:
    if _text_of(block, "type") != "audio":
        return _without_links(block)
    kind = _text_of(block, "mimeType")
    return _text_block(f"[audio {kind}]" if kind else "[audio]", block)


def _text_of(block: Members, name: str) -> str:
    try:
        return decode_text(block.get(name, b'""'))
    except msgspec.ValidationError:
        return ""


def _text_block(text: str, instead_of: Members) -> bytes:
    kept = {name: instead_of[name] for name in _KEPT if name in instead_of}
    return encode_members({"type": b'"text"', "text": encode(text), **kept})


def _with_text(content: Json | Raw, structure: bytes) -> bytes:
    """The content with the structure as text too: most servers include a copy, otherwise we add one."""
    blocks = decode_list(content)
    if any(_decode_block_type(block).type == "text" for block in blocks):
        return bytes(content)
    return _encode_list([*blocks, encode({"type": "text", "text": structure.decode()})])


# -- tools ------------------------------------------------------------------------------------------------------------


def downgraded_tools(listing: bytes, version: str) -> bytes:
    """A JSON array of tools for a client of this legacy version, without output schemas that it cannot read."""
    if b'"outputSchema"' not in listing:
        return listing
    try:
        tools = decode_list(listing)
        shown = [_downgraded_tool(tool, version) for tool in tools]
    except (msgspec.MsgspecError, RecursionError):
        return listing
    return listing if shown == tools else _encode_list(shown)


def _downgraded_tool(tool: Raw, version: str) -> Json | Raw:
    schema = _decode_tool_output_schema(tool).output_schema
    if schema is UNSET:
        return tool
    if version not in _WITHOUT_STRUCTURE:
        with suppress(msgspec.ValidationError):  # a schema may be `true`
            if bytes(_decode_schema(schema).type) == b'"object"':
                return tool
    return encode_members({name: value for name, value in decode_members(tool).items() if name != "outputSchema"})


# -- errors -----------------------------------------------------------------------------------------------------------


def error_code(error: Json) -> int:
    """The code of an error object; 0 if it has none."""
    try:
        return msgspec.json.decode(error, type=_Error).code
    except (msgspec.MsgspecError, RecursionError):
        return 0


class _Error(msgspec.Struct):
    code: int


def legacy_code(code: int) -> int:
    """The code for a legacy client: 2026-07-28 has added -32020, -32021 and -32022."""
    return _TO_LEGACY.get(code, code)


def error_for_legacy(error: Json, *, reading: bool) -> Json:
    """A server's error for a legacy client. Modern servers use -32602 for a resource that does not exist."""
    code = error_code(error)
    if code in _TO_LEGACY:
        return _with_code(error, _TO_LEGACY[code])
    if reading and code == INVALID_PARAMS:
        with suppress(BadMessage, KeyError):
            if "uri" in members_of(members_of(bytes(error), "error")["data"], "`data`"):
                return _with_code(error, RESOURCE_NOT_FOUND)
    return error


def error_for_modern(error: Json, uri: str | None) -> Json:
    """A server's error for a modern client, which does not know -32002 and -32042; `uri` is that of the resource that
    was read, if any."""
    code = error_code(error)
    if code == RESOURCE_NOT_FOUND:
        return _with_code(error, INVALID_PARAMS, uri)
    return _with_code(error, INTERNAL) if code == URL_ELICITATION_REQUIRED else error


def urls_required(error: Json) -> list[Members]:
    """The parameters of every elicitation that an error -32042 requires; empty if it is malformed."""
    try:
        data = members_of(members_of(bytes(error), "error")["data"], "`data`")
        listed = msgspec.json.decode(data["elicitations"], type=list[msgspec.Raw])
        asked = [members_of(one, "an elicitation") for one in listed]
        return asked if all(text_member(one, "url") for one in asked) else []
    except (BadMessage, KeyError, msgspec.MsgspecError, RecursionError):
        return []


def _with_code(error: Json, code: int, uri: str | None = None) -> bytes:
    try:
        members: dict[str, Json] = {name: bytes(value) for name, value in members_of(bytes(error), "error").items()}
    except BadMessage:
        return b'{"code":%d,"message":"The server refused the request"}' % code
    members["code"] = b"%d" % code
    if uri is not None:
        data: Members = {}
        with suppress(BadMessage):
            data = members_of(bytes(members.get("data", b"{}")), "`data`")
        members["data"] = encode_members({**data, "uri": data.get("uri", encode(uri))})
    return encode_members(members)


def error_text(error: Json) -> str:
    """The message of an error object."""
    try:
        return text_member(members_of(bytes(error), "error"), "message") or "no reason given"
    except BadMessage:
        return "no reason given"
