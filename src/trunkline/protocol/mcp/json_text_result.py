"""Results whose text is JSON, for agents that take it for structured content, which has to be an object: a text that is
a number, a list or a word of JSON makes them refuse the whole result, unless it has structured content already."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from trunkline.core.call import Json

_STRUCTURE: Final = "structuredContent"
_NOT_JSON: Final = object()
_TOO_DEEP: Final = object()
_MAY_BE_JSON: Final = re.compile(r"[\s]*[-0-9\[\"tfn]")


def with_structure(result: Json) -> bytes | None:
    """The result of a `tools/call` with an empty structure, which they do not show; None where none is needed. What is
    there already stays byte for byte."""
    whole = bytes(result)
    decoded = _decoded(whole)
    if not isinstance(decoded, dict) or cast(dict[str, Any], decoded).get(_STRUCTURE) is not None:
        return None
    content = cast(dict[str, Any], decoded).get("content")
    text = _text(cast(list[object], content)[0]) if isinstance(content, list) and content else ""
    if not _MAY_BE_JSON.match(text) or _decoded(text) is _NOT_JSON:
        return None
    begin, brace, rest = whole.partition(b"{")
    if _STRUCTURE in decoded:  # as null, which would count, being the later one
        return json.dumps({**decoded, _STRUCTURE: {}}).encode()
    return begin + brace + b'"structuredContent":{},' + rest


def _text(block: object) -> str:
    if not isinstance(block, dict):
        return ""
    text = cast(dict[str, Any], block).get("text")
    return text if isinstance(text, str) else ""


def _decoded(text: str | bytes) -> object:
    """As an agent reads it, for which neither half a character nor a number without end is a mistake."""
    try:
        return json.loads(text, parse_int=float)
    except json.JSONDecodeError:
        return _NOT_JSON
    except RecursionError:
        return _TOO_DEEP
