from __future__ import annotations

import pytest

from trunkline.demo.notes import notes_toolbox
from trunkline.demo.toolbox import Answer, Refusal, Toolbox


@pytest.fixture
def notes() -> Toolbox:
    return notes_toolbox()


def ask(notes: Toolbox, tool: str, **arguments: object) -> Answer:
    return notes.tools[tool].call(arguments)


def test_a_note_is_kept_until_it_is_removed(notes: Toolbox) -> None:
    assert ask(notes, "add", text="  buy milk ").data == {"id": 1}
    assert ask(notes, "add", text="call Ada").data == {"id": 2}
    assert ask(notes, "list").text == "1. buy milk\n2. call Ada"
    assert ask(notes, "remove", id=1).text == "Removed: buy milk"
    assert [note["text"] for note in (ask(notes, "list").data or {})["notes"]] == ["call Ada"]


def test_a_number_is_not_given_twice(notes: Toolbox) -> None:
    ask(notes, "add", text="a")
    ask(notes, "remove", id=1)
    assert ask(notes, "add", text="b").data == {"id": 2}


def test_a_search_wants_every_word_in_any_case(notes: Toolbox) -> None:
    for note in ("Buy oat milk", "milk the cow", "oats"):
        ask(notes, "add", text=note)
    assert ask(notes, "search", query="MILK oat").text == "1. Buy oat milk"
    assert ask(notes, "search", query="tea").data == {"notes": []}


def test_no_notes_is_said_in_words_and_data(notes: Toolbox) -> None:
    assert ask(notes, "list") == Answer("There are no notes yet", {"notes": []})


def test_empty_unknown_and_too_many_notes_are_refused(notes: Toolbox) -> None:
    with pytest.raises(Refusal, match="empty"):
        ask(notes, "add", text=" \n")
    with pytest.raises(Refusal, match="number 7"):
        ask(notes, "remove", id=7)
    for number in range(1000):
        ask(notes, "add", text=str(number))
    with pytest.raises(Refusal, match="1,000"):
        ask(notes, "add", text="one more")


def test_two_servers_share_nothing() -> None:
    first, second = notes_toolbox(), notes_toolbox()
    ask(first, "add", text="mine")
    assert ask(second, "list").data == {"notes": []}


def test_only_what_changes_nothing_is_called_read_only(notes: Toolbox) -> None:
    read_only = {name for name, tool in notes.tools.items() if tool.definition["annotations"]["readOnlyHint"]}
    assert read_only == {"list", "search"}
    assert notes.tools["remove"].definition["annotations"]["destructiveHint"]
