"""Which lines of a text match, with the lines around them: the engine for where there is no ripgrep."""

from __future__ import annotations

import codecs
import functools
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Shown = tuple[int, str, int]  # the number of a line from 1, its text, and where the match begins; -1 for context

LOOKED_AT_BYTES = 8192
LARGEST_BYTES = 64 << 20
# What a line looks like to these depends on whether it stands alone or in its text.
_LOOKS_FURTHER = re.compile(r"\(\?(?:<?[=!]|>|\()|\\[AZ]|[+*?}]\+")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_binary(beginning: bytes) -> bool:
    """A NUL near its beginning makes a file binary, as in git, unless it says that it is UTF-16."""
    return b"\0" in beginning[:LOOKED_AT_BYTES] and not beginning.startswith(_UTF16)


def read_text(fd: int) -> str | None:
    """All of a file as text with `\\n` between lines; None for a binary one."""
    data = _read_all(fd)
    if is_binary(data):
        return None
    if data.startswith(_UTF16):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")
    return text.replace("\r\n", "\n") if "\r" in text else text


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts: list[bytes] = []
    left = LARGEST_BYTES  # it may be growing faster than it is read
    while left > 0 and (part := os.read(fd, min(left, size + 1))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


@functools.cache
def _sees_lines_only(pattern: str) -> bool:
    return _LOOKS_FURTHER.search(pattern) is None


class Lines:
    """One text and what matches in it."""

    def __init__(self, text: str, pattern: re.Pattern[str], *, multiline: bool) -> None:
        self._text = text
        self._pattern = pattern
        self._multiline = multiline
        self._sees_lines_only = multiline or _sees_lines_only(pattern.pattern)

    def any(self) -> bool:
        return next(self.matching(), None) is not None

    def count(self) -> int:
        """Lines with a match; over several lines it is the matches that are counted, as ripgrep does."""
        return sum(1 for _ in (self._pattern.finditer(self._text) if self._multiline else self.matching()))

    def matching(self) -> Iterator[tuple[int, int]]:
        """The index of each line with a match, and where in it the match begins."""
        # A look at the whole text is quick, and most files have no match at all.
        if self._sees_lines_only and self._pattern.search(self._text) is None:
            return iter(())
        return self._spans() if self._multiline else self._single()

    def _single(self) -> Iterator[tuple[int, int]]:
        search = self._pattern.search
        for index, line in enumerate(self.all()):
            match = search(line)
            if match is not None:
                yield index, match.start()

    def all(self) -> list[str]:
        lines = self._text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Matches may go over several lines: every line that one touches is a matching line."""
        last, index, line_start = -1, 0, 0
        size = len(self._text)
        for match in self._pattern.finditer(self._text):
            start, end = match.span()
            if start == size and self._text[-1:] in ("", "\n"):
                return  # after the last line there is none
            newlines = self._text.count("\n", line_start, start)
            if newlines:
                index += newlines
                line_start = self._text.rindex("\n", line_start, start) + 1
            touched = self._text.count("\n", start, max(start, end - 1))
            for line in range(max(index, last + 1), index + touched + 1):
                yield line, start - line_start if line == index else 0
            last = max(last, index + touched)

    def shown(self, before: int, after: int) -> Iterator[Shown]:
        """The matching lines with their surroundings, in order, each line once."""
        lines = self.all()
        done = 0
        after_until = 0
        for index, at in self.matching():
            for context in range(done, min(after_until, index)):
                yield context + 1, lines[context], -1
                done = context + 1
            for context in range(max(done, index - before), index):
                yield context + 1, lines[context], -1
            yield index + 1, lines[index], at
            done = index + 1
            after_until = min(len(lines), done + after)
        for context in range(done, after_until):
            yield context + 1, lines[context], -1
