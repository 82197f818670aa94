"""JSON-RPC messages: the members that we route by are parsed strictly, everything else is passed on as raw bytes.

Framing is a trust boundary. A peer's bytes are spliced into messages of our own, so each message is checked to be one
well-formed JSON text in UTF-8; members that we route by may not be repeated (two parsers could see two different
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
from trunkline.protocol.mcp.methods import INITIALIZE

Members = dict[str, Raw]
MessageId = int | str

decode_members: Final = cast(Callable[[Any], Members], msgspec.json.Decoder(dict[str, Raw]).decode)
decode_list: Final = cast(Callable[[Any], list[Raw]], msgspec.json.Decoder(list[Raw]).decode)
decode_text: Final = cast(Callable[[Any], str], msgspec.json.Decoder(str).decode)
_decode_id: Final = cast(Callable[[Any], MessageId], msgspec.json.Decoder(int | str).decode)
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder().decode

_VERSION: Final = b'"2.0"'
_READABLE_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]')
MAX_BATCH_MESSAGES: Final = 100
BATCH_VERSION: Final = "2025-03-26"
"""The only protocol version with batches: arrays of several messages."""
_STACK_RESERVE: Final = 400
"""More than the deepest stack on which anything is decoded again."""
SHALLOW_BYTES: Final = 2 * _STACK_RESERVE
"""No text shorter than this is nested deeper than the reserve: each level takes two brackets."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF_BYTES: Final = 6
_MAX_SURROGATES: Final = 20_000
_MAX_BACKSLASHES: Final = 64
"""A text is cut in few places only. One with more than this stays broken, so that no line takes long."""


class BadMessage(Exception):
    """Bytes that are not an acceptable message; `id_json` is the sender's id as JSON if it could be read."""

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
        try:
            self.method: str | None = None if method is None else decode_text(method)
        except msgspec.MsgspecError:
            raise BadMessage(INVALID_REQUEST, "`method` must be a string", self.id_json) from None
        self.params = members.get("params")
        self.result = members.get("result")
        self.error = members.get("error")
        if self.method is None and (self.id is None or (self.result is None) == (self.error is None)):
            raise BadMessage(INVALID_REQUEST, "neither a request, a notification nor a response", self.id_json)


class ServerMessage(msgspec.Struct):
    """One incoming message of a server, with the members that we look at."""

    id: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


_decode_server_message: Final = msgspec.json.Decoder(ServerMessage).decode


class _ReducedStack:
    """A context in which decoders have less of the stack, so that what they accept can be decoded again anywhere else.

    A decoder takes one step of the recursion limit for each level of nesting, from wherever it is called. A message
    that can just be read where it arrives could not be read again deeper inside. Raises RecursionError if the stack is
    too deep already.
    """

    def __enter__(self) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() - _STACK_RESERVE)

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() + _STACK_RESERVE)


REDUCED_STACK: Final = _ReducedStack()


def decode_server_message(text: bytes) -> ServerMessage:
    """Raises MsgspecError, or RecursionError if it is nested too deeply."""
    if len(text) < SHALLOW_BYTES:
        return _decode_server_message(text)
    with REDUCED_STACK:
        return _decode_server_message(text)


def decode_batch(text: bytes) -> list[Raw]:
    """The messages of a server's batch, each raw; empty when it is not a batch."""
    try:
        text.decode()
        return decode_list(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def parse_message(data: bytes) -> Message:
    """The message in `data`; raises BadMessage with the error code to answer."""
    check_text(data)
    return Message(members_of_message(data))


def members_of_message(data: bytes) -> Members:
    if len(data) < SHALLOW_BYTES:
        return members_of(data, "message")
    try:
        with REDUCED_STACK:
            return members_of(data, "message")
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "message cannot be read here: the stack is too deep") from None


