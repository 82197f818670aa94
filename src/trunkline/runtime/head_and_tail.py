"""The beginning and the end of a long output, in bounded memory: what lies between is counted and dropped."""

from __future__ import annotations


class HeadAndTail:
    """Keeps the first `head_bytes` and the last `tail_bytes` of what is added, and never much more than that."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "total_bytes", "total_lines")

    def __init__(self, *, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.total_lines = 0
        """Line ends so far, those in what was dropped included."""

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self.total_lines += data.count(b"\n")
        room = self._head_bytes - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_bytes :]
        if len(self._tail) > 2 * self._tail_bytes:  # not at every step: moving the bytes costs
            del self._tail[: -self._tail_bytes]

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """What came after the head, or the end of it."""
        return bytes(self._tail[-self._tail_bytes :])

    @property
    def dropped_bytes(self) -> int:
        """How much is missing between head and tail."""
        return self.total_bytes - len(self._head) - min(len(self._tail), self._tail_bytes)
