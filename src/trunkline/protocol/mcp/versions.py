"""The protocol versions and their two eras, and the `initialize` handshake.

Legacy versions begin with a handshake and keep a session; from 2026-07-28 on, every request describes itself.
"""

from __future__ import annotations

from typing import Final, Literal, cast

import msgspec

from trunkline.protocol.jsonrpc import encode

Era = Literal["legacy", "modern"]

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN: Final = ("2026-07-28",)
LATEST_LEGACY: Final = LEGACY[-1]
LATEST_MODERN: Final = MODERN[-1]
SUPPORTED: Final = LEGACY + MODERN
WITH_LEGACY_TASKS: Final = "2025-11-25"
"""The only version with tasks in its core; in 2026-07-28 they are an extension with another protocol."""


def negotiate(requested: str) -> str:
    """The version to answer a legacy handshake with: the client's own if it is known, else our latest."""
    return requested if requested in LEGACY else LATEST_LEGACY


def initialize_params(client_name: str, client_version: str, capabilities: bytes) -> bytes:
    """The parameters of `initialize` for a server."""
    info = encode({"name": client_name, "version": client_version})
    return b'{"protocolVersion":"%b","capabilities":%b,"clientInfo":%b}' % (LATEST_LEGACY.encode(), capabilities, info)


def initialize_result(version: str, capabilities: dict[str, object], info: dict[str, str], instructions: str) -> bytes:
    """The result of `initialize` for a client."""
    result: dict[str, object] = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if instructions:
        result["instructions"] = instructions
    return encode(result)


class InitializeResult(msgspec.Struct, rename="camel"):
    """A server's result of `initialize` (legacy) or `server/discover` (modern)."""

    protocol_version: str = ""
    supported_versions: list[str] = msgspec.field(default_factory=lambda: cast(list[str], []))
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    server_info: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: str | None = None

    def declares(self, capability: str, feature: str = "") -> bool:
        """Whether it has a capability, and if a feature is given, whether that is true in it."""
        try:
            raw = msgspec.json.decode(self.capabilities, type=dict[str, msgspec.Raw]).get(capability)
            if raw is None or not feature:
                return raw is not None
            return bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get(feature, b"")) == b"true"
        except msgspec.MsgspecError:
            return False


decode_initialize_result: Final = msgspec.json.Decoder(InitializeResult).decode
