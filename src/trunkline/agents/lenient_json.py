"""Reads JSON of uncertain shape: each function returns a value of its type, an empty one for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

_decode: Final = msgspec.json.Decoder().decode


def object_of(line: str | bytes) -> Mapping[str, Any]:
    """The object in this JSON text; empty for anything else."""
    try:
        return mapping(_decode(line))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def listed(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else ()


def entries(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, with an empty one for each other value."""
    return [mapping(entry) for entry in listed(value)]


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
