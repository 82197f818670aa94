"""Arguments are checked against the top of the schema, and whoever wrote them learns what is wrong."""

from __future__ import annotations

import pytest

from trunkline.sdk.mcp_tools import problem_with

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "unit": {"enum": ["m", "km"]},
        "flag": {"type": "boolean"},
        "all": True,
    },
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "arguments",
    [{"n": 1}, {"n": 2.0, "x": None}, {"n": 1, "x": 0.5, "unit": "km", "flag": False}, {"n": 1, "all": object()}],
)
def test_good_arguments_are_let_through(arguments) -> None:
    assert problem_with(arguments, SCHEMA) == ""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "`n` is missing"),
        ({"n": 1, "m": 2}, "Unknown argument `m`; this tool takes `n`, `x`"),
        ({"n": "1"}, "`n` must be of the type integer"),
        ({"n": True}, "`n` must be of the type integer"),
        ({"n": 1.5}, "`n` must be of the type integer"),
        ({"n": 1, "x": "a"}, "number or null"),
        ({"n": 1, "unit": "mile"}, "`unit` must be one of `m`, `km`"),
        ({"n": 1, "flag": 1}, "`flag` must be of the type boolean"),
    ],
)
def test_the_fault_is_named(arguments, named) -> None:
    assert named in problem_with(arguments, SCHEMA)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": 3, "required": "n"},
        {"properties": {"n": {"type": 3}}},
        {"properties": {"n": {"type": ["strange"]}}},
        {"additionalProperties": False, "patternProperties": {"^n": {}}},
    ],
)
def test_a_schema_that_says_nothing_clear_refuses_nothing(schema) -> None:
    assert problem_with({"n": 1}, schema) == ""
