"""Where a text occurs in a file, exactly; and where it does not, what may have been meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.sources.builtin.text_style import with_newlines

_LINE_NUMBER: Final = re.compile(r"^ *\d+\t", re.MULTILINE)
_SPACES: Final = re.compile(r"\s+")
_TYPOGRAPHY: Final = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u00a0": " "}
)
_SEARCHED: Final = 2_000_000  # characters; in a larger file a hint is not worth the wait
_CANDIDATES: Final = 300
_SHOWN: Final = 200
_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Matches:
    """`count` is how often it occurs, `starts` are where the first of them begin, `text` is it as the file has it,
    `newline` what its lines end in there; empty when it is within one line. It is `certain` where there is one place
    that can be meant: not where it overlaps itself."""

    count: int
    starts: tuple[int, ...]
    text: str
    newline: str = ""
    certain: bool = False


def find(text: str, wanted: str, usual: str = "\n") -> Matches:
    """Every place of `wanted`, with the line endings that are `usual` in the file or with the others: agents seldom
    see which ones there are."""
    if "\n" not in wanted:
        return _matches(text, wanted)
    for newline in sorted(("\n", "\r\n"), key=lambda newline: newline != usual):
        matches = _matches(text, with_newlines(wanted, newline), newline)
        if matches.count:
            return matches
    return Matches(0, (), wanted)


def _matches(text: str, wanted: str, newline: str = "") -> Matches:
    """A text of one letter can occur millions of times: only some places are kept."""
    places: list[int] = []
    at = text.find(wanted)
    certain = at >= 0 and text.find(wanted, at + 1) < 0
    while at >= 0 and len(places) < _KEPT:
        places.append(at)
        at = text.find(wanted, at + len(wanted))
    return Matches(text.count(wanted), tuple(places), wanted, newline, certain)


def lines_at(text: str, starts: Sequence[int]) -> list[int]:
    """The number of the line in which each place is; places come in order."""
    numbers: list[int] = []
    line, seen = 1, 0
    for start in starts:
        line += text.count("\n", seen, start)
        seen = start
        numbers.append(line)
    return numbers


# -- when it is not there ----------------------------------------------------------------------------------------------


def why_absent(text: str, wanted: str, replacement: str) -> str:
    """A sentence that helps to get it right next time; empty when nothing like it is there."""
    bare = _LINE_NUMBER.sub("", wanted)
    if bare and bare != wanted and bare in text:
        return "It is there without the line numbers: leave out the number and the tab that Read shows before each line"
    if "\\n" in wanted and find(text, wanted.replace("\\n", "\n")).count:
        return "It is there with real line breaks in place of the two characters `\\n`"
    if len(text) > _SEARCHED:
        return ""
    lines = text.split("\n")
    first = _alike(lines, wanted)
    if first is not None:
        last = first + wanted.strip("\n").count("\n")
        where = f"line {first}" if first == last else f"lines {first}-{last}"
        return f"It differs only in white space or quotation marks from {where}: copy those exactly as Read shows them"
    if replacement.strip() and find(text, replacement).count:
        return "The new text is there already: this change seems to be made"
    return _most_similar(lines, wanted)


def _alike(lines: Sequence[str], wanted: str) -> int | None:
    """The number of the first line from which on the file says the same, but for white space and quotation marks."""
    sought = [_plain(line) for line in wanted.strip("\n").split("\n")]
    if not any(sought):
        return None
    plain = [_plain(line) for line in lines]
    for at in range(len(plain) - len(sought) + 1):
        if plain[at] == sought[0] and plain[at : at + len(sought)] == sought:
            return at + 1
    return None


def _plain(line: str) -> str:
    return _SPACES.sub("", line.translate(_TYPOGRAPHY))


def _most_similar(lines: Sequence[str], wanted: str) -> str:
    from difflib import get_close_matches  # only a failed edit pays for this import

    sought = max(wanted.split("\n"), key=lambda line: len(line.strip())).strip()[:_SHOWN]
    words = re.findall(r"\w{4,}", sought)
    few = len(lines) <= _CANDIDATES  # else only those that have a word in common are worth comparing
    near = {
        line.strip()[:_SHOWN]: number
        for number, line in enumerate(lines, 1)
        if line.strip() and (few or any(word in line for word in words))
    }
    found = get_close_matches(sought, list(near)[:_CANDIDATES], n=1, cutoff=0.6)
    return f"The most similar line is {near[found[0]]}: `{found[0]}`" if found else ""
