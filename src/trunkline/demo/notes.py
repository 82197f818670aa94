"""The demo server `notes`: a few notes kept in memory, gone when the server ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypedDict

from trunkline.demo.toolbox import Answer, Arguments, Refusal, Tool, Toolbox, toolbox

_MOST_NOTES = 1_000
_LONGEST_NOTE = 4_000
_ID = {"type": "integer", "minimum": 1, "maximum": 1_000_000_000, "description": "The number of a note"}
_NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string"}, "created": {"type": "string"}},
    "required": ["id", "text", "created"],
}
_FOUND = {"notes": {"type": "array", "items": _NOTE}}


class Note(TypedDict):
    id: int
    text: str
    created: str


class Notes:
    """The notes of one server, by number."""

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}
        self._numbers = itertools.count(1)

    def add(self, arguments: Arguments) -> Answer:
        text = arguments["text"].strip()
        if not text:
            raise Refusal("The note is empty")
        if len(self._notes) >= _MOST_NOTES:
            raise Refusal(f"There are {_MOST_NOTES:,} notes already; remove one first")
        note = Note(id=next(self._numbers), text=text, created=datetime.now(UTC).isoformat(timespec="seconds"))
        self._notes[note["id"]] = note
        return Answer(f"Noted as number {note['id']}", {"id": note["id"]})

    def show_all(self, arguments: Arguments) -> Answer:
        return _shown(self._notes.values(), "There are no notes yet")

    def search(self, arguments: Arguments) -> Answer:
        words = arguments["query"].casefold().split()
        found = [note for note in self._notes.values() if all(word in note["text"].casefold() for word in words)]
        return _shown(found, "No note has all of these words")

    def remove(self, arguments: Arguments) -> Answer:
        note = self._notes.pop(arguments["id"], None)
        if note is None:
            raise Refusal(f"There is no note number {arguments['id']}")
        return Answer(f"Removed: {note['text']}")


def _shown(notes: Iterable[Note], otherwise: str) -> Answer:
    notes = list(notes)
    text = "\n".join(f"{note['id']}. {note['text']}" for note in notes)
    return Answer(text or otherwise, {"notes": notes})


def notes_toolbox() -> Toolbox:
    """A server with no notes yet."""
    notes = Notes()
    return toolbox(
        "notes",
        "Notes",
        "A scratch pad that every client of the gateway shares. It is kept in memory only.",
        Tool(
            "add",
            "Add a note",
            "Keep a note, and get the number it is kept under.",
            notes.add,
            {"text": {"type": "string", "maxLength": _LONGEST_NOTE, "description": "What to remember"}},
            result={"id": {"type": "integer"}},
            read_only=False,
        ),
        Tool("list", "List all notes", "Every note, the oldest first.", notes.show_all, result=_FOUND),
        Tool(
            "search",
            "Search the notes",
            "The notes that contain every word of a query, in any order and case.",
            notes.search,
            {"query": {"type": "string", "maxLength": 200, "description": "Words to look for"}},
            result=_FOUND,
        ),
        Tool(
            "remove",
            "Remove a note",
            "Forget one note for good.",
            notes.remove,
            {"id": _ID},
            read_only=False,
            destructive=True,
        ),
    )
