"""Read: returns the lines of a file with their numbers, a page at a time, and pictures as pictures."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from trunkline.config.call_arguments import StrictArguments, argument
from trunkline.sources.builtin.file_formats import HEAD_BYTES, encoding_of, format_size, kind_of
from trunkline.sources.builtin.root import quoted
from trunkline.sources.builtin.text_length import units
from trunkline.sources.builtin.tool import (
    LONGEST_LINE,
    MOST_CHARACTERS,
    MOST_LINES,
    BuiltinTool,
    RunningToolCall,
    ToolFault,
    definition,
    image_result,
    text_result,
)

PICTURE_BYTES: Final = 3_750_000
"""Models take pictures of up to 5 MB once they are written as base64."""
_COUNTED_BYTES: Final = 64_000_000
"""Up to this size the lines after those shown are counted, so that an agent knows how many there are; and the end of a
longer line is not waited for."""
_NOTES: Final = 600  # characters reserved for the notes below the lines
_BLOCK_BYTES: Final = 262_144
_KEPT_BYTES: Final = LONGEST_LINE * 4 + 4
"""Enough for the characters that are shown, however many bytes each of them takes."""
_NUMBER_WIDTH: Final = 6

FilePath = Annotated[
    str,
    argument(
        "The file: a path relative to the root folder, or an absolute one below it",
        *("file_path", "filePath", "absolute_path", "filename", "file"),
    ),
]

_DOC: Final = f"""Reads a file and returns its lines with their numbers (the number, a tab, then the line as it is).

