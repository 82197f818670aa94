"""One bound over the bytes of all messages that have begun and not ended, whichever connection they come by.

Each connection has a limit for one message, but thousands of connections that never finish theirs would add up. When
all together hold more than the bound, the message that began first gives way: an honest one is long complete by then.
"""

from __future__ import annotations

from typing import Final, Protocol

DEFAULT_BYTES: Final = 256 * 1024 * 1024


class UnfinishedHolder(Protocol):
    """A connection that holds bytes of messages that nobody could act on yet."""

    def give_way(self) -> None:
        """Let go of them, tell the peer, and report 0 held bytes before this returns."""
        ...


class UnfinishedBytes:
    """Who holds how much, in the order in which they began."""

    __slots__ = ("_held", "_making_room", "given_way", "limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.given_way = 0
        """How many had to make room, since the start."""
        self._held: dict[UnfinishedHolder, int] = {}
        self._making_room = False

    def hold(self, holder: UnfinishedHolder, held_bytes: int) -> None:
        """`holder` holds this much now. One alone never has to give way: its own limit is what bounds it."""
        held = self._held
        self.total_bytes += held_bytes - held.get(holder, 0)
        if held_bytes:
            held[holder] = held_bytes
        else:
            held.pop(holder, None)
        if self.total_bytes > self.limit_bytes and not self._making_room:
            self._make_room()

    def _make_room(self) -> None:
        """One after the other: each says meanwhile that it holds nothing any more, and must not begin this anew."""
        held = self._held
        self._making_room = True
        try:
            while self.total_bytes > self.limit_bytes and len(held) > 1:
                oldest = next(iter(held))
                self.given_way += 1
                try:
                    oldest.give_way()
                finally:
                    if oldest in held:  # it must not: we would never come to an end
                        self.total_bytes -= held.pop(oldest)
        finally:
            self._making_room = False
