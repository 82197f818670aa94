"""The demo server `notes`: notes kept in memory until the server ends.

The handlers are async: they run on the event loop one after another, so the notes need no lock.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime

from trunkline.demo.tools import ADDS, DESTROYS, Json, text_and_data, tool
from trunkline.mcpserver import Server, ToolError
from trunkline.version import __version__

server = Server(
    "trunkline-demo-notes",
    __version__,
    "A scratch pad that every client of the gateway shares. It is kept in memory only.",
    title="Notes",
)
_notes: dict[int, Json] = {}
_ids = itertools.count(1)
_MOST_NOTES = 1_000
_NOTE = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string"}, "created": {"type": "string"}},
    "required": ["id", "text", "created"],
}
_FOUND = {"notes": {"type": "array", "items": _NOTE}}


@tool(
    server,
    "Add a note",
    {"text": {"type": "string", "maxLength": 4_000, "description": "What to remember"}},
    result={"id": {"type": "integer"}},
    annotations=ADDS,
)
async def add(arguments: Json) -> Json:
    """Keep a note, and get the number it is kept under."""
    text = arguments["text"].strip()
    if not text:
        raise ToolError("The note is empty")
    if len(_notes) >= _MOST_NOTES:
        raise ToolError(f"There are {_MOST_NOTES:,} notes already; remove one first")
    number = next(_ids)
    _notes[number] = {"id": number, "text": text, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    return text_and_data(f"Noted as number {number}", {"id": number})


@tool(server, "List all notes", result=_FOUND)
async def list_(arguments: Json) -> Json:
    """Every note, the oldest first."""
    return _shown(_notes.values(), "There are no notes yet")


@tool(
    server,
    "Search the notes",
    {"query": {"type": "string", "maxLength": 200, "description": "Words to look for"}},
    result=_FOUND,
)
async def search(arguments: Json) -> Json:
    """The notes that contain every word of a query, in any order and case."""
    words = arguments["query"].casefold().split()
    found = [note for note in _notes.values() if all(word in note["text"].casefold() for word in words)]
    return _shown(found, "No note has all of these words")


@tool(
    server,
    "Remove a note",
    {"id": {"type": "integer", "minimum": 1, "maximum": 1_000_000_000, "description": "The number of a note"}},
    annotations=DESTROYS,
)
async def remove(arguments: Json) -> str:
    """Delete one note permanently."""
    note = _notes.pop(arguments["id"], None)
    if note is None:
        raise ToolError(f"There is no note number {arguments['id']}")
    return f"Removed: {note['text']}"


def _shown(notes: Iterable[Json], otherwise: str) -> Json:
    found = list(notes)
    lines = "\n".join(f"{note['id']}. {note['text']}" for note in found)
    return text_and_data(lines or otherwise, {"notes": found})
