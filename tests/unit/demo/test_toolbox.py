from __future__ import annotations

from typing import Any

import pytest

from trunkline.demo.toolbox import Answer, Arguments, Refusal, Tool, toolbox

TAKES = {
    "name": {"type": "string", "maxLength": 5},
    "times": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
    "size": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
    "mood": {"type": "string", "enum": ["calm", "wild"], "default": "calm"},
}


def show(arguments: Arguments) -> Answer:
    return Answer(repr(dict(arguments)))


TOOL = Tool("show", "Show", "What it was given", show, TAKES, result={"seen": {"type": "string"}})


def test_defaults_are_filled_in() -> None:
    assert TOOL.call({"name": "a"}).text == "{'name': 'a', 'times': 1, 'size': 0.5, 'mood': 'calm'}"


def test_a_whole_number_written_as_a_fraction_is_an_integer() -> None:
    assert "'times': 3," in TOOL.call({"name": "a", "times": 3.0}).text


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": None}, "name"),
        ({"name": "too long"}, "name"),
        ({"name": "a", "times": 10}, "times"),
        ({"name": "a", "times": 1.5}, "times"),
        ({"name": "a", "times": True}, "times"),
        ({"name": "a", "times": "1"}, "times"),
        ({"name": "a", "size": 2}, "size"),
        ({"name": "a", "size": []}, "size"),
        ({"name": "a", "mood": "grim"}, "mood"),
        ({"name": "a", "nmae": "b"}, "nmae"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments: dict[str, Any], about: str) -> None:
    with pytest.raises(Refusal, match=f"`{about}`"):
        TOOL.call(arguments)


def test_the_definition_says_what_is_taken_and_given() -> None:
    definition = TOOL.definition
    assert definition["inputSchema"] == {
        "type": "object",
        "properties": TAKES,
        "required": ["name"],
        "additionalProperties": False,
    }
    assert definition["outputSchema"]["required"] == ["seen"]
    assert definition["annotations"] == {"readOnlyHint": True, "openWorldHint": False}


def test_a_tool_that_changes_something_says_so() -> None:
    tool = Tool("wipe", "Wipe", "Wipe it", show, read_only=False, destructive=True)
    assert tool.definition["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
    assert "outputSchema" not in tool.definition


def test_a_toolbox_has_its_tools_by_name() -> None:
    assert toolbox("box", "Box", "Use it", TOOL).tools == {"show": TOOL}
