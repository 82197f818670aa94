from __future__ import annotations

from typing import Any

import pytest
from tests.support.mcp_dialogue import talking_to

from trunkline.demo.tools import DESTROYS, tool
from trunkline.mcpserver import Server

TAKES = {
    "name": {"type": "string", "maxLength": 5},
    "times": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
    "size": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
    "mood": {"type": "string", "enum": ["calm", "wild"], "default": "calm"},
}
server = Server("tools")


@tool(server, "Show", TAKES, result={"seen": {"type": "string"}})
def show(arguments: dict[str, Any]) -> str:
    """What it was given."""
    return repr(arguments)


@tool(server, "Wipe", annotations=DESTROYS)
async def wipe_(arguments: dict[str, Any]) -> str:
    """Wipe it."""
    return repr(arguments)


async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    async with talking_to(server) as client:
        return await client.call(name, arguments)


async def test_defaults_are_filled_in() -> None:
    result = await call("show", {"name": "a", "size": 1})
    assert eval(result["content"][0]["text"]) == {"name": "a", "times": 1, "size": 1, "mood": "calm"}


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
async def test_arguments_that_do_not_fit_are_refused_by_name(arguments: dict[str, Any], about: str) -> None:
    result = await call("show", arguments)
    assert result["isError"] and f"`{about}`" in result["content"][0]["text"]


async def test_the_definitions_say_what_is_taken_given_and_done() -> None:
    async with talking_to(server) as client:
        shows, wipes = (await client.ask("tools/list"))["result"]["tools"]
    assert shows["inputSchema"] == {
        "type": "object",
        "properties": TAKES,
        "required": ["name"],
        "additionalProperties": False,
    }
    assert shows["outputSchema"]["required"] == ["seen"]
    assert shows["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert (wipes["name"], wipes["title"], wipes["description"]) == ("wipe", "Wipe", "Wipe it.")
    assert wipes["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
    assert "outputSchema" not in wipes
