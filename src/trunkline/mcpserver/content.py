"""What a handler gives back, and the result of `tools/call` that is made of it."""

from __future__ import annotations

import base64
from typing import Any, Final, cast

from trunkline.mcpserver.messages import Json, encode

_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


class Content(dict[str, Any]):
    """One block of a result's `content`. It is a plain JSON object that says by its type what it is."""


def text(words: str) -> Content:
    return Content(type="text", text=words)


def image(data: bytes, mime_type: str = "image/png") -> Content:
    """A picture, for models that can see."""
    return Content(type="image", data=base64.b64encode(data).decode(), mimeType=mime_type)


def audio(data: bytes, mime_type: str = "audio/wav") -> Content:
    return Content(type="audio", data=base64.b64encode(data).decode(), mimeType=mime_type)


def failed(words: str) -> Json:
    """The result of a tool that could not do what it was asked."""
    return {"content": [text(words)], "isError": True}


def result_of(value: Any, *, any_structure: bool = False) -> Json:
    """The result that a handler's return value stands for. `any_structure`: data need not be an object to go along as
    `structuredContent`. Raises TypeError or ValueError for what no JSON can be made of."""
    match value:
        case None:
            return {"content": []}
        case str():
            return {"content": [text(value)]}
        case Content():
            return {"content": [value]}
        case bytes() | bytearray() | memoryview():
            raise TypeError("bytes are returned as `image(…)` or `audio(…)`, which say what they are")
        case dict() if _is_result(cast(Json, value)):
            return cast(Json, value)
        case list() | tuple() if _are_blocks(blocks := list(cast(list[Any], value))):
            return {"content": [text(block) if isinstance(block, str) else block for block in blocks]}
        case _:
            return _data(value, any_structure)


def _data(value: Any, any_structure: bool) -> Json:
    """As text too: clients differ in which of the two they show their model."""
    result: Json = {"content": [text(encode(value).decode())]}
    if any_structure or isinstance(value, dict):
        result["structuredContent"] = value
    return result


def _is_result(value: Json) -> bool:
    content = value.get("content")
    return isinstance(content, list) and all(_is_block(block) for block in cast(list[Any], content))


def _are_blocks(values: list[Any]) -> bool:
    """At least one block, with text between them."""
    return any(map(_is_block, values)) and all(isinstance(value, str) or _is_block(value) for value in values)


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and cast(Json, value).get("type") in _TYPES
