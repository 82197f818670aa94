"""The table of source kinds. A kind is imported only once it is configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Final

from trunkline.config.sources import SourceSection
from trunkline.core.source import SourceKind

KINDS: Final[dict[str, str]] = {
    "mcp_stdio": "trunkline.sources.mcp.stdio:KIND",
    "mcp_http": "trunkline.sources.mcp.http:KIND",
    "app": "trunkline.sources.app:KIND",
    "builtin": "trunkline.sources.builtin:KIND",
    "service": "trunkline.sources.service:KIND",
    "plugin": "trunkline.sources.plugin:KIND",
}


def load_kind(name: str) -> SourceKind:
    """Import and return a kind of the table."""
    module, _, attribute = KINDS[name].partition(":")
    kind = getattr(import_module(module), attribute)
    assert isinstance(kind, SourceKind), f"{KINDS[name]} is not a SourceKind"
    return kind


def section_kinds() -> Mapping[str, Callable[[], type[SourceSection]]]:
    """Each kind with what loads its configuration section."""
    return {name: partial(_section, name) for name in KINDS}


def _section(kind: str) -> type[SourceSection]:
    return load_kind(kind).section
