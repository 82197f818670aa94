"""Whether text that arrives in pieces is a whole JSON object by now, without reading any of it twice. One that is
encoded once more, as a JSON string, counts too."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from trunkline.agents.openai.arguments import object_in
from trunkline.agents.openai.request import sendable

_OUTSIDE: Final = re.compile(r'[{}\[\]"]')
_INSIDE: Final = re.compile(r'["\\]')
"""What ends a string, or takes the character after it along."""


class ObjectEnd:
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
    if object_in(sendable(text)) is not None:
        return True
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
