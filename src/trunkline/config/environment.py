"""References to the environment inside text values: `${NAME}`, `${NAME:-default}`, and `$${` for a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

_OPEN: Final = "${"
_BODY: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?\Z", re.DOTALL)

Fault = Literal["unset", "malformed"]


class _Piece(NamedTuple):
    """Literal text, and the reference after it as written (nothing at the end of the text)."""

    literal: str
    reference: str


def has_reference(text: str) -> bool:
    return _OPEN in text and any(piece.reference for piece in _pieces(text))


def expand(
    text: str,
    environ: Mapping[str, str],
    on_fault: Callable[[Fault, str], None],
    on_value: Callable[[str, str], None] | None = None,
) -> str:
    """Replace every reference. `on_fault` hears of each that cannot be: the name that is unset, or the malformed text;
    `on_value` of each variable that was there, with its value.

    As in a shell, the default of `:-` also stands in for a variable that is set but empty.
    """
    if _OPEN not in text:
        return text

    def value_of(reference: str) -> str:
        body = _BODY.match(reference[2:-1]) if reference.endswith("}") else None
        if body is None:
            on_fault("malformed", reference)
            return ""
        value = environ.get(body["name"])
        default: str | None = body["default"]
        if value is None and default is None:
            on_fault("unset", body["name"])
        if value and on_value is not None:
            on_value(body["name"], value)
        return value or default or ""

    return "".join(literal + (value_of(reference) if reference else "") for literal, reference in _pieces(text))


def _pieces(text: str) -> Iterator[_Piece]:
    """Take the text apart in one pass: a search for each `}` by a pattern would be slow on a text full of `${`."""
    literal, at = "", 0
    while (start := text.find(_OPEN, at)) >= 0:
        if text[at:start].endswith("$"):
            literal += text[at : start - 1] + _OPEN
            at = start + len(_OPEN)
            continue
        end = text.find("}", start) + 1 or len(text)
        yield _Piece(literal + text[at:start], text[start:end])
        literal, at = "", end
    yield _Piece(literal + text[at:], "")
