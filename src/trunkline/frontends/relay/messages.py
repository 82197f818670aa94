"""What the relay reads in messages: the headers that a request needs over HTTP, and which message is its response.

Everything else in them passes unchanged.
"""

from __future__ import annotations

from typing import Final, Literal, cast

import msgspec

from trunkline.core.call import PROGRESS
from trunkline.core.errors import HEADER_MISMATCH, Problem
from trunkline.frontends.mcp.requests import text_or_none
from trunkline.frontends.relay.gateway import GatewayHttp, Headers
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    MessageId,
    check_text,
    decode_server_message,
    encode,
    encode_error,
    encode_members,
    encode_notification,
    error_message,
    members_of,
    read_id,
    single_line,
)
from trunkline.protocol.mcp.methods import NAME_PARAMETERS, TOOLS_CALL, TOOLS_LIST
from trunkline.protocol.mcp.modern import LATEST_MODERN, PROTOCOL_VERSION, encode_header
from trunkline.protocol.mcp.param_headers import BadAnnotation, HeaderParameter, header_parameters_of, param_headers
from trunkline.protocol.mcp.translation import error_code

_PROGRESS: Final = encode_notification(PROGRESS)[:-1]
_LIST_HEADERS: Final[Headers] = [
    (b"mcp-method", TOOLS_LIST.encode()),
    (b"mcp-protocol-version", LATEST_MODERN.encode()),
]
_MAX_PAGES: Final = 64


# -- what the gateway sends -------------------------------------------------------------------------------------------


def kind_of(data: bytes, request_id: MessageId | None) -> Literal["response", "notification", "malformed"]:
    """Whether a message is the response to this request, another one for the client, or malformed."""
    try:
        check_text(data)
        message = decode_server_message(data)
        single_line(data)  # which fails on nesting that decoding just copes with
        has_result, has_error = message.result is not msgspec.UNSET, message.error is not msgspec.UNSET
        if message.method is not msgspec.UNSET:
            # with a result, some clients would take it for the response to another request
            return "malformed" if has_result or has_error else "notification"
        if message.id is msgspec.UNSET or has_result == has_error:
            return "malformed"
        return "response" if read_id(message.id) == request_id else "malformed"
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return "malformed"


def is_progress(data: bytes) -> bool:
    return data.startswith(_PROGRESS)


def response_in(body: bytes, message: Message) -> bytes | None:
    """The JSON-RPC response in the body of an HTTP response, on one line; None if there is none.

    A gateway that refuses a request before it has parsed it cannot know its id: such an error gets it here.
    """
    if kind_of(body, message.id) == "response":
        return single_line(body)
    error = _error_in(body)
    return None if error is None else error_message(message.id_json, error)


def _error_in(body: bytes) -> bytes | None:
    """The error object of a JSON-RPC response, on one line; None if there is none."""
    try:
        check_text(body)
        error = decode_server_message(body).error
        return None if error is msgspec.UNSET or not bytes(error).startswith(b"{") else single_line(error)
    except (msgspec.MsgspecError, BadMessage, RecursionError):
        return None


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str


class _InitializeAnswer(msgspec.Struct):
    result: _Initialized


def version_in(answer: bytes) -> str | None:
    """The protocol version that an `initialize` was answered with; None if it was refused."""
    try:
        version = msgspec.json.decode(answer, type=_InitializeAnswer).result.protocol_version
    except (msgspec.MsgspecError, RecursionError):
        return None
    return version if version.isascii() and version.isprintable() else None


def problem_message(message: Message, problem: Problem) -> bytes:
    """A problem of the relay's as the response to a request."""
    return error_message(message.id_json, encode_error(problem))


# -- what a request needs over HTTP -----------------------------------------------------------------------------------


def request_headers(message: Message) -> Headers:
    """The headers that repeat members of a 2026-07-28 request; a malformed one the gateway refuses, with the reason."""
    headers: Headers = []
    if message.method is not None:
        headers.append((b"mcp-method", encode_header(message.method)))
    if message.params is None:
        return headers
    try:
        params = members_of(message.params, "`params`")
        meta = members_of(params["_meta"], "`_meta`") if "_meta" in params else {}
    except BadMessage:
        return headers
    for header, members, name in (
        (b"mcp-protocol-version", meta, PROTOCOL_VERSION),
        (b"mcp-name", params, NAME_PARAMETERS.get(message.method or "")),
    ):
        value = None if name is None else text_or_none(members, name)
        if value is not None:
            headers.append((header, encode_header(value)))
    return headers


class _ListedTool(msgspec.Struct):
    name: str


class _ToolsPage(msgspec.Struct, rename="camel"):
    tools: list[msgspec.Raw] = msgspec.field(default_factory=lambda: cast(list[msgspec.Raw], []))
    next_cursor: str | None = None


class _PageAnswer(msgspec.Struct):
    result: _ToolsPage


class HeaderParameters:
    """Arguments that a 2026-07-28 call repeats in headers, which a client on a pipe does not have.

    The gateway is asked which tools want that once it says that a header is missing.
    """

    def __init__(self, gateway: GatewayHttp) -> None:
        self._gateway = gateway
        self._tools: dict[str, tuple[HeaderParameter, ...]] = {}

    def headers(self, message: Message) -> Headers:
        """The headers of a call, as far as those of its tool are known."""
        if not self._tools or message.method != TOOLS_CALL:
            return []
        params = _members(message.params)
        parameters = self._tools.get(text_or_none(params, "name") or "", ())
        return param_headers(parameters, params.get("arguments", b"{}"))

    def are_missing(self, message: Message, status: int, body: bytes) -> bool:
        """Whether the gateway refused a call because its headers do not say what its body says."""
        if status != 400 or message.method != TOOLS_CALL:
            return False
        error = _error_in(body)
        return error is not None and error_code(error) == HEADER_MISMATCH.jsonrpc

    async def learn(self, message: Message) -> None:
        """List the tools as the sender of this call sees them."""
        meta = _members(message.params).get("_meta", b"{}")
        tools: dict[str, tuple[HeaderParameter, ...]] = {}
        cursor: str | None = None
        for number in range(1, _MAX_PAGES + 1):
            params = {"_meta": bytes(meta)} | ({} if cursor is None else {"cursor": encode(cursor)})
            body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}'
            reply = self._gateway.post(
                body % (number, TOOLS_LIST.encode(), encode_members(params)), headers=_LIST_HEADERS
            )
            try:
                await reply.wait()
                page = msgspec.json.decode(reply.body, type=_PageAnswer).result
                tools |= _header_parameters(page)
            except (msgspec.MsgspecError, RecursionError):
                return  # then the gateway's refusal stands
            finally:
                reply.drop()
            cursor = page.next_cursor
            if cursor is None:
                break
        self._tools = tools


def _header_parameters(page: _ToolsPage) -> dict[str, tuple[HeaderParameter, ...]]:
    found: dict[str, tuple[HeaderParameter, ...]] = {}
    for definition in page.tools:
        try:
            parameters = header_parameters_of(bytes(definition))
        except BadAnnotation:
            continue
        if parameters:
            found[msgspec.json.decode(definition, type=_ListedTool).name] = parameters
    return found


def _members(params: msgspec.Raw | None) -> Members:
    try:
        return {} if params is None else members_of(params, "`params`")
    except BadMessage:
        return {}
