"""The versions of MCP that are spoken here, and the names that 2026-07-28 puts into `_meta`."""

from __future__ import annotations

from typing import Final

LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""They open with `initialize`, and what is said there holds for the connection."""
MODERN: Final = ("2026-07-28",)
"""Every request describes itself, in `_meta`."""
SUPPORTED: Final = LEGACY + MODERN
WITH_BATCHES: Final = "2025-03-26"

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The least severe first."""
