"""Bytes that arrive in pieces and are wanted whole: joined once, with little memory beside the bytes themselves."""

from __future__ import annotations

from typing import Final

_SMALL_BYTES: Final = 4096
"""Smaller pieces are merged: as objects of their own they would cost many times what they hold."""


class Pieces:
    """A growing run of bytes. Linear in its total size, however small the pieces are."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []
        self.size = 0

    def append(self, piece: bytes) -> None:
        self.size += len(piece)
        parts = self._parts
        if not parts or len(piece) >= _SMALL_BYTES:
            parts.append(piece)
        elif isinstance(last := parts[-1], bytearray):
            last += piece
        else:
            parts.append(bytearray(piece))

    def take(self, last: bytes = b"") -> bytes:
        """Everything so far with `last` at its end; nothing is left."""
        parts = self._parts
        if last:
            parts.append(last)
        whole = b"".join(parts)  # no copy of a single one
        parts.clear()
        self.size = 0
        return whole

    def head(self, limit_bytes: int) -> bytes:
        """The first bytes, at most `limit_bytes` of them."""
        head = b""
        for part in self._parts:
            head += part[: limit_bytes - len(head)]
            if len(head) == limit_bytes:
                break
        return head

    def drop_prefix(self, prefix: bytes) -> bool:
        """Remove `prefix` where the first piece begins with it: cheaper than cutting it off the joined whole."""
        parts = self._parts
        if not parts or not parts[0].startswith(prefix):
            return False
        parts[0] = parts[0][len(prefix) :]
        self.size -= len(prefix)
        return True

    def clear(self) -> None:
        self._parts.clear()
        self.size = 0
