"""Writes the table of routes into docs/frontends/http.md and the gateway's own tools into docs/meta-tools.md.

With `--check`, says whether they are current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.docs_regions import DOCS, main

from trunkline.core.tool import ToolDefinition
from trunkline.frontends.http.routes import ROUTES
from trunkline.search.own_tool_definitions import TOOLS

# the OpenAPI document's summary of itself makes sense only within it
_OTHER_SUMMARY = {"This document": "All routes, as an OpenAPI document"}
_CREDENTIALS = {"open": "none", "client": "client", "operator": "operator"}


def routes() -> str:
    lines = ["| route | token | what it does |", "|---|---|---|"]
    for route in ROUTES:
        summary = _OTHER_SUMMARY.get(route.summary, route.summary)
        lines.append(f"| `{route.method} {route.path}` | {_CREDENTIALS[route.credential]} | {summary} |")
    return "\n".join(lines)


def own_tools() -> str:
    lines = ["| tool | takes | gives | what it does |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, TOOLS)])


def _row(tool: ToolDefinition) -> str:
    definition = json.loads(tool.definition)
    takes = _members(definition["inputSchema"], optional="`[{}]`")
    gives = _members(definition["outputSchema"], optional="`[{}]`") if "outputSchema" in definition else "text"
    return f"| `{definition['name']}` | {takes} | {gives} | {definition['description']} |"


def _members(schema: dict[str, dict[str, object]], *, optional: str) -> str:
    """The names of an object's members; those that may be missing in brackets."""
    required = schema.get("required", ())
    return " ".join(f"`{name}`" if name in required else optional.format(name) for name in schema["properties"])


def pages() -> dict[Path, dict[str, str]]:
    return {DOCS / "frontends" / "http.md": {"routes": routes()}, DOCS / "meta-tools.md": {"tools": own_tools()}}


if __name__ == "__main__":
    sys.exit(main("tools.write_route_and_tool_docs", pages(), sys.argv[1:]))
