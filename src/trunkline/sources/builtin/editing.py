"""Edit: one exact text of a file replaced by another, and nothing else of the file touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trunkline.sources.builtin.arguments import Hints, Parameter, definition
from trunkline.sources.builtin.file_kinds import HEAD_BYTES, kind_of, size_in_words
from trunkline.sources.builtin.file_place import FilePlace, file_place
from trunkline.sources.builtin.line_slice import numbered
from trunkline.sources.builtin.matching import Matches, find, lines_at, why_absent
from trunkline.sources.builtin.reading import PATH
from trunkline.sources.builtin.root import Root, shown
from trunkline.sources.builtin.text_size import units
from trunkline.sources.builtin.text_style import TextStyle, with_newlines
from trunkline.sources.builtin.tool import Job, ToolFault, Workplace, cut_line, text

MOST_BYTES: Final = 20_000_000
_AROUND: Final = 4
_SHOWN_LINES: Final = 60
_SHOWN_CHARACTERS: Final = 10_000
_NAMED_LINES: Final = 20

_DOC: Final = """Replaces one exact text in a file by another.

- `old_string` must be in the file character for character, with its indentation, and without the line numbers that Read shows. It must occur exactly once: take in some lines around it if it is not unique, or set `replace_all` to change every occurrence (to rename something, for example).
- The answer shows the changed lines with their numbers. Nothing is changed when the text is missing or not unique: the answer then says where to look.
- The file keeps its permissions, encoding and line endings (write plain newlines, also for files with CRLF), and is replaced in one step.
- An empty `old_string` makes a new file, if there is none. To replace a whole file use Write."""  # noqa: E501


class Edit:
    parameters = (
        PATH,
        Parameter(
            name="old_string",
            required=True,
            doc="The text to be replaced, exactly as it is in the file",
            also=("old", "old_str", "oldString", "old_text"),
        ),
        Parameter(
            name="new_string",
            required=True,
            doc="The text to put there; empty to take the old one out",
            also=("new", "new_str", "newString", "new_text"),
        ),
        Parameter(
            name="replace_all",
            kind="boolean",
            default=False,
            doc="Replace every occurrence, not just the only one",
            also=("replaceAll", "all"),
        ),
    )
    definition = definition("Edit", _DOC, parameters, Hints(title="Edit a file", destroys=True))

    def __init__(self, place: Workplace) -> None:
        self._root = place.root

    async def run(self, arguments: Mapping[str, Any], job: Job) -> bytes:
        path, old, new = arguments["path"], arguments["old_string"], arguments["new_string"]
        if old == new:
            raise ToolFault("`old_string` and `new_string` are the same: there is nothing to change")
        if not old:
            return await job.in_thread(_create, self._root, path, new, job)
        return await job.in_thread(_edit, self._root, path, old, new, arguments["replace_all"], job)


def _create(root: Root, path: str, words: str, job: Job) -> bytes:
    with file_place(root, path, make_folders=True) as place:
        if place.before is not None and place.before.st_size:
            raise ToolFault(
                f"{shown(path)} exists: give the text to replace as `old_string`, or use Write to replace all"
            )
        place.write(words.encode(), job)
    return text(f"Created {shown(path)}: {size_in_words(len(words.encode()))}")


def _edit(root: Root, path: str, old: str, new: str, every: bool, job: Job) -> bytes:
    with file_place(root, path) as place:
        data = _content(place, path)
        style = TextStyle.of(data)
        before = _decoded(style, data, path)
        matches = find(before, old, style.newline)
        if not matches.certain and not (every and matches.count):
            raise ToolFault(_why_not(before, matches, old, new, path))
        spelled = with_newlines(new, matches.newline or style.newline)
        if len(before) + matches.count * (len(spelled) - len(matches.text)) > MOST_BYTES:
            raise ToolFault(f"{shown(path)} would become larger than {size_in_words(MOST_BYTES)}; nothing was changed")
        after = before.replace(matches.text, spelled)
        place.write(style.encode(after), job)
    return text(_answer(path, before, after, matches, spelled))


def _content(place: FilePlace, path: str) -> bytes:
    data = place.read(MOST_BYTES + 1)
    kind = kind_of(data[:HEAD_BYTES])
    if kind.picture or kind.binary:
        raise ToolFault(f"{shown(path)} is {kind.binary or 'a picture'}, which Edit cannot change")
    if len(data) > MOST_BYTES:
        raise ToolFault(f"{shown(path)} is larger than {size_in_words(MOST_BYTES)}, which is too large for Edit")
    return data


def _decoded(style: TextStyle, data: bytes, path: str) -> str:
    try:
        return style.decode(data)
    except UnicodeDecodeError:
        raise ToolFault(f"{shown(path)} is not valid {style.encoding.upper()}, so Edit cannot change it") from None


def _why_not(before: str, matches: Matches, old: str, new: str, path: str) -> str:
    if matches.count:
        where = _at(lines_at(before, matches.starts))
        often = f"{matches.count:,} times" if matches.count > 1 else "more than once, one overlapping the other,"
        return (
            f"`old_string` occurs {often} in {shown(path)} ({where}); nothing was changed. Add lines around it"
            " so that it is unique, or set `replace_all`"
        )
    hint = why_absent(before, old, new) or "Read the file to see it as it is"
    return f"`old_string` does not occur in {shown(path)}; nothing was changed. {hint}"


def _answer(path: str, before: str, after: str, matches: Matches, spelled: str) -> str:
    """What was done, and the lines around the first change as they are now."""
    count = matches.count
    where = _at(lines_at(before, matches.starts))
    said = f"Edited {shown(path)} ({where})" if count == 1 else f"Edited {shown(path)} in {count:,} places ({where})"
    start = matches.starts[0]
    changed = spelled.count("\n") + 1
    return "\n".join([f"{said}:", *_snippet(after, start, changed)])


def _snippet(text: str, start: int, changed: int) -> list[str]:
    """So many lines from a place on, and some around them. Only these are taken out of the text, which may be large."""
    at, above = text.rfind("\n", 0, start) + 1, 0
    while at and above < _AROUND:
        at, above = text.rfind("\n", 0, at - 1) + 1, above + 1
    number = text.count("\n", 0, at) + 1
    there = text.count("\n", at) + (text[-1:] not in ("", "\n"))  # what follows the last line end is no line
    wanted = min(above + changed + _AROUND, there)
    shown_lines: list[str] = []
    room = _SHOWN_CHARACTERS
    while len(shown_lines) < min(wanted, _SHOWN_LINES):
        end = text.find("\n", at)
        line = text[at:end] if end >= 0 else text[at:]
        one = numbered(number + len(shown_lines), cut_line(line.removesuffix("\r")))
        room -= units(one)
        if room < 0:
            break
        shown_lines.append(one)
        at = end + 1
    left_out = wanted - len(shown_lines)
    return [*shown_lines, f"[{left_out:,} more lines of the change]"] if left_out > 0 else shown_lines


def _at(places: Sequence[int]) -> str:
    numbers = list(dict.fromkeys(places))
    some = ", ".join(f"{number:,}" for number in numbers[:_NAMED_LINES])
    more = ", …" if len(numbers) > _NAMED_LINES else ""
    return f"line {some}" if len(numbers) == 1 else f"lines {some}{more}"
