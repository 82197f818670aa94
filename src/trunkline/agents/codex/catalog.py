"""The models that Codex knows, changed so that none of them asks for a tool of Codex's own."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trunkline.agents.json_lines import listed, mapping, object_of

_WITHOUT_TOOLS: Final[dict[str, Any]] = {
    "apply_patch_tool_type": None,
    "experimental_supported_tools": [],
    "multi_agent_version": None,
    "shell_type": "disabled",
    "supports_search_tool": False,
    "tool_mode": "direct",
}
"""What of a model's entry brings tools. Most models would otherwise write programs that call them, and not be told of
them one by one."""


def strict_catalog(printed: str) -> str:
    """The catalog that Codex printed, without tools; empty where it is none."""
    catalog = object_of(printed)
    models = [{**mapping(model), **_WITHOUT_TOOLS} for model in listed(catalog.get("models"))]
    return msgspec.json.encode({**catalog, "models": models}).decode() if models else ""
