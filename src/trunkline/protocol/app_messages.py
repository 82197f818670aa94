"""The lines between the gateway and an app that dialled in: what an app may say, and what it is told.

Responses are most of what comes, so they have a quick way; a message that is spelled otherwise (other programs write
`CorrelationId`) is read name by name. What a line holds is checked to be one JSON text in UTF-8 before any of it is
passed on, and nothing that an app writes can end the line that it is put into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Raw

from trunkline.core.call import Json
from trunkline.core.errors import INVALID_REQUEST
from trunkline.protocol.jsonrpc import (
    LESS_ROOM,
    SHORT_BYTES,
    BadMessage,
    Members,
    check_text,
    encode,
    members_of,
    members_of_message,
    mend_surrogates,
)
from trunkline.protocol.mcp.tool_results import error_result, result_of

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_NULL: Final = b"null"
_HEAD_BYTES: Final = 256
_LONGEST_NAME: Final = 128
_LONGEST_SECRET: Final = 1024
_NO_REASON: Final = "The app says that it failed, and not why"
_READABLE_ID: Final = re.compile(
    rb'\s*\{\s*(?:"type"\s*:\s*"toolResponse"\s*,\s*)?"correlationId"\s*:\s*(\d{1,18})\s*[,}]', re.IGNORECASE
)
_HTTP: Final = re.compile(rb"[A-Z]{3,16} \S+ HTTP/\d")
_TLS_HANDSHAKE: Final = b"\x16\x03"


class BadLine(Exception):
    """A line that is no message. `correlation_id` is that of the call whose answer it was, where that can be read."""

    def __init__(self, reason: str, correlation_id: int | None = None) -> None:
        super().__init__(reason)
        self.correlation_id = correlation_id


class BadRegister(Exception):
    """A `register` that cannot be taken, and whether its sender wants to be told."""

    def __init__(self, reason: str, *, acknowledge: bool) -> None:
        super().__init__(reason)
        self.acknowledge = acknowledge


class AppResult(msgspec.Struct):
    """How a tool of an app ended. `data` is any JSON value."""

    success: bool
    data: Raw = Raw(_NULL)
    error: str | None = None

    def as_mcp(self) -> bytes:
        """The same as the result of an MCP `tools/call`."""
        if self.success:
            return result_of(self.data)
        if self.error is not None:
            return error_result(self.error)
        data = bytes(self.data)
        return error_result(_NO_REASON) if data == _NULL else result_of(data, is_error=True)


class Response(msgspec.Struct, rename="camel"):
    type: Literal["toolResponse"]
    correlation_id: int
    result: AppResult


class Progress(msgspec.Struct):
    """How a call gets on: the members of MCP's `notifications/progress`, each as JSON where there is one."""

    correlation_id: int
    progress: bytes | None
    total: bytes | None
    message: bytes | None

    def as_mcp(self, step: int) -> bytes:
        """The parameters of the notification, without a token; `step` where the app does not count."""
        parts = [b'"progress":%b' % (self.progress or b"%d" % step)]
        if self.total is not None:
            parts.append(b'"total":%b' % self.total)
        if self.message is not None:
            parts.append(b'"message":%b' % self.message)
        return b"{%b}" % b",".join(parts)


class Register(msgspec.Struct):
    """An app says who it is and what it offers; `tools` are as it wrote them."""

    app_name: str
    tools: list[Raw]
    token: str
    credential: str
    acknowledge: bool


class Unknown(msgspec.Struct):
    """A message of another type: of a later version, maybe."""


Incoming = Response | Progress | Register | Unknown

_decode_response: Final = msgspec.json.Decoder(Response).decode
_decode_list: Final = cast(Callable[[Any], list[Raw]], msgspec.json.Decoder(list[Raw]).decode)
_decode_text: Final = cast(Callable[[Any], str], msgspec.json.Decoder(str).decode)
_decode_bool: Final = cast(Callable[[Any], bool], msgspec.json.Decoder(bool).decode)
_decode_number: Final = msgspec.json.Decoder(int | float).decode
_decode_id: Final = cast(Callable[[Any], int], msgspec.json.Decoder(int, strict=False).decode)


# -- from the app --------------------------------------------------------------------------------------------------


