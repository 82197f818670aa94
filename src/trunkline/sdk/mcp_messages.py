"""MCP's messages: JSON-RPC lines read and written, the versions that are served, and who a request comes from.

Whatever a client sends, the only exception that is raised here is RpcRefusal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeGuard, cast, get_args

from .json_lines import Json, encode

MessageId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
UNSUPPORTED_VERSION: Final = -32022

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions that open with `initialize`; what is agreed there holds for the connection."""
MODERN: Final = ("2026-07-28",)
"""Versions in which every request describes itself, in `_meta`."""
SUPPORTED: Final = LEGACY + MODERN
WITH_BATCHES: Final = "2025-03-26"

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Final = get_args(LogLevel)
"""The least severe first."""


class RpcRefusal(Exception):
    """A request that is refused."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """A request, or without an id a notification."""

    method: str
    params: Json
    id: MessageId | None

    @property
    def meta(self) -> Json:
        meta = self.params.get("_meta")
        return cast(Json, meta) if isinstance(meta, dict) else {}


def decode(line: bytes) -> Any:
    """The JSON value of a line. Raises RpcRefusal if it has none."""
    try:
        return json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise RpcRefusal(PARSE_ERROR, "The message is not UTF-8") from None
    except RecursionError:
        raise RpcRefusal(PARSE_ERROR, "The message is nested too deeply") from None
    except ValueError as error:
        raise RpcRefusal(PARSE_ERROR, f"The message is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def read_id(value: Any) -> MessageId | None:
    """The id of a message; None for a notification, and for an error that belongs to no request."""
    if not isinstance(value, dict):
        raise RpcRefusal(INVALID_REQUEST, "A message is a JSON object")
    members = cast(Json, value)
    if "id" not in members or (members["id"] is None and "error" in members):
        return None
    if not is_id(members["id"]):
        raise RpcRefusal(INVALID_REQUEST, "`id` must be a string or an integer")
    return members["id"]


def read_message(members: Json, message_id: MessageId | None) -> RpcMessage | None:
    """The request or notification in a JSON object; None for a response."""
    if members.get("jsonrpc") != "2.0":
        raise RpcRefusal(INVALID_REQUEST, '`jsonrpc` must be "2.0"')
    method, params = members.get("method"), members.get("params")
    if method is None and ("result" in members or "error" in members):
        return None
    if not isinstance(method, str):
        raise RpcRefusal(INVALID_REQUEST, "`method` must be a string")
    if params is not None and not isinstance(params, dict):
        raise RpcRefusal(INVALID_PARAMS, "`params` must be an object")
    return RpcMessage(method, cast(Json, params or {}), message_id)


def is_id(value: Any) -> TypeGuard[MessageId]:
    return isinstance(value, str | int) and not isinstance(value, bool)


# -- writing ---------------------------------------------------------------------------------------------------------


def response(message_id: MessageId | None, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(message_id), result)


def refusal(message_id: MessageId | None, error: RpcRefusal) -> bytes:
    described: Json = {"code": error.code, "message": str(error)} | ({} if error.data is None else {"data": error.data})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode(message_id), encode(described))


def notification(method: str, params: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


# -- who is asking ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Client:
    """How the client introduced itself. It may say anything: nothing that matters should depend on it."""

    name: str = ""
    version: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Peer:
    """The client behind a request. `log_level` is the least severe that it wants; empty for none."""

    client: Client
    version: str
    log_level: str

    @property
    def modern(self) -> bool:
        return self.version in MODERN


def peer_of_initialize(params: Json) -> Peer:
    """The client behind `initialize`. An unknown version is answered with the latest one."""
    requested = params.get("protocolVersion")
    version = requested if requested in LEGACY else LEGACY[-1]
    return Peer(_client(params.get("clientInfo"), params.get("capabilities")), version, "info")


def peer_of_request(message: RpcMessage) -> Peer | None:
    """The client behind a request of 2026-07-28; None if the request does not describe itself."""
    meta = message.meta
    if PROTOCOL_VERSION not in meta and message.method != "server/discover":
        return None
    for name in (PROTOCOL_VERSION, CLIENT_CAPABILITIES):
        if name not in meta:
            raise RpcRefusal(INVALID_PARAMS, f"`_meta` lacks `{name}`")
    version, capabilities, level = meta[PROTOCOL_VERSION], meta[CLIENT_CAPABILITIES], meta.get(LOG_LEVEL, "")
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise RpcRefusal(INVALID_PARAMS, "`_meta` has a member of the wrong type")
    if version not in MODERN:
        data: Json = {"supported": list(SUPPORTED), "requested": version}
        raise RpcRefusal(UNSUPPORTED_VERSION, f"Protocol version `{version}` is not served", data)
    if level != "":
        check_level(level)
    return Peer(_client(meta.get(CLIENT_INFO), capabilities), version, level)


def check_level(level: Any) -> None:
    if level not in LOG_LEVELS:
        raise RpcRefusal(INVALID_PARAMS, f"Unknown log level; use one of {', '.join(LOG_LEVELS)}")


def _client(info: Any, capabilities: Any) -> Client:
    members = cast(Json, info) if isinstance(info, dict) else {}
    name, version = (value if isinstance(value := members.get(key), str) else "" for key in ("name", "version"))
    return Client(name, version, cast(Json, capabilities) if isinstance(capabilities, dict) else {})
