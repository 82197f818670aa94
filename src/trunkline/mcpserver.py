"""A small MCP server for any program: the public names of `trunkline.sdk.mcpserver`."""

from __future__ import annotations

from trunkline.sdk.mcpserver import *  # noqa: F403  (all that its `__all__` names, and nothing else)
from trunkline.sdk.mcpserver import __all__ as __all__  # noqa: PLC0414  (public)
