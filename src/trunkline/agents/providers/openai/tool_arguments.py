"""Whether text that arrives in pieces is a whole JSON object by now, without reading any of it twice. One that is
encoded once more, as a JSON string, counts too."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

# The arguments of a call as they are meant, where models write them in ways that are not quite JSON.
#
# Only what can mean one thing is taken: an object, an object with raw line breaks or tabs inside its texts, and either of
# them once more as a JSON string. Everything else is for the model to correct.

_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""One that has no end goes to the end of everything, so that each letter is looked at once."""
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_RAW: Final = re.compile(r"\\.|[\x00-\x1f]", re.DOTALL)
"""With what is escaped, which stays as it is: a backslash before a line break does not say what it means."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


def json_object(written: str) -> str | None:
    """The JSON object that is meant; None where it is none. Nothing at all is not one."""
    found = _readable(written.strip(), _OBJECT)
    if found is not None:
        return found
    encoded = _readable(written.strip(), _STRING)
    return None if encoded is None else _readable(_STRING.decode(encoded).strip(), _OBJECT)


def _readable(written: str, decoder: msgspec.json.Decoder[Any]) -> str | None:
    """The text if it is JSON of this kind, if need be with the control characters in its strings escaped."""
    if _is(written, decoder):
        return written
    if _CONTROL.search(written) is None:
        return None
    escaped = _TEXT.sub(lambda found: _RAW.sub(_escape, found[0]), written)
    return escaped if escaped != written and _is(escaped, decoder) else None


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("\\") else f"\\u{ord(found[0]):04x}"


def _is(written: str, decoder: msgspec.json.Decoder[Any]) -> bool:
    try:
        decoder.decode(written)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


_OUTSIDE: Final = re.compile(r'[{}\[\]"]')
_INSIDE: Final = re.compile(r'["\\]')
"""What ends a string, or takes the character after it along."""


class ObjectScanner:
    """Looks for what closes the first bracket, or the first string. Only what it ends is parsed, and only once: what is
    broken there stays broken, whatever follows."""

    __slots__ = ("_broken", "_depth", "_escaped", "_in_string", "_looked_at", "_whole")

    def __init__(self) -> None:
        self._looked_at = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._whole = False
        self._broken = False

    def reached(self, pieces: Sequence[str]) -> bool:
        """`pieces` are those of before with more behind them, or the same."""
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
        """Where the object ends in this piece; None where it goes on. Brackets of two kinds need not match here."""
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
    """Also one with `NaN` in it, of which the model is told later."""
    if json_object(sendable(text)) is not None:
        return True
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def sendable(text: str) -> str:
    """Halves of a surrogate pair cannot be sent: they are joined where they meet, and replaced where they do not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
