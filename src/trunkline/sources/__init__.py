"""Kinds of source: one file each, and the table that names them. Nothing is imported until it is configured."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from trunkline.core.source import SourceKind

KINDS: Final[dict[str, str]] = {
    "mcp_stdio": "trunkline.sources.mcp_stdio:KIND",
    "mcp_http": "trunkline.sources.mcp_http:KIND",
}


def load_kind(name: str) -> SourceKind:
    """The kind's row, importing its module now. The name must be one of the table."""
    module, _, attribute = KINDS[name].partition(":")
    kind = getattr(import_module(module), attribute)
    assert isinstance(kind, SourceKind), f"{KINDS[name]} is not a SourceKind"
    return kind
