"""Results for agents that show a model only so much of a text: what is too long is cut here, and says so.

An agent puts the whole of a text that it cut into a file, which is of no use to a model that can open none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from trunkline.core.call import Json

_HEAD: Final = 0.6
"""The share of what is kept that comes from the beginning."""
_NOTE_CHARACTERS: Final = 160
_NOTE: Final = "\n[… {count:,} characters were left out here: the result is too long for the agent. Ask for less …]\n"


@dataclass(frozen=True, slots=True)
class ResultLimit:
    """The longest text, of all blocks together, that reaches a model whole."""

    characters: int
    lines: int = 1_000_000


def shortened(result: Json, limit: ResultLimit) -> bytes | None:
    """The result of a `tools/call` with its text cut to the limit; None where it may stay as it is."""
    if len(result) <= min(limit.characters, limit.lines):
        return None  # a line has at least its end, and no character is shorter than a byte
    decoded = cast(dict[str, Any], msgspec.json.decode(result))
    texts = _texts(decoded)
    if _fit(texts, decoded.get("structuredContent"), limit):
        return None
    structured = decoded.pop("structuredContent", None)  # agents would show this in place of the text
    if not texts and structured is not None:
        texts = [{"type": "text", "text": msgspec.json.encode(structured).decode()}]
        decoded["content"] = [*decoded.get("content", ()), *texts]
    _cut(texts, limit)
    return msgspec.json.encode(decoded)


def _texts(result: dict[str, Any]) -> list[dict[str, Any]]:
    content = cast(list[Any], result.get("content") or [])
    return [block for block in content if isinstance(block, dict) and isinstance(_text(cast(Any, block)), str)]


def _text(block: dict[str, Any]) -> object:
    return block.get("text") if block.get("type") == "text" else None


def _fit(texts: list[dict[str, Any]], structured: object, limit: ResultLimit) -> bool:
    characters = sum(len(block["text"]) for block in texts)
    lines = sum(block["text"].count("\n") + 1 for block in texts)
    data = 0 if structured is None else len(msgspec.json.encode(structured))
    return max(characters, data) <= limit.characters and lines <= limit.lines


def _cut(texts: list[dict[str, Any]], limit: ResultLimit) -> None:
    """Each block keeps what is left of the room by those before it."""
    characters, lines = limit.characters, limit.lines
    for block in texts:
        block["text"] = _cut_text(block["text"], characters, lines)
        characters = max(0, characters - len(block["text"]))
        lines = max(0, lines - block["text"].count("\n") - 1)


def _cut_text(text: str, characters: int, lines: int) -> str:
    if len(text) <= characters and text.count("\n") < lines:
        return text
    kept = max(0, characters - _NOTE_CHARACTERS)
    head = _first_lines(text[: int(kept * _HEAD)], int(lines * _HEAD))
    tail = _last_lines(text[len(text) - int(kept * (1 - _HEAD)) :], max(0, lines - head.count("\n") - 4))
    return head + _NOTE.format(count=len(text) - len(head) - len(tail)) + tail


def _first_lines(text: str, lines: int) -> str:
    return "\n".join(text.split("\n", lines)[:lines])


def _last_lines(text: str, lines: int) -> str:
    return "\n".join(text.rsplit("\n", lines)[-lines:]) if lines else ""
