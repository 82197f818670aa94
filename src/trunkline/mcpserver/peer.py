"""Who a request comes from and in which version of MCP: by its handshake, or by what the request says itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from trunkline.mcpserver.context import Client
from trunkline.mcpserver.messages import INVALID_PARAMS, UNSUPPORTED_VERSION, Json, Message, RpcError
from trunkline.mcpserver.versions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LEGACY,
    LOG_LEVEL,
    LOG_LEVELS,
    MODERN,
    PROTOCOL_VERSION,
    SUPPORTED,
)


@dataclass(frozen=True, slots=True)
class Peer:
    """`log_level` is the least severe message that is wanted; empty for none."""

    client: Client
    version: str
    log_level: str

    @property
    def modern(self) -> bool:
        return self.version in MODERN


def greeted(params: Json) -> Peer:
    """The client behind an `initialize`. A version that is not known is answered with the latest there is."""
    asked = params.get("protocolVersion")
    version = asked if asked in LEGACY else LEGACY[-1]
    return Peer(_client(params.get("clientInfo"), params.get("capabilities")), version, "info")


def self_described(message: Message) -> Peer | None:
    """The client behind a request of 2026-07-28; None where the request does not say what it is."""
    meta = message.meta
    if PROTOCOL_VERSION not in meta and message.method != "server/discover":
        return None
    for name in (PROTOCOL_VERSION, CLIENT_CAPABILITIES):
        if name not in meta:
            raise RpcError(INVALID_PARAMS, f"`_meta` lacks `{name}`")
    version, capabilities, level = meta[PROTOCOL_VERSION], meta[CLIENT_CAPABILITIES], meta.get(LOG_LEVEL, "")
    if not isinstance(version, str) or not isinstance(capabilities, dict):
        raise RpcError(INVALID_PARAMS, "`_meta` has a member of the wrong type")
    if version not in MODERN:
        data: Json = {"supported": list(SUPPORTED), "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, f"Protocol version `{version}` is not served", data)
    if level != "":
        check_level(level)
    return Peer(_client(meta.get(CLIENT_INFO), capabilities), version, level)


def check_level(level: Any) -> None:
    if level not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level; there are {', '.join(LOG_LEVELS)}")


def _client(info: Any, capabilities: Any) -> Client:
    said = cast(Json, info) if isinstance(info, dict) else {}
    name, version = said.get("name"), said.get("version")
    return Client(
        name if isinstance(name, str) else "",
        version if isinstance(version, str) else "",
        cast(Json, capabilities) if isinstance(capabilities, dict) else {},
    )
