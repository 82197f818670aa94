"""MCP servers that are started as a command and spoken to over their standard input and output."""

from __future__ import annotations

from typing import Any

from trunkline.core.source import Source, SourceKind
from trunkline.sources.sections import McpStdioSection


def _build(name: str, section: McpStdioSection, parts: Any, /) -> Source:
    raise NotImplementedError(f"{name}: servers over stdio")


KIND = SourceKind(section=McpStdioSection, build=_build)
