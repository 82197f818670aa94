"""What a child process writes: its pipes as callbacks, and the end of its stderr, safe to show."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from trunkline.core.errors import SOURCE_LOST, SOURCE_OVER_LIMITS, Code
from trunkline.core.hidden_text import reveal

if TYPE_CHECKING:
    from trunkline.runtime.children import Child

_KEPT_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024
_FIRST_WORD: Final = re.compile(r"""\A[^\s"'`,;<>()\[\]{}]*""")
"""What is cut may be a part of a secret, however long that is."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str, redact: Callable[[str], str]) -> str:
    """Text of a program that others may see: nothing in it drives a terminal, no secret of ours is in it, and a model
    reads in it what people see. A secret may have hidden characters in it, so they are shown last."""
    text = redact(_UNPRINTABLE.sub("", text))
    return text if text.isascii() else reveal(text)


def beginning(data: bytes, limit_bytes: int) -> str:
    """The first of a text that may be long. What was cut ends at a border between words: half a secret would not be
    recognised as one."""
    text = data[:limit_bytes].decode(errors="replace")
    return text if len(data) < limit_bytes else _FIRST_WORD.sub("", text[::-1], count=1)[::-1]


def end(text: str, limit: int) -> str:
    """The last of a text; it too begins at a border."""
    return text if len(text) <= limit else _from_border(text[-limit:])


def _from_border(text: str) -> str:
    """A line is better than a word: some secrets are several words."""
    lines = text.partition("\n")[2]
    return lines if lines.strip() else _FIRST_WORD.sub("", text, count=1)


class StderrTail:
    """The last of what a program wrote to stderr."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._kept = bytearray()
        self._is_cut = False

    def add(self, data: bytes) -> None:
        self._kept += data[-_KEPT_BYTES:]
        self._is_cut |= len(data) > _KEPT_BYTES
        if len(self._kept) > 2 * _KEPT_BYTES:
            del self._kept[:-_KEPT_BYTES]
            self._is_cut = True

    def __str__(self) -> str:
        """Half a secret would not be recognised as one, so it is cut last."""
        kept = self._kept.decode(errors="replace")
        text = harmless(_from_border(kept) if self._is_cut else kept, self._redact)
        return text.strip()[-_SHOWN_CHARACTERS:]


class PipeReader(asyncio.Protocol):
    def __init__(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_data = on_data
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


def stderr_hint(tail: str) -> str:
    return f"its last output on stderr: {tail}" if tail else ""


def end_of(child: Child) -> tuple[Code, str]:
    """How a program ended that has: the code for calls that it carried, and the reason."""
    if child.exceeded is not None:
        return SOURCE_OVER_LIMITS, f"was ended because it {child.exceeded}"
    return SOURCE_LOST, "has ended" if child.exited.cancelled() else exit_reason(child.exited.result())


def exit_reason(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"exited with status {code}"
