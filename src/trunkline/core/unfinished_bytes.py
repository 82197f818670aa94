"""A limit on the bytes of all incomplete messages, over all connections.

Each connection limits the size of one message, but thousands of connections that never complete theirs would add up.
When all together exceed the limit, the message that began first is dropped: an honest one is long complete by then.
"""

from __future__ import annotations

from typing import Final, Protocol

DEFAULT_BYTES: Final = 256 * 1024 * 1024


class BufferingConnection(Protocol):
    """A connection that buffers an incomplete message."""

    def give_way(self) -> None:
        """Drop the message, send the peer an error, and report 0 held bytes before this returns."""
        ...


class UnfinishedBytes:
    """Counts the bytes each connection holds, in the order in which their messages began."""

    __slots__ = ("_held", "_making_room", "given_way", "limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self.given_way = 0
        """How many messages were dropped so far."""
        self._held: dict[BufferingConnection, int] = {}
        self._making_room = False

    def hold(self, holder: BufferingConnection, held_bytes: int) -> None:
        """Set how much a connection holds. One alone never has to give way: the limit of a message bounds it."""
        held = self._held
        self.total_bytes += held_bytes - held.get(holder, 0)
        if held_bytes:
            held[holder] = held_bytes
        else:
            held.pop(holder, None)
        if self.total_bytes > self.limit_bytes and not self._making_room:
            self._make_room()

    def _make_room(self) -> None:
        """Drop the oldest messages. Each calls `hold` meanwhile, which must not start this again."""
        held = self._held
        self._making_room = True
        try:
            while self.total_bytes > self.limit_bytes and len(held) > 1:
                oldest = next(iter(held))
                self.given_way += 1
                try:
                    oldest.give_way()
                finally:
                    if oldest in held:  # against its contract; this loop would never end
                        self.total_bytes -= held.pop(oldest)
        finally:
            self._making_room = False
