"""The messages between the gateway and a connected app, one JSON object per line.

Most lines are responses, which are parsed on a fast path; a message with other spellings (some programs write
`CorrelationId`) is read member by member. Each line is checked to be one JSON text in UTF-8 before any of it is passed
on, and nothing that an app writes can end the line that it is put into.
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
    REDUCED_STACK,
    SHALLOW_BYTES,
    BadMessage,
    Members,
    check_text,
    decode_list,
    decode_text,
    encode,
    members_of,
    members_of_message,
    replace_lone_surrogates,
)
from trunkline.protocol.mcp.tool_results import error_result, tool_result

_HEAD_BYTES: Final = 256
_MAX_NAME_CHARACTERS: Final = 128
_MAX_SECRET_CHARACTERS: Final = 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_NULL: Final = b"null"
_NO_REASON: Final = "The app reported a failure without a reason"
_READABLE_ID: Final = re.compile(
    rb'\s*\{\s*(?:"type"\s*:\s*"toolResponse"\s*,\s*)?"correlationId"\s*:\s*(\d{1,18})\s*[,}]', re.IGNORECASE
)
_HTTP: Final = re.compile(rb"[A-Z]{3,16} \S+ HTTP/\d")
_TLS_HANDSHAKE: Final = b"\x16\x03"


class BadLine(Exception):
    """A line that is not a valid message. `correlation_id` is that of the call it responds to, if it can be read."""

    def __init__(self, reason: str, correlation_id: int | None = None) -> None:
        super().__init__(reason)
        self.correlation_id = correlation_id


class BadRegistration(Exception):
    """A `register` that is not valid, and whether its sender wants an acknowledgement."""

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
            return tool_result(self.data)
        if self.error is not None:
            return error_result(self.error)
        data = bytes(self.data)
        return error_result(_NO_REASON) if data == _NULL else tool_result(data, is_error=True)


class AppResponse(msgspec.Struct, rename="camel"):
    """The response to a call."""

    type: Literal["toolResponse"]
    correlation_id: int
    result: AppResult


class AppProgress(msgspec.Struct):
    """The progress of a call: the members of MCP's `notifications/progress`, each as JSON if present."""

    correlation_id: int
    progress: bytes | None
    total: bytes | None
    message: bytes | None

    def as_mcp(self, step: int) -> bytes:
        """The parameters of the notification, without a token; `step` if the app does not count."""
        parts = [b'"progress":%b' % (self.progress or b"%d" % step)]
        if self.total is not None:
            parts.append(b'"total":%b' % self.total)
        if self.message is not None:
            parts.append(b'"message":%b' % self.message)
        return b"{%b}" % b",".join(parts)


class Registration(msgspec.Struct):
    """An app's name and its tools, which are raw JSON."""

    app_name: str
    tools: list[Raw]
    token: str
    credential: str
    acknowledge: bool


class UnknownMessage(msgspec.Struct):
    """A message of another type, perhaps of a later version."""


AppMessage = AppResponse | AppProgress | Registration | UnknownMessage

_decode_response: Final = msgspec.json.Decoder(AppResponse).decode
_decode_bool: Final = cast(Callable[[Any], bool], msgspec.json.Decoder(bool).decode)
_decode_number: Final = msgspec.json.Decoder(int | float).decode
_decode_id: Final = cast(Callable[[Any], int], msgspec.json.Decoder(int, strict=False).decode)


# -- from the app --------------------------------------------------------------------------------------------------


