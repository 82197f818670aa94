"""Globs as regular expressions: `*`, `**`, `?`, `[ab]`, `{a,b}` and `\\` to escape, on paths with `/`."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NAMED_CLASS = re.compile(r"\[:([a-z]+):\]")
_MAX_DEPTH = 10
_ANYTHING = re.compile(".*", re.DOTALL)
_PLAIN_NAME = re.compile(r"[\w.*?{},+@ !\^\[\]-]+")
_EMPTY_CHOICE = re.compile(r"\{[,}]|,[,}]|\[:")
_SEPARATORS = " ,\t\n"


class GlobProblem(ValueError):
    """A pattern that means nothing; the text says why."""


class _Translator:
    """One pass over a pattern. `braces` says whether `{a,b}` is a choice or just these characters."""

    def __init__(self, pattern: str, *, braces: bool) -> None:
        self._pattern = pattern
        self._braces = braces
        self._at = 0
        self._depth = 0

    def run(self) -> str:
        return self._sequence(at_start=True)

    def _sequence(self, *, at_start: bool) -> str:
        """Up to the end of the pattern, or of the alternative inside braces."""
        out: list[str] = []
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if self._depth and char in ",}":
                break
            out.append(self._one(char, at_start=at_start))
            at_start = self._pattern[self._at - 1] == "/"
        return "".join(out)

    def _one(self, char: str, *, at_start: bool) -> str:
        if char == "*":
            return self._stars(at_start=at_start)
        self._at += 1
        if char == "?":
            return "[^/]"
        if char == "[":
            return self._bracket()
        if char == "{" and self._braces:
            return self._choice(at_start=at_start)
        if char == "\\":
            return self._escaped()
        return re.escape(char)

    def _stars(self, *, at_start: bool) -> str:
        begin = self._at
        while self._pattern[self._at : self._at + 1] == "*":
            self._at += 1
        if self._at - begin == 2 and at_start:
            rest = self._pattern[self._at : self._at + 1]
            if rest == "/":
                self._at += 1
                return "(?:[^/]+/)*"
            if not rest or (self._depth and rest in ",}"):
                return ".+"
        return "[^/]*"

    def _escaped(self) -> str:
        if self._at >= len(self._pattern):
            raise GlobProblem("it ends in a backslash that escapes nothing")
        self._at += 1
        return re.escape(self._pattern[self._at - 1])

    def _choice(self, *, at_start: bool) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise GlobProblem(f"braces are nested more than {_MAX_DEPTH} deep")
        alternatives = [self._sequence(at_start=at_start)]
        while self._pattern[self._at : self._at + 1] == ",":
            self._at += 1
            alternatives.append(self._sequence(at_start=at_start))
        if self._at >= len(self._pattern):
            raise GlobProblem("a `{` is never closed")
        self._at += 1
        self._depth -= 1
        return f"(?:{'|'.join(alternatives)})"

    def _bracket(self) -> str:
        """A set of characters; a `]` right at its beginning is one of them. No set matches `/`."""
        negated = self._pattern[self._at : self._at + 1] in ("!", "^")
        self._at += negated
        out: list[str] = []
        first = True
        while first or self._pattern[self._at : self._at + 1] != "]":
            first = False
            out.append(self._member())
        self._at += 1
        return f"(?!/)[{'^' if negated else ''}{''.join(out)}]"

    def _member(self) -> str:
        """One character, a range or a named class."""
        named = _NAMED_CLASS.match(self._pattern, self._at)
        if named is not None:
            self._at = named.end()
            if named[1] not in CLASSES:
                raise GlobProblem(f"`{named[0]}` is not a class of characters")
            return CLASSES[named[1]]
        low = self._member_char()
        if self._pattern[self._at : self._at + 1] == "-" and self._pattern[self._at + 1 : self._at + 2] not in (
            "]",
            "",
        ):
            self._at += 1
            high = self._member_char()
            if low > high:
                raise GlobProblem(f"the range `{low}-{high}` is the wrong way round")
            return f"{_in_set(low)}-{_in_set(high)}"
        return _in_set(low)

    def _member_char(self) -> str:
        if self._pattern[self._at : self._at + 1] == "\\":
            self._at += 1
        if self._at >= len(self._pattern):
            raise GlobProblem("a `[` is never closed")
        self._at += 1
        return self._pattern[self._at - 1]


def _in_set(char: str) -> str:
    return "\\" + char if char in "\\]^-[&~|" else char


def translate(pattern: str, *, braces: bool = True) -> str:
    """A regular expression for the whole of a path. Raises `GlobProblem`."""
    return _Translator(pattern, braces=braces).run()


class Glob:
    """One pattern. Without a `/` it is about names, at any depth; with one, about paths from the folder searched."""

    def __init__(self, pattern: str) -> None:
        self._path = pattern.removeprefix("./").removeprefix("/")
        if not self._path:
            raise GlobProblem("it is empty")
        if self._path.endswith("/"):
            self._path += "**"
        self.regex = translate(self._path) if "/" in pattern else f"(?:.*/)?{translate(self._path)}"
        self.matches = re.compile(self.regex, re.DOTALL).fullmatch

    @property
    def name_part(self) -> str | None:
        """A glob that every matching file's own name fits; None when there is none that any dialect understands."""
        name = self._path.rpartition("/")[2]
        plain = _PLAIN_NAME.fullmatch(name) and "**" not in name and not _EMPTY_CHOICE.search(name)
        return name if plain and name.count("{") == name.count("}") else None


class Globs:
    """Several patterns: one of the plain ones must match, none of those that begin with `!` may."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.wanted = [Glob(pattern) for pattern in patterns if not pattern.startswith("!")]
        self._unwanted = _any([Glob(pattern[1:]) for pattern in patterns if pattern.startswith("!")])
        self._wanted = _any(self.wanted) or _ANYTHING.fullmatch

    def select(self, paths: Iterable[str]) -> list[str]:
        found = list(filter(self._wanted, paths))  # the quick way: there may be very many
        return found if self._unwanted is None else [path for path in found if not self._unwanted(path)]

    def matches(self, path: str) -> bool:
        return bool(self.select([path]))


def _any(globs: Sequence[Glob]) -> Callable[[str], object] | None:
    if not globs:
        return None
    return re.compile("|".join(f"(?:{glob.regex})" for glob in globs), re.DOTALL).fullmatch


def split_globs(text: str) -> list[str]:
    """The patterns of a list written with blanks or commas; those inside braces belong to their pattern."""
    found: list[str] = []
    current, depth = "", 0
    for char in text:
        if char in _SEPARATORS and depth == 0:
            found.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}" and depth > 0)
        current += char
    return [pattern for pattern in [*found, current] if pattern]
