"""Values of a program as JSON: what a function returned, and the defaults of its parameters."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import math
import pathlib
from collections.abc import Mapping
from typing import Any, Final, cast

_WRITTEN_AS_TEXT: Final = (pathlib.PurePath,)
_WITH_ISO_FORMAT: Final = (datetime.date, datetime.time)  # a datetime is a date
_ARRAYS: Final = (list, tuple, set, frozenset)


class NotJson(TypeError):
    """A value that JSON cannot express; the text says which and what to do."""


def plain(value: Any) -> Any:
    """The value in terms of dict, list, str, numbers, booleans and None."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float):
        return _plain_number(value)
    if isinstance(value, str | int):  # a subclass of either
        return str(value) if isinstance(value, str) else int(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return _plain_object(cast("Mapping[Any, Any]", value))
    if isinstance(value, _ARRAYS):
        return [plain(element) for element in cast("list[Any]", value)]
    return _plain_text(value)


def _plain_number(value: float) -> float:
    if not math.isfinite(value):
        raise NotJson(f"`{value}` has no form in JSON")
    return float(value)


def _plain_object(value: Mapping[Any, Any]) -> dict[str, Any]:
    if unfit := [key for key in value if not isinstance(key, str)]:
        raise NotJson(f"the key `{unfit[0]!r}` is not text, as keys of a JSON object are")
    return {str(key): plain(item) for key, item in value.items()}


def _plain_text(value: Any) -> str:
    if isinstance(value, _WITH_ISO_FORMAT):
        return value.isoformat()
    if isinstance(value, _WRITTEN_AS_TEXT):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotJson("bytes have no form in JSON: decode them, or return `image(…)`")
    raise NotJson(f"`{type(value).__name__}` has no form in JSON")


def image(data: bytes, mime_type: str = "image/png", *, text: str = "") -> dict[str, Any]:
    """A result that an agent sees as a picture, with a caption where one is given."""
    picture = {"type": "image", "data": base64.b64encode(data).decode("ascii"), "mimeType": mime_type}
    caption = [{"type": "text", "text": text}] if text else []
    return {"content": [*caption, picture]}
