"""The arguments of a call as they are meant, where models write them in ways that are not quite JSON.

Only what can mean one thing is taken: an object, an object with raw line breaks or tabs inside its texts, and either of
them once more as a JSON string. Everything else is for the model to correct.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""One that has no end goes to the end of everything, so that each letter is looked at once."""
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_RAW: Final = re.compile(r"\\.|[\x00-\x1f]", re.DOTALL)
"""With what is escaped, which stays as it is: a backslash before a line break does not say what it means."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


def object_in(written: str) -> str | None:
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
