"""How deep a message may be nested: never deeper than can be read wherever it is looked into later.

A decoder takes one step of the interpreter's recursion limit for each level, from wherever it is called. So what can
just be read where it comes in could not be read again further inside. What comes in is read with less room therefore.
"""

from __future__ import annotations

import sys
from typing import Final

_KEPT: Final = 400
"""More than the deepest stack that anything here is decoded on."""
SHORT_BYTES: Final = 2 * _KEPT
"""Each level takes two brackets: no text shorter than this is nested deeper than what is kept."""


class _LessRoom:
    """A context in which only so much can be nested that there is room for it anywhere else. It may be entered and left
    at no cost worth mentioning, and raises RecursionError where there is no room at all."""

    def __enter__(self) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() - _KEPT)

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() + _KEPT)


LESS_ROOM: Final = _LessRoom()
