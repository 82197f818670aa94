"""Newline framing, as used over stdio: bytes in, whole lines out, with a size limit; and the buffer that framers use.

The limit applies to each line, regardless of how the bytes were cut into chunks.
"""

from __future__ import annotations

from typing import Final

_SMALL_BYTES: Final = 4096
"""Smaller pieces are merged: as separate objects they would take many times their size."""
_HEAD_BYTES: Final = 256


class ByteBuffer:
    """Collects bytes that arrive in pieces and joins them once. Takes linear time however small the pieces are."""

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
        """Return everything so far followed by `last`, and clear the buffer."""
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
        """Remove `prefix` if the first piece begins with it: cheaper than cutting it off the whole."""
        parts = self._parts
        if not parts or not parts[0].startswith(prefix):
            return False
        parts[0] = parts[0][len(prefix) :]
        self.size -= len(prefix)
        return True

    def clear(self) -> None:
        self._parts.clear()
        self.size = 0


class LineTooLong(Exception):
    """A line exceeds the limit. `lines` are the whole lines before it; `head` is its beginning, perhaps with an id."""

    def __init__(self, lines: list[bytes], head: bytes, limit_bytes: int) -> None:
        super().__init__(f"a line is longer than {limit_bytes} bytes")
        self.lines = lines
        self.head = head


class LineFramer:
    """Splits a byte stream at LF; a CR before it is dropped, and blank lines are counted rather than returned.

    After `LineTooLong` the framer can go on: `feed(b"")` returns what followed the line in the same chunk, and the rest
    of the line is skipped as it arrives.
    """

    __slots__ = ("_limit_bytes", "_pending", "_rest", "_skipping", "blank_lines")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pending = ByteBuffer()
        self._skipping = False
        self._rest = b""
        self.blank_lines = 0

    @property
    def partial(self) -> bool:
        """Whether a line has begun but not ended."""
        return self._pending.size > 0 or self._skipping

    @property
    def buffered_bytes(self) -> int:
        return self._pending.size + len(self._rest)

    def clear(self) -> None:
        """Drop the line that has not ended, and whatever follows in it."""
        self._pending.clear()
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that this chunk completes. Raises `LineTooLong`, which carries the lines before it."""
        if self._skipping:  # up to the end of an oversized line
            _, newline, data = (self._rest + data).partition(b"\n")
            self._rest = b""
            self._skipping = not newline
        pending = self._pending
        first = data.find(b"\n")
        if first < 0:
            lines, tail = [], data
        elif first == len(data) - 1:  # `find` is twenty times as fast as `split`, which large lines feel
            lines, tail = [data[:-1]], b""
        else:
            lines = data.split(b"\n")
            tail = lines.pop()
        # No line can exceed the limit if everything we hold does not.
        if pending.size + len(data) > self._limit_bytes:
            self._check(data, lines, tail)
        if lines and pending.size:
            lines[0] = pending.take(lines[0])
        if tail:
            pending.append(tail)
        return self._finished(lines) if lines else lines

    def _finished(self, lines: list[bytes]) -> list[bytes]:
        """The lines without CR and without blank ones, which are counted."""
        found = len(lines)
        lines = [line[:-1] if line[-1] == 13 else line for line in lines if line and line != b"\r"]
        self.blank_lines += found - len(lines)
        return lines

    def _check(self, data: bytes, lines: list[bytes], tail: bytes) -> None:
        """Raise for the first line over the limit; the framer is then inside it, with the rest of the chunk kept."""
        held = self._pending.size
        offset = 0
        for index, line in enumerate((*lines, tail)):
            offset += len(line)
            if held + len(line) > self._limit_bytes:
                self._skipping = True
                self._rest = data[offset:]
                raise self._too_long(lines[:index], line)
            held = 0
            offset += 1

    def _too_long(self, before: list[bytes], line: bytes) -> LineTooLong:
        pending = self._pending
        if before and pending.size:
            before[0] = pending.take(before[0])
        head = (pending.head(_HEAD_BYTES) + line[:_HEAD_BYTES])[:_HEAD_BYTES]
        pending.clear()
        return LineTooLong(self._finished(before), head, self._limit_bytes)
