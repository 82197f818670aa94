"""What tools return or raise, as JSON: values of a program, blocks of MCP content, failures."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import math
import pathlib
from collections.abc import Mapping
from typing import Any, Final, cast

from .json_lines import Json, encode

_BLOCK_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


class ToolError(Exception):
    """Raised by a tool that cannot do what it was asked: the agent is told its text, and nothing is logged."""


class CallCancelled(Exception):
    """The call was cancelled. Raised from `Progress.report`, so that a function in a thread can end."""


class NotJson(TypeError):
    """A value that JSON cannot express; the text says which and what to do."""


# -- values of a program ---------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """The value in terms of dict, list, str, numbers, booleans and None."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"`{value}` cannot be written as JSON")
        return float(value)
    if isinstance(value, str | int):  # a subclass of either
        return str(value) if isinstance(value, str) else int(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        if unfit := [key for key in members if not isinstance(key, str)]:
            raise NotJson(f"the key `{unfit[0]!r}` is not text, as keys of a JSON object are")
        return {str(key): plain(item) for key, item in members.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(element) for element in cast("list[Any]", value)]
    return _plain_text(value)


def _plain_text(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotJson("bytes cannot be written as JSON: decode them, or return `image(…)`")
    raise NotJson(f"`{type(value).__name__}` cannot be written as JSON")


# -- blocks of content -----------------------------------------------------------------------------------------------


class Content(dict[str, Any]):
    """One block of a result's `content`: a plain JSON object, recognisable by its class."""


def text(words: str) -> Content:
    return Content(type="text", text=words)


def image(data: bytes, mime_type: str = "image/png") -> Content:
    """A picture, for models that can see."""
    return Content(type="image", data=base64.b64encode(data).decode(), mimeType=mime_type)


def audio(data: bytes, mime_type: str = "audio/wav") -> Content:
    return Content(type="audio", data=base64.b64encode(data).decode(), mimeType=mime_type)


# -- failures --------------------------------------------------------------------------------------------------------


def error_text(error: BaseException) -> str:
    """What a caller is told about an exception that was not meant for it: the kind and the text, never a traceback."""
    try:
        text = str(error)
    except Exception:
        text = "(it cannot be shown)"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


# -- results of `tools/call` -----------------------------------------------------------------------------------------


def failed(words: str) -> Json:
    """The result of a tool that could not do what it was asked."""
    return {"content": [text(words)], "isError": True}


def result_of(value: Any, *, any_structure: bool = False) -> Json:
    """The result for a handler's return value. `any_structure` allows `structuredContent` that is not an object. Raises
    TypeError or ValueError for what cannot be written as JSON."""
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
            # As text too: clients differ in which of the two they show their model.
            data: Json = {"structuredContent": value} if any_structure or isinstance(value, dict) else {}
            return {"content": [text(encode(value).decode())], **data}


def _is_result(value: Json) -> bool:
    content = value.get("content")
    return isinstance(content, list) and all(map(_is_block, cast(list[Any], content)))


def _are_blocks(values: list[Any]) -> bool:
    """At least one block, with plain text between them."""
    return any(map(_is_block, values)) and all(isinstance(value, str) or _is_block(value) for value in values)


def _is_block(value: Any) -> bool:
    return isinstance(value, dict) and cast(Json, value).get("type") in _BLOCK_TYPES
