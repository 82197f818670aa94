"""The handshake of the legacy era, both sides."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from trunkline.protocol.jsonrpc import encode
from trunkline.protocol.mcp.versions import LATEST_LEGACY

INITIALIZED: Final = "notifications/initialized"


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
