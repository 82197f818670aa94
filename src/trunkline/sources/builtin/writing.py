"""Write: a file made or replaced as a whole, in one step, with the mode, encoding and line endings it had."""

from __future__ import annotations

from typing import Annotated, Final

from trunkline.config.call_arguments import Arguments, about
from trunkline.sources.builtin.arguments import Hints, definition
from trunkline.sources.builtin.file_kinds import kind_of, size_in_words
from trunkline.sources.builtin.file_place import FilePlace, file_place
from trunkline.sources.builtin.reading import FilePath
from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.text_style import TextStyle, with_newlines
from trunkline.sources.builtin.tool import Job, Workplace, text

_LOOKED_AT_BYTES: Final = 1_048_576

_DOC: Final = """Writes a file: makes it, with the folders it needs, or replaces all of its content.

- What was in the file before is gone, so read it first if you have not written it yourself. To change parts of a file use Edit: it sends less and destroys less.
- The file is replaced in one step: nobody ever sees half of it. A file that existed keeps its permissions, its encoding and its line endings (write plain newlines: where the file has CRLF they become CRLF).
- A symbolic link is written through to the file it leads to, inside the root folder only."""  # noqa: E501


class WriteArguments(Arguments):
    path: FilePath
    content: Annotated[str, about("The whole new content of the file", "contents", "file_text", "text")]


class Write:
    arguments = WriteArguments
    definition = definition("Write", _DOC, WriteArguments, Hints(title="Write a file", destroys=True, idempotent=True))

    def __init__(self, place: Workplace) -> None:
        self._root = place.root

    async def run(self, arguments: WriteArguments, job: Job) -> bytes:
        return await job.in_thread(self._write, arguments.path, arguments.content, job)

    def _write(self, path: str, words: str, job: Job) -> bytes:
        with file_place(self._root, path, make_folders=True) as place:
            style = TextStyle() if place.before is None else _style(place)
            data = style.encode(with_newlines(words, style.newline) if style.newline == "\r\n" else words)
            before = place.before
            place.write(data, job)
        size = f"{_lines(words)}, {size_in_words(len(data))}"
        if before is None:
            return text(f"Created {quoted(path)}: {size}")
        return text(f"Replaced {quoted(path)}: {size} (it had {size_in_words(before.st_size)}){_kept(style)}")


def _style(place: FilePlace) -> TextStyle:
    """How the file is written so far. One without line ends, or that is no text, has nothing to keep."""
    head = place.read(_LOOKED_AT_BYTES)
    kind = kind_of(head)
    return TextStyle() if kind.binary or kind.picture else TextStyle.of(head)


def _kept(style: TextStyle) -> str:
    kept = [style.encoding.upper()] if style.encoding != "utf-8" else []
    kept += ["CRLF line endings"] if style.newline == "\r\n" else []
    return f"; kept as before: {', '.join(kept)}" if kept else ""


def _lines(words: str) -> str:
    count = words.count("\n") + (not words.endswith("\n") and bool(words))
    return "1 line" if count == 1 else f"{count:,} lines"
