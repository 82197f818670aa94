"""MCP servers that are reached over HTTP."""

from __future__ import annotations

from typing import Any

from trunkline.core.source import Source, SourceKind
from trunkline.sources.sections import McpHttpSection


def _build(name: str, section: McpHttpSection, parts: Any, /) -> Source:
    raise NotImplementedError(f"{name}: servers over HTTP")


KIND = SourceKind(section=McpHttpSection, build=_build)
