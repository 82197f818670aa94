"""Spans of time as Go writes them: `1m30s`, `500ms`, `1.5h`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign, and the Greek letter that looks like it
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>[^0-9.]*)")
_LONGEST: Final = 64


def parse_duration(text: str) -> float:
    """The seconds. Raises ValueError, whose text says what is wrong with it."""
    if len(text) > _LONGEST:
        raise ValueError("The duration is too long")
    if not text:
        raise ValueError("The duration is empty")
    nanoseconds, at = Fraction(0), 1 if text[0] in "+-" else 0
    if at == len(text):
        raise ValueError(f"`{text}` is not a duration")
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f"`{text}` is not a duration")
        nanoseconds += _nanoseconds(part["number"], part["unit"])
        at = part.end()
    seconds = float(nanoseconds / _NANOSECONDS["s"])
    return -seconds if text[0] == "-" else seconds


def _nanoseconds(number: str, unit: str) -> Fraction:
    if not unit:
        raise ValueError(f"`{number}` has no unit")
    if unit not in _NANOSECONDS:
        raise ValueError(f"`{unit}` is not a unit of time")
    return Fraction(f"0{number}") * _NANOSECONDS[unit]
