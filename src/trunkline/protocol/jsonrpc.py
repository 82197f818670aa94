"""JSON-RPC messages: what we route by is parsed strictly, everything else travels as the bytes it came in.

Framing is a trust boundary. A peer's bytes are spliced into messages of our own, so each message is checked to be one
well-formed JSON text in UTF-8; members that we route by may not come twice (two parsers could see two different
messages); and text with CR or LF between its tokens is re-encoded before it enters a line- or SSE-framed stream.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from trunkline.core.call import CR, LF, Json, Request
from trunkline.core.errors import INVALID_REQUEST, PARSE_ERROR, Code, Problem

# How deep a message may be nested: never deeper than can be read wherever it is looked into later.
#
# A decoder takes one step of the interpreter's recursion limit for each level, from wherever it is called. So what can
# just be read where it comes in could not be read again further inside. What comes in is read with less room therefore.

_KEPT: Final = 400
"""More than the deepest stack that anything here is decoded on."""
SHORT_BYTES: Final = 2 * _KEPT
"""Each level takes two brackets: no text shorter than this is nested deeper than what is kept."""


class _LessRoom:
    """A context in which only so much can be nested that there is room for it anywhere else. It may be entered and left
    at no cost worth mentioning, and raises RecursionError where there is no room at all."""

    def __enter__(self) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() - _KEPT)

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() + _KEPT)


LESS_ROOM: Final = _LessRoom()


Members = dict[str, Raw]
MessageId = int | str

_decode_members: Final = cast(Callable[[Any], Members], msgspec.json.Decoder(dict[str, Raw]).decode)
_decode_id: Final = cast(Callable[[Any], MessageId], msgspec.json.Decoder(int | str).decode)
_decode_text: Final = cast(Callable[[Any], str], msgspec.json.Decoder(str).decode)
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder().decode

_VERSION: Final = b'"2.0"'
_READABLE_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]')

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF_BYTES: Final = 6
_MOST_SURROGATES: Final = 20_000
_MOST_BACKSLASHES: Final = 64
"""A text is cut in few places. One that is stranger than this stays broken: a line must not take long."""


class BadMessage(Exception):
    """Bytes that are not an acceptable message; `id` is the sender's id as JSON where it could be read."""

    def __init__(self, code: Code, message: str, id_json: bytes = b"null") -> None:
        super().__init__(message)
        self.code = code
        self.id_json = id_json

    @property
    def problem(self) -> Problem:
        return Problem(code=self.code, message=str(self))


class Message:
    """One incoming JSON-RPC message of a client: a request, a notification or a response."""

    __slots__ = ("error", "id", "id_json", "method", "params", "result")

    def __init__(self, members: Members) -> None:
        raw_id = members.get("id")
        self.id_json = b"null" if raw_id is None else bytes(raw_id)
        self.id: MessageId | None = None if raw_id is None else read_id(raw_id)
        if bytes(members.get("jsonrpc", b"")) != _VERSION:
            raise BadMessage(INVALID_REQUEST, '`jsonrpc` must be "2.0"', self.id_json)
        method = members.get("method")
        self.method: str | None = None if method is None else _read_text(method, "method", self.id_json)
        self.params = members.get("params")
        self.result = members.get("result")
        self.error = members.get("error")
        if self.method is None and (self.id is None or (self.result is None) == (self.error is None)):
            raise BadMessage(INVALID_REQUEST, "neither a request, a notification nor a response", self.id_json)


class ServerMessage(msgspec.Struct):
    """One incoming message of a server, as far as we look into it."""

    id: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


_decode_server_message: Final = msgspec.json.Decoder(ServerMessage).decode
_decode_list: Final = cast(Callable[[bytes], list[Raw]], msgspec.json.Decoder(list[Raw]).decode)


