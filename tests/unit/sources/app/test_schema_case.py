"""Schemas of programs that write every name with a capital."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from trunkline.sources.app.tool_definitions import read_tools

CAPITALS = {
    "Type": "object",
    "Properties": {
        "Type": {"Type": "string", "Enum": ["A", {"Type": 1}], "Description": "Which"},
        "Rows": {"Type": "array", "Items": {"Type": "object", "Properties": {"Id": {"Type": "integer"}}}},
    },
    "Required": ["Type"],
    "AdditionalProperties": False,
    "X-Own": {"Keep": 1},
}
SMALL = {
    "type": "object",
    "properties": {
        "Type": {"type": "string", "enum": ["A", {"Type": 1}], "description": "Which"},
        "Rows": {"type": "array", "items": {"type": "object", "properties": {"Id": {"type": "integer"}}}},
    },
    "required": ["Type"],
    "additionalProperties": False,
    "X-Own": {"Keep": 1},
}


def offered(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool as MCP knows it."""
    made = read_tools("A", "A", [Raw(json.dumps({"Name": "A:x", "InputSchema": schema}).encode())])
    assert made.warnings == ()
    return json.loads(made.tools[0].definition)["inputSchema"]


def test_keywords_become_small_and_the_apps_own_names_stay() -> None:
    assert offered(CAPITALS) == SMALL


def test_an_ordinary_schema_is_not_touched() -> None:
    assert offered(SMALL) == SMALL
    own = {"type": "object", "properties": {}, "Properties": {"Type": 1}}
    assert offered(own) == own