- Up to {MOST_LINES:,} lines or {MOST_CHARACTERS:,} characters come at once; when there is more, the last line says with which `offset` to go on. Lines of more than {LONGEST_LINE:,} characters are cut.
- Give `offset` and `limit` to see one part of a long file; omit them to read a file from its beginning.
- PNG, JPEG, GIF and WebP files are returned as pictures. Other binary files are refused, with their type.
- It reads files only: list folders with Glob. Several files can be read in parallel."""  # noqa: E501


Offset = Annotated[
    int, argument("The number of the first line to return; the first line of a file is 1", "start_line", "line", ge=0)
]
Limit = Annotated[int, argument(f"How many lines to return; at most {MOST_LINES:,} come at once", "max_lines", ge=1)]


class ReadArguments(StrictArguments):
    path: FilePath
    offset: Offset | None = None
    limit: Limit | None = None


class ReadTool(BuiltinTool):
    arguments = ReadArguments
    definition = definition("Read", _DOC, ReadArguments, title="Read a file", reads_only=True, idempotent=True)

    async def run(self, arguments: ReadArguments, call: RunningToolCall) -> bytes:
        first = max(1, arguments.offset or 1)
        return await call.in_thread(self._read, arguments.path, first, arguments.limit or MOST_LINES, call)

    def _read(self, path: str, first: int, limit: int, call: RunningToolCall) -> bytes:
        fd = self._root.open_file(path)
        try:
            size_bytes = os.fstat(fd).st_size
            head = os.pread(fd, HEAD_BYTES, 0)
            kind = kind_of(head)
            if kind.picture and size_bytes > PICTURE_BYTES:
                size, most = format_size(size_bytes), format_size(PICTURE_BYTES)
                raise ToolFault(f"{quoted(path)} is a picture of {size}; up to {most} can be shown: make it smaller")
            if kind.picture:
                return image_result(b"".join(read_blocks(fd, PICTURE_BYTES)), kind.picture)
            if kind.binary:
                raise ToolFault(f"{quoted(path)} is {kind.binary} ({format_size(size_bytes)}), not a text file")
            if not head:
                return text_result(f"[{quoted(path)} is empty]")
            return _lines(fd, path, first, limit, call)
        finally:
            os.close(fd)


def _lines(fd: int, path: str, first: int, limit: int, call: RunningToolCall) -> bytes:
    encoding, mark = encoding_of(os.pread(fd, 4, 0))
    size_bytes, seen_bytes = os.fstat(fd).st_size, 0
    part = LineSlice(first, min(limit, MOST_LINES), MOST_CHARACTERS - _NOTES)
    counted = True
    for block in as_utf8(read_blocks(fd), encoding, mark):
        part.feed(block)
        seen_bytes += len(block)
        counted = not part.full or max(size_bytes, seen_bytes) <= _COUNTED_BYTES  # it may be growing
        if call.cancelled or not counted or part.since_end_bytes > _COUNTED_BYTES:
            break
    endless = part.since_end_bytes > _COUNTED_BYTES
    part.end()
    if not part.lines:
        raise ToolFault(f"{quoted(path)} {_end(part, endless)}: there is no line {first:,}")
    body = "\n".join(numbered(number, line) for number, line in enumerate(part.lines, first))
    notes = _notes(part, encoding, counted and not endless)
    if endless and part.next_line > part.total:
        notes[0] = f"[The file {_end(part, endless)}]"
    return text_result("\n".join([body, *notes]))


def _end(part: LineSlice, endless: bool) -> str:
    if endless:
        return f"is not read beyond line {part.total:,}, which is longer than {format_size(_COUNTED_BYTES)}"
    return "has 1 line" if part.total == 1 else f"has {part.total:,} lines"


def _notes(part: LineSlice, encoding: str, counted: bool) -> list[str]:
    """What an agent has to know besides the lines; each note is one line."""
    notes: list[str] = []
    last = part.next_line - 1
    these = f"Line {last:,}" if last == part.first else f"Lines {part.first:,}-{last:,}"
    of_all = f" of {part.total:,}" if counted else ""
    if not counted or last < part.total:
        notes.append(f"[{these}{of_all}. Continue with offset={last + 1}]")
    elif part.first > 1:
        notes.append(f"[{these}{of_all}, the end of the file]")
    if part.cut_lines:
        some = ", ".join(f"{number:,}" for number in part.cut_lines[:10])
        more = " and others" if len(part.cut_lines) > 10 else ""
        notes.append(f"[Cut after {LONGEST_LINE:,} characters: line {some}{more}. Grep finds what is further right]")
    if part.has_invalid_bytes:
        notes.append("[Some bytes are not valid UTF-8; each is shown as \ufffd]")
    if encoding != "utf-8":
        notes.append(f"[The file is {encoding.upper()}]")
    if part.crlf:
        notes.append("[Lines end in CRLF, which is not shown; Edit and Write keep it]")
    return notes


def numbered(number: int, line: str) -> str:
    return f"{number:>{_NUMBER_WIDTH}}\t{line}"


class LineSlice:
    """Takes some lines out of a file of any size, fed with blocks of UTF-8: `lines` from `first` on, as many as `most`
    and `characters` allow. `cut_lines` are the numbers of lines that were cut; `since_end_bytes` is since a newline."""

    def __init__(self, first: int, most: int, characters: int) -> None:
        self.first = first
        self.lines: list[str] = []
        self.cut_lines: list[int] = []
        self.has_invalid_bytes = False
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
        """There are no more blocks: what is left is a line without a newline."""
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
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            line = raw.decode(errors="replace")
            # a character at the very end of what was kept may be cut in two: it is not shown anyway
            self.has_invalid_bytes = self.has_invalid_bytes or "\ufffd" in line[:LONGEST_LINE]
        cut = len(line) > LONGEST_LINE
        line = f"{line[:LONGEST_LINE]}… [cut: the line has {size_bytes:,} bytes]" if cut else line
        cost = units(line) + _NUMBER_WIDTH + 3
        if cost > self._room and self.lines:
            self.full = True
            return
        if cut:
            self.cut_lines.append(self.next_line)
        self._room -= cost
        self.lines.append(line)
        self.full = len(self.lines) >= self._most


def as_utf8(blocks: Iterable[bytes], encoding: str, mark: bytes) -> Iterator[bytes]:
    """The same text in UTF-8, without its byte order mark."""
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)("replace")
    skip = len(mark)
    for block in blocks:
        yield block[skip:] if decoder is None else decoder.decode(block[skip:]).encode()
        skip = 0
    if decoder is not None:
        yield decoder.decode(b"", final=True).encode()


def read_blocks(fd: int, most_bytes: int | None = None) -> Iterator[bytes]:
    """The content of a file, up to its end or this many bytes: it may be written faster than it is read."""
    left = most_bytes
    while block := os.read(fd, _BLOCK_BYTES if left is None else min(left, _BLOCK_BYTES)):
        yield block
        left = None if left is None else left - len(block)
