"""Results for agents that show a model only so much of a text: what is too long is cut here, and says so.

An agent puts the whole of a text that it cut into a file, which is of no use to a model that can open none.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from trunkline.core.call import Json

_HEAD: Final = 0.6
"""The share of what is kept that comes from the beginning."""
_NOTE: Final = "\n[… {count:,} characters were left out here: the result is too long for the agent. Ask for less …]\n"
_NOTE_CHARACTERS: Final = 160


def shortened(result: Json, most_characters: int) -> bytes | None:
    """The result of a `tools/call`, the texts of all its blocks cut to the limit; None where it may stay as it is."""
    if len(result) <= most_characters:
        return None  # no character is shorter than a byte
    decoded = cast(dict[str, Any], msgspec.json.decode(result))
    texts = _texts(decoded)
    if _fit(texts, decoded.get("structuredContent"), most_characters):
        return None
    structured = decoded.pop("structuredContent", None)  # agents would show this in place of the text
    if not texts and structured is not None:
        texts = [{"type": "text", "text": msgspec.json.encode(structured).decode()}]
        decoded["content"] = [*decoded.get("content", ()), *texts]
    _cut(texts, most_characters)
    return msgspec.json.encode(decoded)


def _texts(result: dict[str, Any]) -> list[dict[str, Any]]:
    content = cast(list[Any], result.get("content") or [])
    return [block for block in content if isinstance(block, dict) and isinstance(_text(cast(Any, block)), str)]


def _text(block: dict[str, Any]) -> object:
    return block.get("text") if block.get("type") == "text" else None


def _fit(texts: list[dict[str, Any]], structured: object, most_characters: int) -> bool:
    characters = sum(len(block["text"]) for block in texts)
    data = 0 if structured is None else len(msgspec.json.encode(structured))
    return max(characters, data) <= most_characters


def _cut(texts: list[dict[str, Any]], characters: int) -> None:
    """Each block keeps what is left of the room by those before it."""
    for block in texts:
        block["text"] = cut_text(block["text"], characters)
        characters = max(0, characters - len(block["text"]))


def cut_text(text: str, characters: int) -> str:
    """Its beginning and its end, where it is longer, with a word on what is missing."""
    if len(text) <= characters:
        return text
    kept = max(0, characters - _NOTE_CHARACTERS)
    head = text[: int(kept * _HEAD)]
    tail = text[len(text) - (kept - len(head)) :]
    return head + _NOTE.format(count=len(text) - kept) + tail
