"""Ignore rules as git understands them: `.gitignore` and its relatives, from the folder they stand in downwards.

A rule of a deeper folder counts more than one above it, and within a file the last that matches counts. `.rgignore`
and `.ignore` count more than `.gitignore`, and that more than `.git/info/exclude`, as in ripgrep. The git rules of a
folder end where another repository begins.
"""

from __future__ import annotations

import re

from trunkline.sources.builtin.search.globs import GlobProblem, translate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

IGNORE_FILES = (".rgignore", ".ignore", ".gitignore")  # what counts most comes first
EXCLUDE_FILE = ".git/info/exclude"
NEVER_SHOWN = frozenset((".git", ".hg", ".svn", ".bzr", ".jj", ".sl"))
"""Folders (or files) of version control systems: not one of them is ever searched."""

_FILE_BYTES = 1 << 20
_ANY_DEPTH = "(?:.*/)?"


class Rule:
    __slots__ = ("anchored", "folders_only", "matches", "negated", "regex", "text")

    def __init__(self, text: str, body: str, *, negated: bool) -> None:
        self.text = text
        self.negated = negated
        self.folders_only = body.endswith("/")
        path = body.removesuffix("/")
        self.anchored = "/" in path
        regex = translate(path.removeprefix("/"), braces=False)
        self.regex = regex if self.anchored else _ANY_DEPTH + regex
        self.matches = re.compile(self.regex, re.DOTALL).fullmatch


class Rules:
    """The rules of one file, asked about paths from the folder of that file."""

    def __init__(self, text: str) -> None:
        self.rules = [rule for line in text.split("\n") if (rule := _parse(line)) is not None]
        # Most paths fit no rule at all: one look at all rules together says so.
        together = "|".join(f"(?:{rule.regex})" for rule in self.rules)
        self._any = re.compile(together, re.DOTALL).fullmatch if self.rules else None

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """True for ignored, False for wanted all the same, None when no rule is about this path."""
        if self._any is None or self._any(path) is None:
            return None
        for rule in reversed(self.rules):
            if (is_folder or not rule.folders_only) and rule.matches(path):
                return not rule.negated
        return None


def _parse(line: str) -> Rule | None:
    text = _without_trailing_blanks(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    body = text.removeprefix("!")
    if body in ("", "/"):
        return None
    try:
        return Rule(text, body, negated=text.startswith("!"))
    except GlobProblem:
        return None  # git takes such a line for one that matches nothing


def _without_trailing_blanks(line: str) -> str:
    end = len(line)
    while end and line[end - 1] == " " and line[end - 2 : end - 1] != "\\":
        end -= 1
    return line[:end]


class Level:
    """What one folder says about what is below it."""

    __slots__ = ("by_file", "exclude", "folder", "is_repository")

    def __init__(self, folder: str, by_file: list[Rules | None], exclude: Rules | None, *, is_repository: bool) -> None:
        self.folder = folder  # from the root, with a `/` at its end; empty for the root itself
        self.by_file = by_file
        self.exclude = exclude
        self.is_repository = is_repository

    @property
    def empty(self) -> bool:
        return self.exclude is None and not self.is_repository and not any(self.by_file)


class Ignores:
    """The rules that hold in one folder: its own and those from above. `levels` begins with the deepest folder."""

    def __init__(self, levels: tuple[Level, ...] = ()) -> None:
        self.levels = levels
        self._in_order = [(len(folder), rules) for folder, rules in _in_order(levels) if rules is not None]

    def below(self, level: Level) -> Ignores:
        return self if level.empty else Ignores((level, *self.levels))

    def ignored(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path (from the root) is ignored. Its folders were asked about before."""
        for skip, rules in self._in_order:
            said = rules.verdict(path[skip:], is_folder=is_folder)
            if said is not None:
                return said
        return False


def _in_order(levels: Sequence[Level]) -> Iterable[tuple[str, Rules | None]]:
    """What counts most comes first: kind of file by kind of file, in each of them folder by folder upwards."""
    of_git = list(_up_to_repository(levels))
    for index, name in enumerate(IGNORE_FILES):
        for level in of_git if name == ".gitignore" else levels:
            yield level.folder, level.by_file[index]
    for level in of_git:
        yield level.folder, level.exclude


def _up_to_repository(levels: Sequence[Level]) -> Iterable[Level]:
    for level in levels:
        yield level
        if level.is_repository:
            return


def read_level(folder: str, names: Iterable[str], read: Callable[[str], bytes | None]) -> Level:
    """The rules of one folder (from the root). `names` are in it; `read` gives the bytes of one, or None."""
    present = frozenset(names)
    by_file = [_read_rules(name, read) if name in present else None for name in IGNORE_FILES]
    is_repository = ".git" in present
    exclude = _read_rules(EXCLUDE_FILE, read) if is_repository else None
    return Level(f"{folder}/" if folder else "", by_file, exclude, is_repository=is_repository)


def _read_rules(name: str, read: Callable[[str], bytes | None]) -> Rules | None:
    data = read(name)
    if data is None:
        return None
    rules = Rules(data[:_FILE_BYTES].decode("utf-8-sig", "surrogateescape"))
    return rules if rules.rules else None
