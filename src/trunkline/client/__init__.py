"""Offer the functions of a running program as tools: `App("MyApp")`, `@app.tool`, `await app.run()`.

It dials in at a Trunkline gateway that has a source of `kind: app`. Nothing but the standard library is needed, and the
folder can be copied into another program.
"""

from __future__ import annotations

from .app import DEFAULT_GATEWAY, App
from .errors import CallCancelled, Refused, ToolError
from .hints import SchemaError
from .progress import Progress, report_progress
from .running import Running
from .tool import Tool
from .values import image

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
