"""The protocol versions there are, and which of the two eras each belongs to.

Legacy versions open with a handshake and keep a session; from 2026-07-28 on every request describes itself.
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
"""The only version whose core has tasks; in 2026-07-28 they are an extension, and another protocol."""


def negotiate(requested: str) -> str:
    """The version a legacy handshake is answered with: the client's own where we know it, else our latest."""
    return requested if requested in LEGACY else LATEST_LEGACY


# The handshake of the legacy era, both sides.


def initialize_params(client_name: str, client_version: str, capabilities: bytes) -> bytes:
    """The parameters of our `initialize` towards a server."""
    info = encode({"name": client_name, "version": client_version})
    return b'{"protocolVersion":"%b","capabilities":%b,"clientInfo":%b}' % (LATEST_LEGACY.encode(), capabilities, info)


def initialize_result(version: str, capabilities: dict[str, object], info: dict[str, str], instructions: str) -> bytes:
    """Our answer to a client's `initialize`."""
    result: dict[str, object] = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if instructions:
        result["instructions"] = instructions
    return encode(result)


class ServerHello(msgspec.Struct, rename="camel"):
    """What a server says of itself, in `initialize` (legacy) or `server/discover` (modern)."""

    protocol_version: str = ""
    supported_versions: list[str] = msgspec.field(default_factory=lambda: cast(list[str], []))
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    server_info: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: str | None = None

    def capability_names(self) -> frozenset[str]:
        """What it can do, by name; what each holds is not looked into."""
        try:
            return frozenset(msgspec.json.decode(self.capabilities, type=dict[str, msgspec.Raw]))
        except msgspec.MsgspecError:
            return frozenset()

    def declares(self, capability: str, feature: str = "") -> bool:
        """Whether it has a capability, and where a feature is named, whether it says true to that."""
        try:
            raw = msgspec.json.decode(self.capabilities, type=dict[str, msgspec.Raw]).get(capability)
            if raw is None or not feature:
                return raw is not None
            return bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).get(feature, b"")) == b"true"
        except msgspec.MsgspecError:
            return False


decode_hello: Final = msgspec.json.Decoder(ServerHello).decode