def decode_server_message(text: bytes) -> ServerMessage:
    """Raises MsgspecError, or RecursionError where it is nested too deeply."""
    if len(text) < SHORT_BYTES:
        return _decode_server_message(text)
    with LESS_ROOM:
        return _decode_server_message(text)


def decode_batch(text: bytes) -> list[Raw]:
    """The messages of a JSON-RPC batch, each raw; empty when it is none."""
    try:
        text.decode()
        return _decode_list(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def parse_message(data: bytes) -> Message:
    """The one message in `data`, or BadMessage with the code to answer."""
    check_text(data)
    return Message(members_of_message(data))


def members_of_message(data: bytes) -> Members:
    if len(data) < SHORT_BYTES:
        return members_of(data, "message")
    try:
        with LESS_ROOM:
            return members_of(data, "message")
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "message cannot be read here: the stack is too deep") from None


def check_text(data: bytes) -> None:
    """JSON text is UTF-8, and a decoder that skips a string does not look at its bytes."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise BadMessage(PARSE_ERROR, f"not valid UTF-8 at byte {error.start}") from None


def members_of(data: bytes | Raw, what: str, id_json: bytes = b"null") -> Members:
    """The members of one JSON object, each value raw; refused when a name comes twice."""
    try:
        members = _decode_members(data)
    except msgspec.ValidationError:
        raise BadMessage(INVALID_REQUEST, f"{what} must be one JSON object", id_json) from None
    except msgspec.DecodeError as error:
        raise BadMessage(PARSE_ERROR, f"{what} is not valid JSON: {error}", id_json) from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, f"{what} is nested too deeply", id_json) from None
    if _compact_length(members) != len(data) and _repeats_a_name(bytes(data)):
        raise BadMessage(INVALID_REQUEST, f"{what} has a member twice", id_json)
    return members


def has_member(data: bytes, name: str) -> bool:
    """Whether a valid object has this member, however the name is spelled and however often it comes."""
    return name in _decode_members(data)


def _compact_length(members: Members) -> int:
    """How long the object is when written without spaces, escapes in names or repeated members.

    Equal to the real length, it proves that there is none of these: the cheap answer for what programs write.
    """
    length = 1 if members else 2
    for name, value in members.items():
        length += len(name) + len(value) + 4
    return length


def _repeats_a_name(data: bytes) -> bool:
    compact = msgspec.json.format(data, indent=-1)
    members = _decode_members(compact)
    if _compact_length(members) == len(compact):
        return False
    try:
        # Numbers stay text: the standard library refuses to read one of several thousand digits.
        pairs: list[object] = json.loads(compact, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return True
    return len(pairs) != len(members)


def read_id(raw: Raw) -> MessageId:
    """An id of either type, or BadMessage."""
    try:
        return _decode_id(raw)
    except msgspec.MsgspecError:
        raise BadMessage(INVALID_REQUEST, "`id` must be a string or an integer") from None


def _read_text(raw: Raw, name: str, id_json: bytes) -> str:
    try:
        return _decode_text(raw)
    except msgspec.MsgspecError:
        raise BadMessage(INVALID_REQUEST, f"`{name}` must be a string", id_json) from None


def text_member(members: Members, name: str) -> str | None:
    """A member that must be a string where it is present."""
    raw = members.get(name)
    if raw is None:
        return None
    try:
        return _decode_text(raw)
    except msgspec.MsgspecError:
        raise BadMessage(INVALID_REQUEST, f"`{name}` must be a string") from None


def readable_id(head: bytes) -> int | None:
    """Our own id at the very start of a broken answer; nothing that merely looks like one further in."""
    match = _READABLE_ID.match(head)
    return int(match[1]) if match else None


def mend_surrogates(text: bytes) -> bytes:
    """Half of a surrogate pair becomes U+FFFD: programs in JavaScript write one when they cut a text within a pair."""
    if b"\\u" not in text:
        return text
    parts: list[bytes] = []
    at = kept = 0
    for _ in range(_MOST_SURROGATES):
        found = _SURROGATE.search(text, at)
        if found is None:
            return b"".join((*parts, text[kept:])) if parts else text
        start = found.start()
        backslashes = _backslashes_before(text, start)
        if backslashes == _MOST_BACKSLASHES:
            break
        if backslashes % 2:  # the backslash is itself the second half of an escape
            at = start + 1
        elif _PAIR.match(text, start):
            at = start + 2 * _HALF_BYTES
        else:
            at = start + _HALF_BYTES
            parts += (text[kept:start], b"\\ufffd")
            kept = at
    return text


def _backslashes_before(text: bytes, end: int) -> int:
    before = text[max(0, end - _MOST_BACKSLASHES) : end]
    return len(before) - len(before.rstrip(b"\\"))


def single_line(data: Json | Raw) -> bytes:
    """The same JSON on one line; big numbers, key order and string contents stay as written."""
    text = bytes(data)
    if LF not in text and CR not in text:
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "nested too deeply") from None


def encode_members(members: Mapping[str, Json | Raw]) -> bytes:
    """An object from names and raw values."""
    return b"{%b}" % b",".join([b"%b:%b" % (encode(name), value) for name, value in members.items()])


def encode_request(request: Request, upstream_id: int, stamp: bytes) -> bytes:
    """The request as one line of JSON for its server.

    `stamp` holds the `_meta` members that this hop adds (2026-07-28), already encoded and without braces.
    """
    method = request.method.encode()
    params = request.params
    if request.meta is None and not stamp and not request.wants_progress:
        return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (upstream_id, method, params)
    meta = [b"%b:%b" % (encode(name), value) for name, value in (request.meta or {}).items()]
    if stamp:
        meta.append(stamp)
    if request.wants_progress:
        meta.append(b'"progressToken":%d' % upstream_id)
    head = bytes(params)[:-1]
    comma = b"," if len(head) > 1 else b""
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b%b"_meta":{%b}}}' % (
        upstream_id,
        method,
        head,
        comma,
        b",".join(meta),
    )


def encode_notification(method: str, params: Json | None = None) -> bytes:
    """The method is text that a peer may have chosen: as it stands it could end the string, or the line."""
    if params is None:
        return b'{"jsonrpc":"2.0","method":%b}' % encode(method)
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), params)


def encode_error(problem: Problem) -> bytes:
    """A problem as a JSON-RPC `error` object."""
    return encode({"code": problem.code.jsonrpc, "message": problem.message, "data": problem.data()})


def error_message(id_json: bytes, error: Json) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_json, error)


def result_message(id_json: bytes, result: Json) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_json, result)


# JSON-RPC batches, which only 2025-03-26 has: several messages of a client in one array.

MAX_MESSAGES: Final = 100
VERSION: Final = "2025-03-26"
_BRACKET: Final = b"["
_decode: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_batch(data: bytes) -> bool:
    return data.lstrip()[:1] == _BRACKET


def split_batch(data: bytes) -> list[bytes]:
    """The texts of its messages, or BadMessage where it is none that could be served."""
    check_text(data)
    try:
        parts = _decode(data)
    except msgspec.DecodeError as error:
        raise BadMessage(PARSE_ERROR, f"batch is not valid JSON: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "batch is nested too deeply") from None
    if not parts:
        raise BadMessage(INVALID_REQUEST, "A batch must not be empty")
    if len(parts) > MAX_MESSAGES:
        raise BadMessage(INVALID_REQUEST, f"A batch holds at most {MAX_MESSAGES} messages")
    return [bytes(part) for part in parts]


def read_member(text: bytes) -> Message | BadMessage:
    """One message of a batch; a handshake is no part of one."""
    try:
        message = Message(members_of_message(text))
    except BadMessage as error:
        return error
    if message.method == "initialize":
        return BadMessage(INVALID_REQUEST, "`initialize` must not be part of a batch", message.id_json)
    return message
