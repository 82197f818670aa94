"""Schemas of programs that write every name with a capital."""

from __future__ import annotations

import json

from msgspec import Raw

from trunkline.sources.app.offer import make_offer
from trunkline.sources.app.schema_case import is_capitalised, with_small_keywords

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


def test_keywords_become_small_and_the_apps_own_names_stay() -> None:
    assert is_capitalised(CAPITALS)
    assert with_small_keywords(CAPITALS) == SMALL


def test_an_ordinary_schema_is_not_touched() -> None:
    assert not is_capitalised({"type": "object", "Properties": {}})
    assert not is_capitalised({"properties": {}})
    assert with_small_keywords(SMALL) == SMALL


def test_a_tool_with_such_a_schema_can_be_called() -> None:
    made = make_offer("A", "A", [Raw(json.dumps({"Name": "A:x", "InputSchema": CAPITALS}).encode())])
    assert made.warnings == ()
    assert json.loads(made.tools[0].definition)["inputSchema"] == SMALL
