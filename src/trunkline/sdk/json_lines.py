"""Messages as lines of JSON: values encoded to lines, lines split from a stream of bytes, and streams closed."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

Json = dict[str, Any]

NOT_JSON: Final = (TypeError, ValueError, RecursionError)
"""What `encode` raises for a value that JSON cannot hold."""


def encode(value: Any) -> bytes:
    """One line of JSON, without its end. Half a surrogate pair, which Python's text can hold and UTF-8 cannot, becomes
    a question mark."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


async def close_within(writer: asyncio.StreamWriter, seconds: float) -> None:
    """Close it once all is written; if the other side does not read, what is left is dropped."""
    writer.close()
    try:
        async with asyncio.timeout(seconds):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


class LineSplitter:
    """Fed with pieces as they arrive, it returns the complete lines; None stands for a line over the limit, whose rest
    is skipped."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        *ended, rest = data.split(b"\n")
        lines = [line for piece in ended for line in self._end(piece)]
        return lines + self._hold(rest)

    def last(self) -> list[bytes | None]:
        """What is left when the stream has ended without a line break."""
        return self._end(b"") if self._pieces else []

    def _end(self, piece: bytes) -> list[bytes | None]:
        over_limit = self._hold(piece)
        line, skipped = b"".join(self._pieces), self._skipping
        self._pieces, self._held_bytes, self._skipping = [], 0, False
        return over_limit if skipped else [line]

    def _hold(self, piece: bytes) -> list[bytes | None]:
        """Keep the beginning of a line. One that gets too long is reported once and no longer kept."""
        if self._skipping or not piece:
            return []
        self._held_bytes += len(piece)
        if self._held_bytes > self._limit_bytes:
            self._pieces, self._skipping = [], True
            return [None]
        self._pieces.append(piece)
        return []
