"""Edit: replaces one exact text in a file by another, and touches nothing else of the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from trunkline.config.call_arguments import StrictArguments, argument
from trunkline.sources.builtin.file_formats import HEAD_BYTES, TextFormat, format_size, kind_of, with_newlines
from trunkline.sources.builtin.read import FilePath, numbered
from trunkline.sources.builtin.root import RootFolder, quoted
from trunkline.sources.builtin.text_length import units
from trunkline.sources.builtin.tool import (
    LONGEST_LINE,
    BuiltinTool,
    RunningToolCall,
    ToolFault,
    definition,
    text_result,
)
from trunkline.sources.builtin.write import FileReplacement, replacing

MOST_BYTES: Final = 20_000_000
_CONTEXT_LINES: Final = 4
_SHOWN_LINES: Final = 60
_SHOWN_CHARACTERS: Final = 10_000
_NAMED_LINES: Final = 20
_KEPT_MATCHES: Final = 1_000
_LINE_NUMBER: Final = re.compile(r"^ *\d+\t", re.MULTILINE)
_SPACES: Final = re.compile(r"\s+")
_TYPOGRAPHY: Final = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u00a0": " "}
)
_SEARCHED_CHARACTERS: Final = 2_000_000  # in a larger file a hint is not worth the wait
_CANDIDATES: Final = 300
_SHOWN_CANDIDATE: Final = 200

_DOC: Final = """Replaces one exact text in a file by another.

