from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.sources.builtin.tool import Parameter, ToolFault, ToolHints, definition, read_arguments

PARAMETERS = (
    Parameter(name="path", doc="A path", required=True, also=("file_path",)),
    Parameter(name="count", doc="How many", kind="integer", minimum=1),
    Parameter(name="wait", doc="How long", kind="number", default=1.5),
    Parameter(name="every", doc="All of them", kind="boolean", default=False, also=("all",)),
    Parameter(name="mode", doc="Which way", choices=("up", "down"), default="up"),
)


def read(arguments: object) -> dict[str, Any]:
    return read_arguments(json.dumps({"name": "x", "arguments": arguments}).encode(), PARAMETERS)


def fault(arguments: object) -> str:
    with pytest.raises(ToolFault) as caught:
        read(arguments)
    return str(caught.value)


def test_what_is_left_out_has_its_default() -> None:
    assert read({"path": "a"}) == {"path": "a", "count": None, "wait": 1.5, "every": False, "mode": "up"}
    assert read({"path": "a", "count": None, "every": None})["every"] is False


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("count", "10", 10),
        ("count", 10.0, 10),
        ("count", "1e1", 10),
        ("wait", "2.5", 2.5),
        ("wait", 3, 3),
        ("every", "true", True),
        ("every", "False", False),
        ("all", True, True),
        ("file_path", "b", "b"),
    ],
)
def test_what_models_write_is_understood(name: str, written: object, meant: object) -> None:
    names = {"all": "every", "file_path": "path"}
    given = {name: written} if name == "file_path" else {"path": "a", name: written}
    assert read(given)[names.get(name, name)] == meant


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Missing argument `path`; this tool takes `path`, `count`, `wait`, `every`, `mode`"),
        (None, "Missing argument `path`"),
        ({"path": None}, "Missing argument `path`"),
        ({"path": "a", "cuont": 1}, "Unknown argument `cuont`: did you mean `count`?"),
        ({"path": "a", "zzz": 1}, "Unknown argument `zzz` (this tool takes"),
        ({"path": 5}, "`path` must be text, not 5"),
        ({"file_path": ["a"]}, '`file_path` must be text, not ["a"]'),
        ({"path": "a", "count": 1.5}, "`count` must be a whole number, not 1.5"),
        ({"path": "a", "count": "many"}, '`count` must be a whole number, not "many"'),
        ({"path": "a", "count": "nan"}, "`count` must be a whole number"),
        ({"path": "a", "count": True}, "`count` must be a whole number, not true"),
        ({"path": "a", "count": "9" * 5000}, "`count` must be a whole number"),
        ({"path": "a", "count": 0}, "`count` must be at least 1"),
        ({"path": "a", "every": 1}, "`every` must be true or false, not 1"),
        ({"path": "a", "mode": "sideways"}, "`mode` must be one of `up`, `down`"),
        ({"path": "a", "file_path": "b"}, "`path` and `file_path` are the same argument and differ"),
        ([], "The arguments must be one JSON object"),
        ("path", "The arguments must be one JSON object"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(arguments: object, said: str) -> None:
    assert said in fault(arguments)


def test_two_names_with_one_value_are_no_contradiction() -> None:
    assert read({"path": "a", "file_path": "a"})["path"] == "a"


def test_no_argument_is_repeated_at_length() -> None:
    assert len(fault({"path": {"x": "y" * 10_000}})) < 300
    assert len(fault({"x" * 10_000: 1})) < 400


def test_broken_arguments_are_a_fault_of_the_caller() -> None:
    for raw in (
        b'{"arguments": {"path": "\\ud800"}}',
        b'{"arguments": {"path": 1e999}}',
        b'{"arguments": ' + b"[" * 5000,
    ):
        with pytest.raises(ToolFault):
            read_arguments(raw, PARAMETERS)


def test_the_definition_shows_each_argument_under_its_own_name_only() -> None:
    tool = json.loads(definition("Try", "Tries.", PARAMETERS, ToolHints(title="Try", reads_only=True)))
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "A path"},
            "count": {"type": "integer", "description": "How many", "minimum": 1},
            "wait": {"type": "number", "description": "How long", "default": 1.5},
            "every": {"type": "boolean", "description": "All of them", "default": False},
            "mode": {"type": "string", "description": "Which way", "enum": ["up", "down"], "default": "up"},
        },
        "required": ["path"],
    }
