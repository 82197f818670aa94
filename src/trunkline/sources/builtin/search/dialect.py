"""ripgrep's regular expressions for Python's `re`: the same pattern finds the same with either.

What the two write differently is rewritten here. What cannot be said in Python's way is refused, with its place.
"""

from __future__ import annotations

import re
import sys
import unicodedata

from trunkline.sources.builtin.search.globs import CLASSES

_LONGEST_SHOWN = 200
_GROUP_NAME = re.compile(r"\(\?<(?=[A-Za-z_])")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_CODE_POINT = re.compile(r"\\[xuU]\{([0-9A-Fa-f]{1,8})\}")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)([A-Za-z_]+)\}|([A-Z]))")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_BOUNDARY = re.compile(r"\\b\{(start|end)\}")
_WORD_START, _WORD_END = r"\b(?=\w)", r"\b(?<=\w)"
_LONG_NAMES = {
    "letter": "L",
    "alphabetic": "L",
    "uppercase": "Lu",
    "lowercase": "Ll",
    "number": "N",
    "punctuation": "P",
}
_LINE_END = re.compile(r"\\n|\n")
_NO_LINE_END = re.compile(r"\\[^n]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\n]", re.DOTALL)  # a set may well hold one
_OUR_FLAGS = frozenset("imsx")


class BadPattern(ValueError):
    """A pattern that cannot be used; the text shows where."""


