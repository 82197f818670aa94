"""Offer the functions of a running program as tools: the public names of `trunkline.sdk.client`."""

from __future__ import annotations

from trunkline.sdk.client import (
    DEFAULT_GATEWAY,
    App,
    CallCancelled,
    Progress,
    Refused,
    Running,
    SchemaError,
    Tool,
    ToolError,
    image,
    report_progress,
)

__all__ = [
    "DEFAULT_GATEWAY",
    "App",
    "CallCancelled",
    "Progress",
    "Refused",
    "Running",
    "SchemaError",
    "Tool",
    "ToolError",
    "image",
    "report_progress",
]
