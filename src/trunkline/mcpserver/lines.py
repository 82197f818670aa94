"""Lines out of a stream of bytes, none longer than a limit."""

from __future__ import annotations


class Lines:
    """Fed with pieces as they come, it gives back the lines that are whole; None stands for one over the limit, whose
    rest is skipped."""

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
        told = self._hold(piece)
        line, skipped = b"".join(self._pieces), self._skipping
        self._pieces, self._held_bytes, self._skipping = [], 0, False
        return told if skipped else [line]

    def _hold(self, piece: bytes) -> list[bytes | None]:
        """Keep the beginning of a line; one that gets too long is told of once, and no longer kept."""
        if self._skipping or not piece:
            return []
        self._held_bytes += len(piece)
        if self._held_bytes > self._limit_bytes:
            self._pieces, self._skipping = [], True
            return [None]
        self._pieces.append(piece)
        return []