- `old_string` must be in the file character for character, with its indentation, and without the line numbers that Read shows. It must occur exactly once: take in some lines around it if it is not unique, or set `replace_all` to change every occurrence (to rename something, for example).
- The result shows the changed lines with their numbers. Nothing is changed when the text is missing or not unique: the result then says where to look.
- The file keeps its permissions, encoding and line endings (write plain newlines, even for files with CRLF), and is replaced in one step.
- An empty `old_string` makes a new file, if there is none. To replace a whole file use Write."""  # noqa: E501


class EditArguments(StrictArguments):
    path: FilePath
    old_string: Annotated[
        str,
        argument("The text to be replaced, exactly as it is in the file", "old", "old_str", "oldString", "old_text"),
    ]
    new_string: Annotated[
        str, argument("The text to put there; empty to take the old one out", "new", "new_str", "newString", "new_text")
    ]
    replace_all: Annotated[bool, argument("Replace every occurrence, not just the only one", "replaceAll", "all")] = (
        False
    )


class EditTool(BuiltinTool):
    arguments = EditArguments
    definition = definition("Edit", _DOC, EditArguments, title="Edit a file", destroys=True)

    async def run(self, arguments: EditArguments, call: RunningToolCall) -> bytes:
        path, old, new = arguments.path, arguments.old_string, arguments.new_string
        if old == new:
            raise ToolFault("`old_string` and `new_string` are the same: there is nothing to change")
        if not old:
            return await call.in_thread(_create, self._root, path, new, call)
        return await call.in_thread(_edit, self._root, path, old, new, arguments.replace_all, call)


def _create(root: RootFolder, path: str, text: str, call: RunningToolCall) -> bytes:
    with replacing(root, path, make_folders=True) as file:
        if file.before is not None and file.before.st_size:
            raise ToolFault(
                f"{quoted(path)} exists: give the text to replace as `old_string`, or use Write to replace all"
            )
        file.write(text.encode(), call)
    return text_result(f"Created {quoted(path)}: {format_size(len(text.encode()))}")


def _edit(root: RootFolder, path: str, old: str, new: str, every: bool, call: RunningToolCall) -> bytes:
    with replacing(root, path) as file:
        before, form = _read(file, path)
        matches = find_matches(before, old, form.newline)
        if not matches.certain and not (every and matches.count):
            raise ToolFault(_no_single_match(before, matches, old, new, path))
        replacement = with_newlines(new, matches.newline or form.newline)
        if len(before) + matches.count * (len(replacement) - len(matches.text)) > MOST_BYTES:
            raise ToolFault(f"{quoted(path)} would become larger than {format_size(MOST_BYTES)}; nothing was changed")
        after = before.replace(matches.text, replacement)
        file.write(form.encode(after), call)
    where = _line_list(before, matches.starts)
    count = "" if matches.count == 1 else f" in {matches.count:,} places"
    snippet = _snippet(after, matches.starts[0], replacement.count("\n") + 1)
    return text_result("\n".join([f"Edited {quoted(path)}{count} ({where}):", *snippet]))


def _read(file: FileReplacement, path: str) -> tuple[str, TextFormat]:
    data = file.read(MOST_BYTES + 1)
    kind = kind_of(data[:HEAD_BYTES])
    if kind.picture or kind.binary:
        raise ToolFault(f"{quoted(path)} is {kind.binary or 'a picture'}, which Edit cannot change")
    if len(data) > MOST_BYTES:
        raise ToolFault(f"{quoted(path)} is larger than {format_size(MOST_BYTES)}, which is too large for Edit")
    form = TextFormat.of(data)
    try:
        return form.decode(data), form
    except UnicodeDecodeError:
        raise ToolFault(f"{quoted(path)} is not valid {form.encoding.upper()}, so Edit cannot change it") from None


def _no_single_match(text: str, matches: TextMatches, old: str, new: str, path: str) -> str:
    if matches.count:
        often = f"{matches.count:,} times" if matches.count > 1 else "more than once, one overlapping the other,"
        return (
            f"`old_string` occurs {often} in {quoted(path)} ({_line_list(text, matches.starts)}); nothing was changed."
            " Add lines around it so that it is unique, or set `replace_all`"
        )
    hint = mismatch_hint(text, old, new) or "Read the file to see it as it is"
    return f"`old_string` does not occur in {quoted(path)}; nothing was changed. {hint}"


def _snippet(text: str, start: int, changed: int) -> list[str]:
    """The changed lines from a position on, and some around them. The text may be large, so it is not split."""
    at, above = text.rfind("\n", 0, start) + 1, 0
    while at and above < _CONTEXT_LINES:
        at, above = text.rfind("\n", 0, at - 1) + 1, above + 1
    number = text.count("\n", 0, at) + 1
    there = text.count("\n", at) + (text[-1:] not in ("", "\n"))  # nothing follows the last newline
    wanted = min(above + changed + _CONTEXT_LINES, there)
    lines: list[str] = []
    room = _SHOWN_CHARACTERS
    while len(lines) < min(wanted, _SHOWN_LINES):
        end = text.find("\n", at)
        line = (text[at:end] if end >= 0 else text[at:]).removesuffix("\r")
        if len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}… [{len(line) - LONGEST_LINE:,} more characters]"
        lines.append(numbered(number + len(lines), line))
        room -= units(lines[-1])
        if room < 0:
            lines.pop()
            break
        at = end + 1
    left_out = wanted - len(lines)
    return [*lines, f"[{left_out:,} more lines of the change]"] if left_out > 0 else lines


def _line_list(text: str, starts: Sequence[int]) -> str:
    numbers: list[int] = []
    number, seen = 1, 0
    for start in starts:
        number += text.count("\n", seen, start)
        seen = start
        numbers.append(number)
    numbers = list(dict.fromkeys(numbers))
    some = ", ".join(f"{number:,}" for number in numbers[:_NAMED_LINES])
    return f"line {some}" if len(numbers) == 1 else f"lines {some}{', …' if len(numbers) > _NAMED_LINES else ''}"


# -- finding the text --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextMatches:
    """Where a text occurs in a file: how often, and where the first matches start. `text` is as the file has it,
    `newline` its line ending there, empty for a single line. It is `certain` if only one match can be meant: not
    if one overlaps another."""

    count: int
    starts: tuple[int, ...]
    text: str
    newline: str = ""
    certain: bool = False


def find_matches(text: str, wanted: str, usual: str = "\n") -> TextMatches:
    """All matches, with the line endings that are `usual` in the file or else the others: agents seldom see them."""
    if "\n" not in wanted:
        return _matches(text, wanted)
    for newline in sorted(("\n", "\r\n"), key=lambda newline: newline != usual):
        matches = _matches(text, with_newlines(wanted, newline), newline)
        if matches.count:
            return matches
    return TextMatches(0, (), wanted)


def _matches(text: str, wanted: str, newline: str = "") -> TextMatches:
    """A single letter can occur millions of times: only some positions are kept."""
    starts: list[int] = []
    at = text.find(wanted)
    certain = at >= 0 and text.find(wanted, at + 1) < 0
    while at >= 0 and len(starts) < _KEPT_MATCHES:
        starts.append(at)
        at = text.find(wanted, at + len(wanted))
    return TextMatches(text.count(wanted), tuple(starts), wanted, newline, certain)


def mismatch_hint(text: str, wanted: str, replacement: str) -> str:
    """A sentence that helps to get it right next time; empty if nothing similar is found."""
    bare = _LINE_NUMBER.sub("", wanted)
    if bare and bare != wanted and bare in text:
        return "It is there without the line numbers: leave out the number and the tab that Read shows before each line"
    if "\\n" in wanted and find_matches(text, wanted.replace("\\n", "\n")).count:
        return "It is there with real line breaks in place of the two characters `\\n`"
    if len(text) > _SEARCHED_CHARACTERS:
        return ""
    lines = text.split("\n")
    first = _loose_match(lines, wanted)
    if first is not None:
        last = first + wanted.strip("\n").count("\n")
        where = f"line {first}" if first == last else f"lines {first}-{last}"
        return f"It differs only in white space or quotation marks from {where}: copy those exactly as Read shows them"
    if replacement.strip() and find_matches(text, replacement).count:
        return "The new text is there already: this change seems to be made"
    return _most_similar(lines, wanted)


def _loose_match(lines: Sequence[str], wanted: str) -> int | None:
    """The number of the first line where the text occurs, if white space and typographic quotes do not count."""
    sought = [_plain(line) for line in wanted.strip("\n").split("\n")]
    if not any(sought):
        return None
    plain = [_plain(line) for line in lines]
    starts = range(len(plain) - len(sought) + 1)
    return next((at + 1 for at in starts if plain[at] == sought[0] and plain[at : at + len(sought)] == sought), None)


def _plain(line: str) -> str:
    return _SPACES.sub("", line.translate(_TYPOGRAPHY))


def _most_similar(lines: Sequence[str], wanted: str) -> str:
    from difflib import get_close_matches  # only a failed edit pays for this import

    sought = max(wanted.split("\n"), key=lambda line: len(line.strip())).strip()[:_SHOWN_CANDIDATE]
    words = re.findall(r"\w{4,}", sought)
    few = len(lines) <= _CANDIDATES  # else only those that have a word in common are worth comparing
    near = {
        line.strip()[:_SHOWN_CANDIDATE]: number
        for number, line in enumerate(lines, 1)
        if line.strip() and (few or any(word in line for word in words))
    }
    found = get_close_matches(sought, list(near)[:_CANDIDATES], n=1, cutoff=0.6)
    return f"The most similar line is {near[found[0]]}: `{found[0]}`" if found else ""
