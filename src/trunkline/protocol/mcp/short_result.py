"""Results for agents that show a model only so much of a text: what is too long is cut here, and says so.

An agent puts the whole of a text that it cut into a file, which is of no use to a model that can open none.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final, cast

import msgspec

from trunkline.core.call import Json

_HEAD: Final = 0.6
"""The share of what is kept that comes from the beginning."""
_NOTE: Final = "\n[… {count:,} characters were left out here: the result is too long for the agent. Ask for less …]\n"
_NOTE_CHARACTERS: Final = 160

Block = dict[str, Any]


def shortened(result: Json, most_characters: int) -> bytes | None:
    """The result of a `tools/call`, the texts of all its blocks cut to the limit; None where it may stay as it is."""
    if len(result) <= most_characters:
        return None  # no character is shorter than a byte
    decoded = _decoded(result)
    content = cast(list[Any], decoded.get("content") or [])
    texts = [held["text"] for block in content if (held := _text_in(block)) is not None]
    if _fit(texts, decoded.get("structuredContent"), most_characters):
        return None
    structured = decoded.pop("structuredContent", None)  # agents would show this in place of the text
    if not texts and structured is not None:
        content = [*content, {"type": "text", "text": _encoded(structured).decode()}]
    decoded["content"] = _cut(content, most_characters)
    return _encoded(decoded)


def _decoded(result: Json) -> dict[str, Any]:
    """Servers may send halves of characters and numbers without end, which are JSON as well."""
    try:
        return cast(dict[str, Any], msgspec.json.decode(result))
    except msgspec.DecodeError:
        return json.loads(bytes(result), parse_float=_number, parse_int=_number)


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _number(text: str) -> int | float | None:
    number = float(text)
    if not isfinite(number):
        return None
    return int(text) if text.lstrip("-").isdigit() else number


def _text_in(block: object) -> Block | None:
    """Where a block holds its text: in itself, or in the resource that it embeds."""
    if not isinstance(block, dict):
        return None
    outer = cast(Block, block)
    held = outer if outer.get("type") == "text" else outer.get("resource")
    return cast(Block, held) if isinstance(held, dict) and isinstance(cast(Block, held).get("text"), str) else None


def _fit(texts: list[str], structured: object, most_characters: int) -> bool:
    data = 0 if structured is None else len(_encoded(structured))
    return max(sum(map(len, texts)), data) <= most_characters


def _cut(content: list[Any], most_characters: int) -> list[Any]:
    """Each text keeps what is left of the room by those before it. Where next to nothing is, it goes, and one word at
    the end stands for all that went."""
    kept: list[Any] = []
    room, gone = most_characters - _NOTE_CHARACTERS, 0
    for block in content:
        held = _text_in(block)
        if held is None:
            kept.append(block)
        elif len(held["text"]) > room <= _NOTE_CHARACTERS:
            gone += len(held["text"])
        else:
            held["text"] = cut_text(held["text"], room)
            room -= len(held["text"])
            kept.append(block)
    return [*kept, {"type": "text", "text": _NOTE.format(count=gone)}] if gone else kept


def cut_text(text: str, characters: int) -> str:
    """Its beginning and its end, where it is longer, with a word on what is missing."""
    if len(text) <= characters:
        return text
    kept = max(0, characters - _NOTE_CHARACTERS)
    head = text[: int(kept * _HEAD)]
    tail = text[len(text) - (kept - len(head)) :]
    return head + _NOTE.format(count=len(text) - kept) + tail