def bad_pattern(pattern: str, what: str, at: int | None) -> BadPattern:
    if at is None:
        return BadPattern(f"The pattern is not a regular expression: {what}")
    start = max(0, at - _LONGEST_SHOWN // 2)
    shown = pattern[start : start + _LONGEST_SHOWN].replace("\n", " ")
    return BadPattern(f"The pattern is not a regular expression: {what}\n    {shown}\n    {' ' * (at - start)}^")


def refuse_line_ends(pattern: str) -> None:
    """A line does not hold its own end: a pattern that wants one finds nothing. Raises `BadPattern`."""
    at = 0
    while at < len(pattern):
        if _LINE_END.match(pattern, at):
            what = "a line does not hold its own end: set `multiline` to true to match over several lines"
            raise bad_pattern(pattern, what, at)
        step = _NO_LINE_END.match(pattern, at)
        at = step.end() if step else at + 1


def compile_pattern(pattern: str, *, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    """For `search` in one line, or with `multiline` in a whole text. Raises `BadPattern`."""
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0) | (re.DOTALL if multiline else 0)
    try:
        return re.compile(_Rewriter(pattern).run(), flags)
    except re.error as error:
        # The place is one of the rewritten pattern, and only sure where nothing was rewritten.
        at = error.pos if error.pattern == pattern else None
        raise bad_pattern(pattern, error.msg, at) from None
    except (RecursionError, OverflowError):
        raise bad_pattern(pattern, "it is too large or nested too deeply", None) from None


class _Rewriter:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        self._scopes: list[list[str]] = [[]]
        """For each open group, the flags that hold until it ends: Python wants those in groups of their own."""

    def run(self) -> str:
        while self._at < len(self._pattern):
            self._out.append(self._next())
        return "".join(self._out) + ")" * len(self._scopes[-1])

    def _next(self) -> str:
        char = self._pattern[self._at]
        if char == "\\":
            return self._escape()
        if char == "[":
            return self._set()
        if char == "(":
            return self._open()
        self._at += 1
        if char == ")":
            closed = self._scopes.pop() if len(self._scopes) > 1 else []
            return ")" * (len(closed) + 1)
        if char == "|":
            flags = self._scopes[-1]
            return ")" * len(flags) + "|" + "".join(flags)
        return char

    def _open(self) -> str:
        named = _GROUP_NAME.match(self._pattern, self._at)
        if named is not None:
            self._at = named.end()
            self._scopes.append([])
            return "(?P<"
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is not None and (flags[1] or flags[2] or flags[3] == ")"):
            return self._flags(flags)
        self._at += 1
        self._scopes.append([])
        return "("

    def _flags(self, flags: re.Match[str]) -> str:
        """`(?i)` holds until the group ends, `(?i:…)` is a group."""
        on, off = set(flags[1]) - {"u"}, set(flags[2] or "")
        unknown = (on | off) - _OUR_FLAGS
        if unknown:
            raise bad_pattern(self._pattern, f"the flag `{min(unknown)}` needs ripgrep", flags.start())
        self._at = flags.end()
        group = f"(?{''.join(sorted(on))}{'-' + ''.join(sorted(off)) if off else ''}:"
        if flags[3] == ":":
            self._scopes.append([])
        else:
            self._scopes[-1].append(group)
        return group

    def _escape(self) -> str:
        found = _CODE_POINT.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
            return re.escape(self._char(found))
        found = _BOUNDARY.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
            return _WORD_START if found[1] == "start" else _WORD_END
        found = _PROPERTY.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
            return f"[{self._property(found)}]"
        escape = self._pattern[self._at : self._at + 2]
        self._at += 2
        return {"\\z": "\\Z", "\\<": _WORD_START, "\\>": _WORD_END}.get(escape, escape)

    def _set(self) -> str:
        """`[…]`: other names for classes inside, and a `[` that Python would warn of."""
        start = self._at
        self._at += 1
        out = ["["]
        if self._pattern.startswith("^", self._at):
            out.append("^")
            self._at += 1
        if self._pattern.startswith("]", self._at):
            out.append("\\]")
            self._at += 1
        while not self._pattern.startswith("]", self._at):
            if self._at >= len(self._pattern):
                raise bad_pattern(self._pattern, "a set of characters is never closed", start)
            out.append(self._set_member())
        self._at += 1
        return "".join([*out, "]"])

    def _set_member(self) -> str:
        named = _POSIX.match(self._pattern, self._at)
        if named is not None and named[2] in CLASSES and not named[1]:
            self._at = named.end()
            return CLASSES[named[2]]
        if self._pattern.startswith("[", self._at):
            raise bad_pattern(
                self._pattern, "a set inside a set needs ripgrep (write `\\[` for the character)", self._at
            )
        if self._pattern[self._at : self._at + 2] in ("&&", "--", "~~"):
            raise bad_pattern(self._pattern, "combining sets needs ripgrep", self._at)
        if self._pattern[self._at] != "\\":
            self._at += 1
            return self._pattern[self._at - 1]
        return self._set_escape()

    def _set_escape(self) -> str:
        found = _CODE_POINT.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
            return f"\\U{ord(self._char(found)):08x}"
        found = _PROPERTY.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
            return self._property(found)
        self._at += 2
        return self._pattern[self._at - 2 : self._at]

    def _char(self, found: re.Match[str]) -> str:
        number = int(found[1], 16)
        if number > sys.maxunicode:
            raise bad_pattern(self._pattern, "there is no such character", found.start())
        return chr(number)

    def _property(self, found: re.Match[str]) -> str:
        name = found[3] or found[4]
        category = _LONG_NAMES.get(name.lower(), name)
        ranges = _category(category, outside=(found[1] == "P") != bool(found[2]))
        if len(category) > 2 or not ranges:
            raise bad_pattern(self._pattern, f"the class `{found[0]}` needs ripgrep", found.start())
        return ranges


def _category(category: str, *, outside: bool) -> str:
    """The characters of a Unicode category as ranges; empty for a category that there is not."""
    ranges: list[str] = []
    start = -1
    found = False
    for number in range(sys.maxunicode + 2):
        inside = number <= sys.maxunicode and unicodedata.category(chr(number)).startswith(category)
        found = found or inside
        wanted = number <= sys.maxunicode and inside != outside
        if wanted and start < 0:
            start = number
        elif not wanted and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{number - 1:08x}")
            start = -1
    return "".join(ranges) if found else ""
