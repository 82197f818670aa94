"""Some lines out of a file of any size: what comes before is counted, not kept, and a line of megabytes is cut."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from typing import Final

from trunkline.sources.builtin.text_size import units
from trunkline.sources.builtin.tool import LONGEST_LINE

_BLOCK_BYTES: Final = 262_144
_KEPT_BYTES: Final = LONGEST_LINE * 4 + 4
"""Enough for the characters that are shown, however many bytes each of them takes."""
_NUMBER_WIDTH: Final = 6


def numbered(number: int, line: str) -> str:
    return f"{number:>{_NUMBER_WIDTH}}\t{line}"


class LineSlice:
    """Fed with blocks of UTF-8; `lines` are those from `first` on, as many as `most` and `characters` allow.

    `longer` are the numbers of lines that were cut. `total` is the number of all lines, once all blocks were fed, and
    `since_end_bytes` how much has come since the last end of a line.
    """

    def __init__(self, first: int, most: int, characters: int) -> None:
        self.first = first
        self.lines: list[str] = []
        self.longer: list[int] = []
        self.mended = False
        self.crlf = False
        self.full = False
        self._most = most
        self._room = characters
        self._to_skip = first - 1
        self._ends = 0
        self.since_end_bytes = 0
        self._last_byte = b"\n"
        self._pending = b""
        self._pending_bytes = 0

    @property
    def total(self) -> int:
        return self._ends + (self._last_byte != b"\n")

    @property
    def next_line(self) -> int:
        return self.first + len(self.lines)

    def feed(self, block: bytes) -> None:
        if not block:
            return
        ends = block.count(b"\n")
        self._ends += ends
        self.since_end_bytes = len(block) - 1 - block.rfind(b"\n") if ends else self.since_end_bytes + len(block)
        self._last_byte = block[-1:]
        if self.full:
            return
        if ends < self._to_skip:
            self._to_skip -= ends
        elif self._to_skip:
            rest = block.split(b"\n", self._to_skip)[-1]
            self._to_skip = 0
            self._take(rest)
        else:
            self._take(block)

    def end(self) -> None:
        """No more blocks: what is left is a line without an end."""
        if self._pending_bytes and not self.full:
            self._add(b"")

    def _take(self, block: bytes) -> None:
        *whole, rest = block.split(b"\n", self._most - len(self.lines))
        for piece in whole:
            self._add(piece)
            if self.full:
                return
        self._pending += rest[: _KEPT_BYTES - len(self._pending)]
        self._pending_bytes += len(rest)

    def _add(self, piece: bytes) -> None:
        raw = self._pending + piece[: _KEPT_BYTES - len(self._pending)]
        size_bytes = self._pending_bytes + len(piece)
        self._pending, self._pending_bytes = b"", 0
        if piece.endswith(b"\r") or (not piece and raw.endswith(b"\r") and size_bytes == len(raw)):
            self.crlf = True
            raw = raw.removesuffix(b"\r")
        line, cut = self._shown(raw, size_bytes)
        cost = units(line) + _NUMBER_WIDTH + 3
        if cost > self._room and self.lines:
            self.full = True
            return
        if cut:
            self.longer.append(self.next_line)
        self._room -= cost
        self.lines.append(line)
        self.full = len(self.lines) >= self._most

    def _shown(self, raw: bytes, size_bytes: int) -> tuple[str, bool]:
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line = raw.decode(errors="replace")
            # A character at the very end of what was kept may be cut in two: it is not shown anyway.
            self.mended = self.mended or "\ufffd" in line[:LONGEST_LINE]
        if len(line) <= LONGEST_LINE:
            return line, False
        return f"{line[:LONGEST_LINE]}… [cut: the line has {size_bytes:,} bytes]", True


def as_utf8(blocks: Iterable[bytes], encoding: str, mark: bytes) -> Iterator[bytes]:
    """The same text in UTF-8, without its byte order mark."""
    skip = len(mark)
    if encoding == "utf-8":
        for block in blocks:
            yield block[skip:]
            skip = 0
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in blocks:
        yield decoder.decode(block[skip:]).encode()
        skip = 0
    yield decoder.decode(b"", final=True).encode()


def blocks_of(fd: int, most_bytes: int | None = None) -> Iterator[bytes]:
    """What is in a file, up to its end or so many bytes: somebody may be writing it faster than it is read."""
    left = most_bytes
    while block := os.read(fd, _BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES)):
        yield block
        left = None if left is None else left - len(block)
