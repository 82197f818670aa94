"""Arguments are checked against the top of the schema, and whoever wrote them learns what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.mcpserver import ToolError
from trunkline.sdk.schema import read_arguments, top_level_of

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


def problem_with(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    try:
        read_arguments(top_level_of(schema), arguments, "t")
    except ToolError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "arguments",
    [{"n": 1}, {"n": 2.0, "x": None}, {"n": 1, "x": 0.5, "unit": "km", "flag": False}, {"n": 1, "all": object()}],
)
def test_good_arguments_are_let_through(arguments) -> None:
    assert problem_with(arguments, SCHEMA) == ""


def test_a_number_too_large_for_a_float_is_a_number() -> None:
    assert problem_with({"n": 1, "x": 10**400}, SCHEMA) == ""


@pytest.mark.parametrize("kind", ["null", ["null"]])
def test_what_must_be_null_is_named(kind) -> None:
    assert "`x` must be null" in problem_with({"x": 1}, {"properties": {"x": {"type": kind}}})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "`n` is missing"),
        ({"n": 1, "m": 2}, "`m` is not known here (known: `n`, `x`"),
        ({"n": "1"}, "`n` must be an integer, not a string"),
        ({"n": True}, "`n` must be an integer, not a boolean"),
        ({"n": 1.5}, "`n` must be an integer, not 1.5"),
        ({"n": 1, "x": "a"}, "`x` must be a number, not a string"),
        ({"n": 1, "unit": "mile"}, "`unit` must be one of `m`, `km`"),
        ({"n": 1, "flag": 1}, "`flag` must be a boolean, not a number"),
        ({"n": "1", "flag": 1}, "`n` must be an integer, not a string; `flag` must be"),
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
        {"properties": {"n": {"type": [["integer"]]}}, "required": [["n"]]},
        {"additionalProperties": False, "patternProperties": {"^n": {}}},
    ],
)
def test_a_schema_that_says_nothing_clear_refuses_nothing(schema) -> None:
    assert problem_with({"n": 1}, schema) == ""
