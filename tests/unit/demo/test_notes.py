from __future__ import annotations

from importlib import reload
from typing import Any

import pytest
from tests.support.mcp_dialogue import Dialogue, talking_to

import trunkline.demo.notes
from trunkline.mcpserver import Server


@pytest.fixture
def server() -> Server:
    """One without notes."""
    return reload(trunkline.demo.notes).server


async def text(notes: Dialogue, tool: str, **arguments: Any) -> str:
    return (await notes.call(tool, arguments))["content"][0]["text"]


async def data(notes: Dialogue, tool: str, **arguments: Any) -> Any:
    return (await notes.call(tool, arguments))["structuredContent"]


async def test_a_note_is_kept_until_it_is_removed(server: Server) -> None:
    async with talking_to(server) as notes:
        assert await data(notes, "add", text="  buy milk ") == {"id": 1}
        assert await data(notes, "add", text="call Ada") == {"id": 2}
        assert await text(notes, "list") == "1. buy milk\n2. call Ada"
        assert await text(notes, "remove", id=1) == "Removed: buy milk"
        assert [note["text"] for note in (await data(notes, "list"))["notes"]] == ["call Ada"]


async def test_a_number_is_not_given_twice(server: Server) -> None:
    async with talking_to(server) as notes:
        await notes.call("add", {"text": "a"})
        await notes.call("remove", {"id": 1})
        assert await data(notes, "add", text="b") == {"id": 2}


async def test_a_search_wants_every_word_in_any_case(server: Server) -> None:
    async with talking_to(server) as notes:
        for note in ("Buy oat milk", "milk the cow", "oats"):
            await notes.call("add", {"text": note})
        assert await text(notes, "search", query="MILK oat") == "1. Buy oat milk"
        assert await data(notes, "search", query="tea") == {"notes": []}


async def test_no_notes_is_said_in_words_and_data(server: Server) -> None:
    async with talking_to(server) as notes:
        assert await text(notes, "list") == "There are no notes yet"
        assert await data(notes, "list") == {"notes": []}


async def test_empty_unknown_and_too_many_notes_are_refused(server: Server) -> None:
    async with talking_to(server) as notes:
        assert "empty" in await text(notes, "add", text=" \n")
        assert "number 7" in await text(notes, "remove", id=7)
        assert "`id` must be between 1 and" in await text(notes, "remove", id=0)
        for number in range(1000):
            notes.request("tools/call", {"name": "add", "arguments": {"text": str(number)}}, number=number)
        assert "1,000" in await text(notes, "add", text="one more")


async def test_only_what_changes_nothing_is_called_read_only(server: Server) -> None:
    async with talking_to(server) as notes:
        tools = (await notes.ask("tools/list"))["result"]["tools"]
        annotations = {tool["name"]: tool["annotations"] for tool in tools}
        assert {name for name, hints in annotations.items() if hints["readOnlyHint"]} == {"list", "search"}
        assert [annotations[name]["destructiveHint"] for name in ("add", "remove")] == [False, True]
