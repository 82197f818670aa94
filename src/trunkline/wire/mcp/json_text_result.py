"""Results whose text is JSON, for agents that take it for structured content, which has to be an object: a text that is
a number, a list or a word of JSON makes them refuse the whole result, unless it has structured content already."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from trunkline.core.call import Json

_MAY_BE_JSON: Final = re.compile(r"[\s]*[-0-9\[\"tfn]")


def with_structure(result: Json) -> bytes | None:
    """The result of a `tools/call` with an empty structure, which they do not show; None where none is needed."""
    decoded = cast(dict[str, Any], msgspec.json.decode(result))
    content = decoded.get("content")
    if decoded.get("structuredContent") is not None or not isinstance(content, list) or not content:
        return None
    text = _text(cast(list[object], content)[0])
    if not _MAY_BE_JSON.match(text) or not _is_json(text):
        return None
    return msgspec.json.encode({**decoded, "structuredContent": {}})


def _text(block: object) -> str:
    if not isinstance(block, dict):
        return ""
    text = cast(dict[str, Any], block).get("text")
    return text if isinstance(text, str) else ""


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
