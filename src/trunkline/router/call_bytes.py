"""One bound over what large calls hold while they wait and run, whichever source they are for.

How many calls there may be is bounded elsewhere; a thousand of them with megabytes each would still be too much.
"""

from __future__ import annotations

from typing import Final

from trunkline.core.call import Call
from trunkline.core.errors import QUEUE_FULL, Problem
from trunkline.core.unfinished import DEFAULT_BYTES

LARGE_BYTES: Final = 16 * 1024
"""Smaller calls are not counted: their number bounds them, and every call would pay for the counting."""
_COPIES: Final = 2
"""What the client wrote is kept beside what its server gets."""
_RETRY_AFTER_MS: Final = 1000


class CallBytes:
    __slots__ = ("_held", "_limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.total_bytes = 0
        self._held: dict[Call, int] = {}

    def refusal(self, call: Call, size_bytes: int) -> Problem | None:
        """Count a call until it is released; why it cannot go on where others hold too much already. One alone always
        may: the limit of a request bounds it."""
        if call in self._held:
            return None
        size_bytes *= _COPIES
        if self._held and self.total_bytes + size_bytes > self._limit_bytes:
            message = f"Calls in flight hold {self.total_bytes:,} bytes already (`limits.unfinished_bytes`)"
            return Problem(
                code=QUEUE_FULL,
                message=message,
                source=call.source,
                tool=call.tool,
                retryable=True,
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._held[call] = size_bytes
        self.total_bytes += size_bytes
        return None

    def release(self, call: Call) -> None:
        self.total_bytes -= self._held.pop(call, 0)
