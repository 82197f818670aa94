"""The protocol of 2026-07-28, where every request describes itself: in `_meta`, and over HTTP in matching headers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from trunkline.core.call import Json
from trunkline.core.errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION, Problem
from trunkline.protocol.jsonrpc import (
    BadMessage,
    Members,
    Message,
    encode,
    encode_members,
    has_member,
    members_of,
)
from trunkline.protocol.mcp.versions import LATEST_MODERN, MODERN, SUPPORTED

PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
CLIENT_INFO: Final = PREFIX + "clientInfo"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"

HOP_META: Final = frozenset({PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, "progressToken"})
"""Members of a request's `_meta` that apply to one hop only: they are rebuilt, never passed on."""

ROUTING_HEADERS: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_VERSION_MEMBER: Final = PROTOCOL_VERSION.encode()
_SENTINEL_START: Final = b"=?base64?"
_SENTINEL_END: Final = b"?="


class RequestRefused(Exception):
    """A modern request that violates the protocol; `extra` is added to the error's data."""

    def __init__(self, problem: Problem, extra: Mapping[str, object] | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.extra = extra


def encode_request_meta(client_name: str, client_version: str, capabilities: bytes, log_level: str = "") -> bytes:
    """The `_meta` members of a request to a modern server, encoded, without the braces."""
    info = encode({"name": client_name, "version": client_version})
    level = b',"%b":"%b"' % (LOG_LEVEL.encode(), log_level.encode()) if log_level else b""
    return b'"%b":"%b","%b":%b,"%b":%b%b' % (
        PROTOCOL_VERSION.encode(),
        LATEST_MODERN.encode(),
        CLIENT_CAPABILITIES.encode(),
        capabilities,
        CLIENT_INFO.encode(),
        info,
        level,
    )


def check_meta(meta: Members) -> str:
    """Check the required members of a modern request's `_meta`; returns its version."""
    for name in (PROTOCOL_VERSION, CLIENT_CAPABILITIES):
        if name not in meta:
            raise RequestRefused(Problem(code=INVALID_PARAMS, message=f"`_meta` lacks `{name}`"))
    try:
        version = msgspec.json.decode(meta[PROTOCOL_VERSION], type=str)
        members_of(meta[CLIENT_CAPABILITIES], f"`{CLIENT_CAPABILITIES}`")
    except (msgspec.MsgspecError, BadMessage):
        raise RequestRefused(Problem(code=INVALID_PARAMS, message="`_meta` has a member of the wrong type")) from None
    return version


def check_version(version: str) -> None:
    if version not in MODERN:
        problem = Problem(
            code=UNSUPPORTED_VERSION,
            message=f"Protocol version `{version}` is not served",
            hint="use one of `data.supported`",
        )
        raise RequestRefused(problem, {"supported": list(SUPPORTED), "requested": version})


def check_headers(
    headers: Mapping[bytes, bytes], repeated: Collection[bytes], version: str, method: str, name: str | None
) -> None:
    """Check that the routing headers match the body: what an intermediary saw must be what we act on."""
    for header in ROUTING_HEADERS:
        if header in repeated:
            raise _mismatch(header, "appears more than once")
    _check_header(headers, b"mcp-protocol-version", version)
    _check_header(headers, b"mcp-method", method)
    if name is not None:
        _check_header(headers, b"mcp-name", name)


def _check_header(headers: Mapping[bytes, bytes], header: bytes, expected: str) -> None:
    raw = headers.get(header)
    if raw is None:
        raise _mismatch(header, "is missing")
    value = decode_header(raw)
    if value is None:
        raise _mismatch(header, "cannot be decoded")
    if value != expected:
        raise _mismatch(header, "differs from the body")


def _mismatch(header: bytes, what: str) -> RequestRefused:
    return RequestRefused(Problem(code=HEADER_MISMATCH, message=f"Header `{header.decode()}` {what}"))


def decode_header(value: bytes) -> str | None:
    """The text of a header that repeats a parameter; None if it is marked as base64 but is not."""
    value = value.strip(b" \t")
    if not (value.startswith(_SENTINEL_START) and value.endswith(_SENTINEL_END)):
        return value.decode("latin-1")
    try:
        return base64.b64decode(value[len(_SENTINEL_START) : -len(_SENTINEL_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def encode_header(text: str) -> bytes:
    """The value of a header that repeats a parameter: plain if it is printable ASCII, else marked base64."""
    plain = text.encode()
    looks_encoded = plain.startswith(_SENTINEL_START) and plain.endswith(_SENTINEL_END)
    if plain and plain.isascii() and text.isprintable() and text == text.strip() and not looks_encoded:
        return plain
    return _SENTINEL_START + base64.b64encode(plain) + _SENTINEL_END


def completed_result(result: Json) -> bytes:
    """A legacy server's result as a modern one, with `resultType` `complete`.

    Valid `input_required` results were handled before. One that still claims to be one comes from a server that may not
    send any, or hides it by escapes.
    """
    text = bytes(result).lstrip()
    if (b'"resultType"' in text or b"\\u" in text) and has_member(text, "resultType"):
        return _without_input_required(text)
    rest = text[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b","
    return b'{"resultType":"complete"%b%b' % (comma, rest)


def _without_input_required(result: bytes) -> bytes:
    members = msgspec.json.decode(result, type=dict[str, msgspec.Raw])
    try:
        asks = msgspec.json.decode(members["resultType"], type=str) == "input_required"
    except msgspec.MsgspecError:
        return result
    return encode_members({**members, "resultType": b'"complete"'}) if asks else result


def is_modern(message: Message) -> bool:
    """Whether a message is of the modern era, without looking at headers: on stdio, or if they are missing."""
    if message.params is None or _VERSION_MEMBER not in bytes(message.params):
        return False
    try:
        meta = members_of(message.params, "`params`").get("_meta")
        return meta is not None and PROTOCOL_VERSION in members_of(meta, "`_meta`")
    except BadMessage:
        return False
