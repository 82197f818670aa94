"""Values as TOML, on one line each: for a file of settings, and for options that hold one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any, Final, cast

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_document(values: Mapping[str, Any]) -> str:
    """A whole file of these keys."""
    return "".join(f"{_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_value(value: object) -> str:
    """One value that `tomllib` may have read; it would read the same again."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case dict():
            members = cast("dict[str, object]", value).items()
            return "{" + ", ".join(f"{_key(key)} = {toml_value(member)}" for key, member in members) + "}"
        case list() | tuple():
            return f"[{', '.join(map(toml_value, cast('list[object]', value)))}]"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    """As in JSON, but for the one control character that JSON lets through."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
