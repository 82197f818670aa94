"""Tool arguments as models write them: JSON that is not quite valid, or that arrives in pieces.

Only what can mean one thing is accepted: an object, an object with raw line breaks or tabs inside its strings, and
either of them encoded once more as a JSON string. Everything else is for the model to correct.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""An unterminated string extends to the end of the text, so that each character is read once."""
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_RAW: Final = re.compile(r"\\.|[\x00-\x1f]", re.DOTALL)
"""Escape sequences stay as they are: a backslash before a raw line break is ambiguous."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


def json_object(written: str) -> str | None:
    """The JSON object that is meant, or None. An empty text is none."""
    found = _readable(written.strip(), _OBJECT)
    if found is not None:
        return found
    encoded = _readable(written.strip(), _STRING)
    return None if encoded is None else _readable(_STRING.decode(encoded).strip(), _OBJECT)


def _readable(written: str, decoder: msgspec.json.Decoder[Any]) -> str | None:
    """The text if it is JSON of this type, if need be with the control characters in its strings escaped."""
    if _is(written, decoder):
        return written
    if _CONTROL.search(written) is None:
        return None

    def escape(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith("\\") else f"\\u{ord(found[0]):04x}"

    escaped = _TEXT.sub(lambda found: _RAW.sub(escape, found[0]), written)
    return escaped if escaped != written and _is(escaped, decoder) else None


def _is(written: str, decoder: msgspec.json.Decoder[Any]) -> bool:
    try:
        decoder.decode(written)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


_OUTSIDE: Final = re.compile(r'[{}\[\]"]')
_INSIDE: Final = re.compile(r'["\\]')
"""The end of a string, or an escape."""


class ObjectScanner:
    """Tells whether text that arrives in pieces is a whole JSON object by now, reading each piece once. It looks for
    the end of the first bracket, or string. What is invalid there stays invalid, whatever follows."""

    __slots__ = ("_broken", "_depth", "_escaped", "_in_string", "_looked_at", "_whole")

    def __init__(self) -> None:
        self._looked_at = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._whole = False
        self._broken = False

    def reached(self, pieces: Sequence[str]) -> bool:
        """Whether the pieces are a whole object. They are the earlier ones, with or without more."""
        while self._looked_at < len(pieces) and not self._broken:
            piece = pieces[self._looked_at]
            self._looked_at += 1
            end = 0 if self._whole else self._closed_at(piece)
            if end is None:
                continue
            if piece[end:].strip():
                self._broken = True
            elif not self._whole:
                self._whole = _is_object("".join(pieces[: self._looked_at]))
                self._broken = not self._whole
        return self._whole and not self._broken

    def _closed_at(self, piece: str) -> int | None:
        """Where the object ends in this piece, or None. The two kinds of brackets are not told apart here."""
        at = 0
        if self._escaped and piece:
            self._escaped, at = False, 1
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(piece, at):
            at = found.end()
            match found.group():
                case '"':
                    self._in_string = not self._in_string
                    if not self._in_string and not self._depth:
                        return at
                case "\\":
                    self._escaped = at == len(piece)
                    at += 1
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return None


def _is_object(text: str) -> bool:
    """Whether it is an object, also one with `NaN`, which the model is told about later."""
    if json_object(sendable(text)) is not None:
        return True
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def sendable(text: str) -> str:
    """Text with surrogates made valid: pairs are joined, lone ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