def read_line(line: bytes) -> Incoming:
    """The message in one line; raises BadLine or BadRegister. What is no message at all must cost next to nothing."""
    if line[:1] != b"{":
        line = line.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE)
        if line[:1] != b"{":
            raise BadLine("message must be one JSON object")
    try:
        if not line.isascii():
            line.decode()
        if len(line) < SHORT_BYTES:
            return _decode_response(line)
        with LESS_ROOM:
            return _decode_response(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_otherwise(line)


def _read_otherwise(line: bytes) -> Incoming:
    """Not a response as we write it: another message, another spelling, or broken."""
    text = mend_surrogates(line)
    try:
        check_text(text)
        members = _folded(members_of_message(text))
        return _read_members(members)
    except BadMessage as error:
        raise BadLine(str(error), readable_id(text)) from None


def _read_members(members: Members) -> Incoming:
    kind = _text(members, "type").casefold()
    if kind == "toolresponse":
        return _read_response(members)
    if kind == "toolprogress":
        return _read_progress(members)
    return _read_register(members) if kind == "register" else Unknown()


def folded_members(raw: Raw, what: str) -> Members:
    """The members of an object by their names in lower case; raises BadMessage."""
    return _folded(members_of(raw, what))


def _folded(members: Members) -> Members:
    """Two names that differ in case only would be two messages in one: which of them counts is nobody's to guess."""
    folded = {name.casefold(): value for name, value in members.items()}
    if len(folded) < len(members):
        raise BadMessage(INVALID_REQUEST, "a member comes twice")
    return folded


def _read_response(members: Members) -> Response:
    correlation_id = _correlation_id(members)
    raw = members.get("result")
    try:
        if raw is None:
            raise BadLine("the answer has no `result`")
        return Response("toolResponse", correlation_id, _read_result(folded_members(raw, "`result`")))
    except (BadMessage, BadLine) as error:
        raise BadLine(str(error), correlation_id) from None


def _read_result(members: Members) -> AppResult:
    error = _present(members, "error")
    success = _flag(members, "success", default=error is None)
    return AppResult(success, members.get("data", Raw(_NULL)), None if error is None else _as_text(error))


def _read_progress(members: Members) -> Progress:
    message = _present(members, "message") or _present(members, "data")
    return Progress(
        _correlation_id(members),
        _number(members, "progress"),
        _number(members, "total"),
        None if message is None else encode(_as_text(message)),
    )


def _read_register(members: Members) -> Register:
    acknowledge = _flag(members, "acknowledge", default=False)
    try:
        return Register(
            _app_name(members),
            _tools(members),
            _secret(members, "token"),
            _secret(members, "credential"),
            acknowledge,
        )
    except BadLine as error:
        raise BadRegister(str(error), acknowledge=acknowledge) from None


def _app_name(members: Members) -> str:
    name = _text(members, "appname").strip()
    if not name:
        raise BadLine("`appName` is missing or empty")
    if len(name) > _LONGEST_NAME:
        raise BadLine(f"`appName` is longer than {_LONGEST_NAME} characters")
    if not name.isprintable():
        raise BadLine("`appName` has control characters in it")
    return name


def _tools(members: Members) -> list[Raw]:
    try:
        return _decode_list(_present(members, "tools") or b"[]")
    except msgspec.MsgspecError:
        raise BadLine("`tools` is no list") from None


def _secret(members: Members, name: str) -> str:
    text = _text(members, name)
    if len(text) > _LONGEST_SECRET:
        raise BadLine(f"`{name}` is longer than {_LONGEST_SECRET} characters")
    return text


# -- single members ------------------------------------------------------------------------------------------------


def _present(members: Members, name: str) -> Raw | None:
    """A member that is there and not null."""
    raw = members.get(name)
    return None if raw is None or bytes(raw) == _NULL else raw


def _text(members: Members, name: str) -> str:
    """A text, empty where there is none or something else."""
    raw = members.get(name)
    try:
        return "" if raw is None else _decode_text(raw)
    except msgspec.MsgspecError:
        return ""


def _flag(members: Members, name: str, *, default: bool) -> bool:
    raw = _present(members, name)
    if raw is None:
        return default
    try:
        return _decode_bool(raw)
    except msgspec.MsgspecError:
        raise BadLine(f"`{name}` is neither true nor false") from None


def _number(members: Members, name: str) -> bytes | None:
    raw = members.get(name)
    try:
        if raw is None:
            return None
        _decode_number(raw)
        return bytes(raw)
    except msgspec.MsgspecError:
        return None


def _correlation_id(members: Members) -> int:
    """A number, which may be written as a text."""
    try:
        return _decode_id(members.get("correlationid", _NULL))
    except msgspec.MsgspecError:
        raise BadLine("`correlationId` is no number") from None


def _as_text(raw: Raw) -> str:
    """A text as it is, anything else as its JSON."""
    text = bytes(raw)
    return _decode_text(raw) if text[:1] == b'"' else text.decode()


def readable_id(head: bytes) -> int | None:
    """The id at the very start of a broken response; nothing that merely looks like one further in."""
    match = _READABLE_ID.match(head[:_HEAD_BYTES].removeprefix(_BYTE_ORDER_MARK))
    return int(match[1]) if match else None


def is_browser(line: bytes) -> bool:
    """Whether a browser is speaking: any web page can make one send lines of its choice to a port of this machine.

    With HTTPS as well: what a server once gave a browser to begin the next connection with is part of its first bytes.
    """
    return _HTTP.match(line) is not None or line.startswith(_TLS_HANDSHAKE)


# -- to the app ----------------------------------------------------------------------------------------------------


def invocation(correlation_id: int, tool_json: bytes, parameters: Json) -> bytes:
    """A call. `tool_json` is the registered name as JSON, `parameters` one line of JSON."""
    return b'{"type":"toolInvocation","correlationId":%d,"tool":%b,"parameters":%b}' % (
        correlation_id,
        tool_json,
        parameters,
    )


def cancellation(correlation_id: int) -> bytes:
    return b'{"type":"toolCancel","correlationId":%d}' % correlation_id


def registered(app_name: str, server: str, tools: int, warnings: Sequence[str]) -> bytes:
    return encode(
        {"type": "registered", "appName": app_name, "server": server, "tools": tools, "warnings": list(warnings)}
    )


def refused(code: str, message: str) -> bytes:
    return encode({"type": "refused", "code": code, "message": message})