def parse_line(line: bytes) -> AppMessage:
    """The message in one line; raises BadLine or BadRegistration. Rejecting a line that is not a message is cheap."""
    if line[:1] != b"{":
        line = line.removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE)
        if line[:1] != b"{":
            raise BadLine("message must be one JSON object")
    try:
        if not line.isascii():
            line.decode()
        if len(line) < SHALLOW_BYTES:
            return _decode_response(line)
        with REDUCED_STACK:
            return _decode_response(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse_slowly(line)


def _parse_slowly(line: bytes) -> AppMessage:
    """Parse a line that is not a response in the usual spelling: another message, another spelling, or broken."""
    text = replace_lone_surrogates(line)
    try:
        check_text(text)
        members = _folded(members_of_message(text))
        return _read_members(members)
    except BadMessage as error:
        raise BadLine(str(error), readable_id(text)) from None


def _read_members(members: Members) -> AppMessage:
    kind = _text(members, "type").casefold()
    if kind == "toolresponse":
        return _read_response(members)
    if kind == "toolprogress":
        return _read_progress(members)
    return _read_register(members) if kind == "register" else UnknownMessage()


def folded_members(raw: Raw, what: str) -> Members:
    """The members of an object by their names in lower case; raises BadMessage."""
    return _folded(members_of(raw, what))


def _folded(members: Members) -> Members:
    """Raises BadMessage for two names that differ in case only: it would be ambiguous which of them counts."""
    folded = {name.casefold(): value for name, value in members.items()}
    if len(folded) < len(members):
        raise BadMessage(INVALID_REQUEST, "a member comes twice")
    return folded


def _read_response(members: Members) -> AppResponse:
    correlation_id = _correlation_id(members)
    raw = members.get("result")
    try:
        if raw is None:
            raise BadLine("the response has no `result`")
        result = folded_members(raw, "`result`")
        fault = _present(result, "error")
        success = _flag(result, "success", default=fault is None)
        app_result = AppResult(success, result.get("data", Raw(_NULL)), None if fault is None else _as_text(fault))
    except (BadMessage, BadLine) as error:
        raise BadLine(str(error), correlation_id) from None
    return AppResponse("toolResponse", correlation_id, app_result)


def _read_progress(members: Members) -> AppProgress:
    message = _present(members, "message") or _present(members, "data")
    return AppProgress(
        _correlation_id(members),
        _number(members, "progress"),
        _number(members, "total"),
        None if message is None else encode(_as_text(message)),
    )


def _read_register(members: Members) -> Registration:
    acknowledge = _flag(members, "acknowledge", default=False)
    try:
        return Registration(
            _app_name(members),
            _tools(members),
            _secret(members, "token"),
            _secret(members, "credential"),
            acknowledge,
        )
    except BadLine as error:
        raise BadRegistration(str(error), acknowledge=acknowledge) from None


def _app_name(members: Members) -> str:
    name = _text(members, "appname").strip()
    if not name:
        raise BadLine("`appName` is missing or empty")
    if len(name) > _MAX_NAME_CHARACTERS:
        raise BadLine(f"`appName` is longer than {_MAX_NAME_CHARACTERS} characters")
    if not name.isprintable():
        raise BadLine("`appName` contains control characters")
    return name


def _tools(members: Members) -> list[Raw]:
    try:
        return decode_list(_present(members, "tools") or b"[]")
    except msgspec.MsgspecError:
        raise BadLine("`tools` is not a list") from None


def _secret(members: Members, name: str) -> str:
    text = _text(members, name)
    if len(text) > _MAX_SECRET_CHARACTERS:
        raise BadLine(f"`{name}` is longer than {_MAX_SECRET_CHARACTERS} characters")
    return text


# -- single members ------------------------------------------------------------------------------------------------


def _present(members: Members, name: str) -> Raw | None:
    """A member that is present and not null."""
    raw = members.get(name)
    return None if raw is None or bytes(raw) == _NULL else raw


def _text(members: Members, name: str) -> str:
    """A string; empty if it is missing or of another type."""
    raw = members.get(name)
    try:
        return "" if raw is None else decode_text(raw)
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
    """The `correlationId`, a number that may be written as a string."""
    try:
        return _decode_id(members.get("correlationid", _NULL))
    except msgspec.MsgspecError:
        raise BadLine("`correlationId` is not a number") from None


def _as_text(raw: Raw) -> str:
    """The value of a string, or the JSON of anything else."""
    text = bytes(raw)
    return decode_text(raw) if text[:1] == b'"' else text.decode()


def readable_id(head: bytes) -> int | None:
    """The id at the very start of a broken response, but nothing further in that merely looks like one."""
    match = _READABLE_ID.match(head[:_HEAD_BYTES].removeprefix(_BYTE_ORDER_MARK))
    return int(match[1]) if match else None


def is_browser(line: bytes) -> bool:
    """Whether a browser is connected: any web page can make one send lines of its choice to a local port.

    This includes HTTPS: the first bytes of a connection contain a session ticket, which a server may have chosen.
    """
    return _HTTP.match(line) is not None or line.startswith(_TLS_HANDSHAKE)


# -- to the app ----------------------------------------------------------------------------------------------------


def invocation(correlation_id: int, tool_json: bytes, parameters: Json) -> bytes:
    """The line that invokes a tool. `tool_json` is the registered name as JSON, `parameters` one line of JSON."""
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
