"""Read: a file's lines with their numbers, a page at a time; pictures as pictures."""

from __future__ import annotations

import os
from typing import Annotated, Final

from trunkline.config.call_arguments import Arguments, about
from trunkline.sources.builtin.arguments import Hints, definition
from trunkline.sources.builtin.file_kinds import HEAD_BYTES, kind_of, size_in_words
from trunkline.sources.builtin.line_slice import LineSlice, as_utf8, blocks_of, numbered
from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.text_style import encoding_of
from trunkline.sources.builtin.tool import (
    LONGEST_LINE,
    MOST_CHARACTERS,
    MOST_LINES,
    Job,
    ToolFault,
    Workplace,
    content,
    image_block,
    text,
)

PICTURE_BYTES: Final = 3_750_000
"""Models take pictures of up to 5 MB once they are written as base64."""
_COUNTED_BYTES: Final = 64_000_000
"""Up to this size the lines after those shown are counted, so that an agent knows how much there is; and nobody waits
for the end of a longer line."""
_NOTES: Final = 600  # characters kept free for what is said below the lines

FilePath = Annotated[
    str,
    about(
        "The file: a path relative to the root folder, or an absolute one below it",
        *("file_path", "filePath", "absolute_path", "filename", "file"),
    ),
]

_DOC: Final = f"""Reads a file and returns its lines with their numbers (the number, a tab, then the line as it is).

- Up to {MOST_LINES:,} lines or {MOST_CHARACTERS:,} characters come at once; when there is more, the last line says with which `offset` to go on. Lines of more than {LONGEST_LINE:,} characters are cut.
- Give `offset` and `limit` to see one part of a long file; leave them away to read a file from its beginning.
- PNG, JPEG, GIF and WebP files are returned as pictures. Other binary files are named, not shown.
- It reads files only: list folders with Glob. Several files can be read in parallel."""  # noqa: E501


class ReadArguments(Arguments):
    path: FilePath
    offset: (
        Annotated[
            int,
            about("The number of the first line to return; the first line of a file is 1", "start_line", "line", ge=0),
        ]
        | None
    ) = None
    limit: (
        Annotated[int, about(f"How many lines to return; at most {MOST_LINES:,} come at once", "max_lines", ge=1)]
        | None
    ) = None


class Read:
    arguments = ReadArguments
    definition = definition("Read", _DOC, ReadArguments, Hints(title="Read a file", reads_only=True, idempotent=True))

    def __init__(self, place: Workplace) -> None:
        self._root = place.root

    async def run(self, arguments: ReadArguments, job: Job) -> bytes:
        first = max(1, arguments.offset or 1)
        return await job.in_thread(self._read, arguments.path, first, arguments.limit or MOST_LINES, job)

    def _read(self, path: str, first: int, limit: int, job: Job) -> bytes:
        fd = self._root.open_file(path)
        try:
            size_bytes = os.fstat(fd).st_size
            head = os.pread(fd, HEAD_BYTES, 0)
            kind = kind_of(head)
            if kind.picture:
                return _picture(fd, path, size_bytes, kind.picture)
            if kind.binary:
                raise ToolFault(f"{quoted(path)} is {kind.binary} ({size_in_words(size_bytes)}), which is no text")
            if not head:
                return text(f"[{quoted(path)} is empty]")
            return _lines(fd, path, first, limit, job)
        finally:
            os.close(fd)


def _picture(fd: int, path: str, size_bytes: int, mime_type: str) -> bytes:
    if size_bytes > PICTURE_BYTES:
        most = size_in_words(PICTURE_BYTES)
        raise ToolFault(
            f"{quoted(path)} is a picture of {size_in_words(size_bytes)}; up to {most} can be shown: make it smaller"
        )
    return content(image_block(b"".join(blocks_of(fd, PICTURE_BYTES)), mime_type))


def _lines(fd: int, path: str, first: int, limit: int, job: Job) -> bytes:
    encoding, mark = encoding_of(os.pread(fd, 4, 0))
    size_bytes, seen_bytes = os.fstat(fd).st_size, 0
    part = LineSlice(first, min(limit, MOST_LINES), MOST_CHARACTERS - _NOTES)
    counted = True
    for block in as_utf8(blocks_of(fd), encoding, mark):
        part.feed(block)
        seen_bytes += len(block)
        counted = not part.full or max(size_bytes, seen_bytes) <= _COUNTED_BYTES  # it may be growing
        if job.over or not counted or part.since_end_bytes > _COUNTED_BYTES:
            break
    endless = part.since_end_bytes > _COUNTED_BYTES
    part.end()
    if not part.lines:
        raise ToolFault(f"{quoted(path)} {_end(part, endless)}: there is no line {first:,}")
    body = "\n".join(numbered(number, line) for number, line in enumerate(part.lines, first))
    notes = _notes(part, encoding, counted and not endless)
    if endless and part.next_line > part.total:
        notes[0] = f"[The file {_end(part, endless)}]"
    return text("\n".join([body, *notes]))


def _end(part: LineSlice, endless: bool) -> str:
    """Where a file ends, or where nobody looks any further."""
    if endless:
        return f"is not looked at beyond line {part.total:,}, which is longer than {size_in_words(_COUNTED_BYTES)}"
    return f"has {_count(part.total)}"


def _notes(part: LineSlice, encoding: str, counted: bool) -> list[str]:
    """What an agent has to know beside the lines, each in one line of its own."""
    notes: list[str] = []
    last = part.next_line - 1
    these = f"Line {last:,}" if last == part.first else f"Lines {part.first:,}-{last:,}"
    of_all = f" of {part.total:,}" if counted else ""
    if not counted or last < part.total:
        notes.append(f"[{these}{of_all}. Continue with offset={last + 1}]")
    elif part.first > 1:
        notes.append(f"[{these}{of_all}, the end of the file]")
    if part.longer:
        some = ", ".join(f"{number:,}" for number in part.longer[:10])
        more = " and others" if len(part.longer) > 10 else ""
        notes.append(f"[Cut after {LONGEST_LINE:,} characters: line {some}{more}. Grep finds what is further right]")
    if part.mended:
        notes.append("[Some bytes are not valid UTF-8; each is shown as \ufffd]")
    if encoding != "utf-8":
        notes.append(f"[The file is {encoding.upper()}]")
    if part.crlf:
        notes.append("[Lines end in CRLF, which is not shown; Edit and Write keep it]")
    return notes


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