def check_text(data: bytes) -> None:
    """Raises BadMessage unless the text is UTF-8: a decoder that skips a string does not check its bytes."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise BadMessage(PARSE_ERROR, f"not valid UTF-8 at byte {error.start}") from None


def members_of(data: bytes | Raw, what: str, id_json: bytes = b"null") -> Members:
    """The members of one JSON object, each value raw; raises BadMessage if a name is repeated."""
    try:
        members = decode_members(data)
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
    """Whether a valid object has this member, however its name is escaped and however often it is repeated."""
    return name in decode_members(data)


def _compact_length(members: Members) -> int:
    """The length of the object without spaces, escapes in names, or repeated members.

    If it equals the actual length, there are none of these: a cheap check for what programs usually write.
    """
    length = 1 if members else 2
    for name, value in members.items():
        length += len(name) + len(value) + 4
    return length


def _repeats_a_name(data: bytes) -> bool:
    compact = msgspec.json.format(data, indent=-1)
    members = decode_members(compact)
    if _compact_length(members) == len(compact):
        return False
    try:
        # Numbers stay text: the standard library refuses to read one of several thousand digits.
        pairs: list[object] = json.loads(compact, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return True
    return len(pairs) != len(members)


def read_id(raw: Raw) -> MessageId:
    """A message's id, a string or an integer; raises BadMessage."""
    try:
        return _decode_id(raw)
    except msgspec.MsgspecError:
        raise BadMessage(INVALID_REQUEST, "`id` must be a string or an integer") from None


def text_member(members: Members, name: str) -> str | None:
    """A member that must be a string if it is present; raises BadMessage."""
    raw = members.get(name)
    if raw is None:
        return None
    try:
        return decode_text(raw)
    except msgspec.MsgspecError:
        raise BadMessage(INVALID_REQUEST, f"`{name}` must be a string") from None


def readable_id(head: bytes) -> int | None:
    """Our own id at the very start of a broken response, but nothing further in that merely looks like one."""
    match = _READABLE_ID.match(head)
    return int(match[1]) if match else None


def replace_lone_surrogates(text: bytes) -> bytes:
    """Replace unpaired surrogates with U+FFFD: JavaScript programs write one when they cut a text within a pair."""
    if b"\\u" not in text:
        return text
    parts: list[bytes] = []
    at = kept = 0
    for _ in range(_MAX_SURROGATES):
        found = _SURROGATE.search(text, at)
        if found is None:
            return b"".join((*parts, text[kept:])) if parts else text
        start = found.start()
        before = text[max(0, start - _MAX_BACKSLASHES) : start]
        backslashes = len(before) - len(before.rstrip(b"\\"))
        if backslashes == _MAX_BACKSLASHES:
            break
        if backslashes % 2:  # the backslash is itself escaped
            at = start + 1
        elif _PAIR.match(text, start):
            at = start + 2 * _HALF_BYTES
        else:
            at = start + _HALF_BYTES
            parts += (text[kept:start], b"\\ufffd")
            kept = at
    return text


def single_line(data: Json | Raw) -> bytes:
    """The same JSON on one line; numbers, the order of members and strings stay as written."""
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


def encode_request(request: Request, upstream_id: int, request_meta: bytes) -> bytes:
    """The request as one line of JSON for its server.

    `request_meta` holds the `_meta` members that this hop adds (2026-07-28), already encoded and without braces.
    """
    method = request.method.encode()
    params = request.params
    if request.meta is None and not request_meta and not request.wants_progress:
        return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (upstream_id, method, params)
    meta = [b"%b:%b" % (encode(name), value) for name, value in (request.meta or {}).items()]
    if request_meta:
        meta.append(request_meta)
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
    """A notification as one line. The method is encoded, because a peer may have chosen it: it could end the string."""
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


def is_batch(data: bytes) -> bool:
    return data.lstrip()[:1] == b"["


def split_batch(data: bytes) -> list[bytes]:
    """The texts of the messages in a client's batch; raises BadMessage if it cannot be served."""
    check_text(data)
    try:
        parts = decode_list(data)
    except msgspec.DecodeError as error:
        raise BadMessage(PARSE_ERROR, f"batch is not valid JSON: {error}") from None
    except RecursionError:
        raise BadMessage(PARSE_ERROR, "batch is nested too deeply") from None
    if not parts:
        raise BadMessage(INVALID_REQUEST, "A batch must not be empty")
    if len(parts) > MAX_BATCH_MESSAGES:
        raise BadMessage(INVALID_REQUEST, f"A batch holds at most {MAX_BATCH_MESSAGES} messages")
    return [bytes(part) for part in parts]


def parse_batch_member(text: bytes) -> Message | BadMessage:
    """One message of a client's batch; `initialize` must not be in one."""
    try:
        message = Message(members_of_message(text))
    except BadMessage as error:
        return error
    if message.method == INITIALIZE:
        return BadMessage(INVALID_REQUEST, "`initialize` must not be part of a batch", message.id_json)
    return message
