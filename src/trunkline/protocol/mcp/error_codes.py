"""Error codes that one era has and the other has not: what each becomes on the other side.

2026-07-28 knows no -32002 (resource not found) and no -32042 (a URL must be visited first); clients from before know no
-32020, -32021 and -32022.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trunkline.core.call import Json
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_members, members_of, text_member

NO_RESOURCE: Final = -32002
URL_REQUIRED: Final = -32042
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
_TO_LEGACY: Final = {-32020: INTERNAL, -32021: INVALID_PARAMS, -32022: INTERNAL}


def code_of(error: Json) -> int:
    """The code of an error object; 0 where there is none to read."""
    try:
        return msgspec.json.decode(error, type=_Error).code
    except (msgspec.MsgspecError, RecursionError):
        return 0


class _Error(msgspec.Struct):
    code: int


def legacy_code(code: int) -> int:
    """A code as clients from before 2026-07-28 know it."""
    return _TO_LEGACY.get(code, code)


def for_legacy(error: Json, *, reading: bool) -> Json:
    """A server's error for a legacy client. A modern server says -32602 of a resource that it has not."""
    code = code_of(error)
    if code in _TO_LEGACY:
        return _with_code(error, _TO_LEGACY[code])
    if reading and code == INVALID_PARAMS and _names_uri(error):
        return _with_code(error, NO_RESOURCE)
    return error


def for_modern(error: Json, uri: str | None) -> Json:
    """A server's error for a modern client; `uri` is what was read, where something was."""
    code = code_of(error)
    if code == NO_RESOURCE:
        return _with_code(error, INVALID_PARAMS, uri)
    return _with_code(error, INTERNAL) if code == URL_REQUIRED else error


def urls_required(error: Json) -> list[Members]:
    """The parameters of every elicitation that an error -32042 asks for; empty where there is nothing to go by."""
    try:
        data = members_of(members_of(bytes(error), "error")["data"], "`data`")
        listed = msgspec.json.decode(data["elicitations"], type=list[msgspec.Raw])
        asked = [members_of(one, "an elicitation") for one in listed]
        return asked if all(text_member(one, "url") for one in asked) else []
    except (BadMessage, KeyError, msgspec.MsgspecError, RecursionError):
        return []


def _names_uri(error: Json) -> bool:
    try:
        return "uri" in members_of(members_of(bytes(error), "error")["data"], "`data`")
    except (BadMessage, KeyError):
        return False


def _with_code(error: Json, code: int, uri: str | None = None) -> bytes:
    try:
        members: dict[str, Json] = {name: bytes(value) for name, value in members_of(bytes(error), "error").items()}
    except BadMessage:
        return b'{"code":%d,"message":"The server refused the request"}' % code
    members["code"] = b"%d" % code
    if uri is not None:
        members["data"] = _data_with(members.get("data"), uri)
    return encode_members(members)


def _data_with(data: Json | None, uri: str) -> bytes:
    try:
        before = {} if data is None else members_of(bytes(data), "`data`")
    except BadMessage:
        before = {}
    return encode_members({**before, "uri": before.get("uri", encode(uri))})


def message_of(error: Json) -> str:
    """What an error object says, for a sentence of our own."""
    try:
        return text_member(members_of(bytes(error), "error"), "message") or "no reason given"
    except BadMessage:
        return "no reason given"
