"""The two ways to look into files, behind one face: ripgrep, and our own for where there is none."""

from __future__ import annotations

import contextlib
import os

from trunkline.sources.builtin.search.dialect import BadPattern, compile_pattern
from trunkline.sources.builtin.search.lines import LARGEST_BYTES, LOOKED_AT_BYTES, Lines, is_binary, read_text
from trunkline.sources.builtin.search.ripgrep import Ripgrep, RipgrepRefused, Search
from trunkline.sources.builtin.search.walk import walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import Protocol

    from trunkline.sources.builtin.search.tree import Tree

    Found = tuple[str, int, str, int]  # path, line number, line, where its match begins (-1: a line around one)

    class Engine(Protocol):
        too_large: list[str]

        def check(self) -> None:
            """Raises `BadPattern` for a pattern that nothing can be found with."""
            ...

        def candidates(self, start: str, names: Sequence[str]) -> list[str]:
            """Paths of files that may match; `names` are globs one of which each file's name fits, none for any."""
            ...

        def matching(self, paths: Sequence[str]) -> Iterator[str]: ...
        def counts(self, paths: Sequence[str]) -> Iterator[tuple[str, int]]: ...
        def lines(self, paths: Sequence[str], before: int, after: int) -> Iterator[Found]: ...


_BATCH = 300  # open files at a time: systems allow a process 1,024, or can be asked to
_HINT_BYTES = 4096  # a pipe holds at least as much


class OwnEngine:
    def __init__(self, tree: Tree, pattern: str, *, ignore_case: bool, multiline: bool) -> None:
        self.too_large: list[str] = []
        self._tree = tree
        self._multiline = multiline
        self._pattern = compile_pattern(pattern, ignore_case=ignore_case, multiline=multiline)

    def check(self) -> None:
        """It was compiled already."""

    def candidates(self, start: str, names: Sequence[str]) -> list[str]:
        return list(walk(self._tree, start))

    def matching(self, paths: Sequence[str]) -> Iterator[str]:
        return (path for path, lines in self._texts(paths) if lines.any())

    def counts(self, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
        return ((path, count) for path, lines in self._texts(paths) if (count := lines.count()))

    def lines(self, paths: Sequence[str], before: int, after: int) -> Iterator[Found]:
        for path, lines in self._texts(paths):
            for number, line, at in lines.shown(before, after):
                yield path, number, line, at

    def _texts(self, paths: Sequence[str]) -> Iterator[tuple[str, Lines]]:
        for path in paths:
            text = self._read(path)
            if text is not None:
                yield path, Lines(text, self._pattern, multiline=self._multiline)

    def _read(self, path: str) -> str | None:
        fd = self._tree.open_file(path, follow=True)
        if fd is None:
            return None
        try:
            if os.fstat(fd).st_size > LARGEST_BYTES:
                self.too_large.append(path)
                return None
            return read_text(fd)
        except OSError:
            return None
        finally:
            os.close(fd)


class RipgrepEngine:
    def __init__(self, tree: Tree, ripgrep: Ripgrep, search: Search) -> None:
        self.too_large: list[str] = []
        self._tree = tree
        self._ripgrep = ripgrep
        self._search = search

    def check(self) -> None:
        with self._in_our_words():
            self._ripgrep.check(self._search)

    def candidates(self, start: str, names: Sequence[str]) -> list[str]:
        with self._in_our_words():
            found = self._ripgrep.candidates(self._search, names, hint_from_above(self._tree, start))
        return wanted(self._tree, start, found)

    def matching(self, paths: Sequence[str]) -> Iterator[str]:
        for opened in self._batches(paths):
            for fd in self._ripgrep.matching(self._search, list(opened)):
                yield opened[fd]

    def counts(self, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
        for opened in self._batches(paths):
            for fd, count in self._ripgrep.counts(self._search, list(opened)):
                yield opened[fd], count

    def lines(self, paths: Sequence[str], before: int, after: int) -> Iterator[Found]:
        for opened in self._batches(paths):
            for fd, number, line, at in self._ripgrep.lines(self._search, list(opened), before, after):
                yield opened[fd], number, line, at

    @contextlib.contextmanager
    def _in_our_words(self) -> Generator[None]:
        try:
            yield
        except RipgrepRefused as refused:
            raise BadPattern(f"The pattern is not a regular expression: {refused}") from None

    def _batches(self, paths: Sequence[str]) -> Iterator[dict[int, str]]:
        """Open text files by their handles, a few at a time; they are closed when the next are asked for."""
        for begin in range(0, len(paths), _BATCH):
            opened: dict[int, str] = {}
            try:
                for path in paths[begin : begin + _BATCH]:
                    fd = self._tree.open_file(path, follow=True)
                    if fd is not None:
                        opened[fd] = path
                _drop_binary(opened)
                if opened:
                    yield opened
            finally:
                for fd in opened:
                    os.close(fd)


def _drop_binary(opened: dict[int, str]) -> None:
    for fd in list(opened):
        try:
            binary = is_binary(os.pread(fd, LOOKED_AT_BYTES, 0))
        except OSError:
            binary = True
        if binary:
            os.close(fd)
            del opened[fd]


def wanted(tree: Tree, start: str, found: Sequence[str]) -> list[str]:
    """What ripgrep found below `start`, as paths from the root, without what the rules above `start` leave out."""
    prefix = f"{start}/" if start else ""
    paths = [prefix + path for path in found]
    above = tree.ignores_above(start)
    if not above.levels:
        return paths
    folders: dict[str, bool] = {start: False}

    def touched(path: str, *, is_folder: bool) -> bool:
        """Whether those rules alone leave it out: only then rules further down, which may take it back, are read."""
        folder = path.rpartition("/")[0]
        if folder not in folders:
            folders[folder] = touched(folder, is_folder=True)
        return folders[folder] or above.ignored(path, is_folder=is_folder)

    return [path for path in paths if not (touched(path, is_folder=False) and tree.is_ignored(path, start))]


def hint_from_above(tree: Tree, start: str) -> str:
    """Rules of folders above the one searched that ripgrep can use as they are: it need not walk what they leave out.

    Only a hint: what it does not say is left out later. A rule that takes another one back makes all of it unsafe.
    """
    rules = [
        rule
        for level in reversed(tree.ignores_above(start).levels)
        for file in (level.exclude, *reversed(level.by_file))
        if file is not None
        for rule in file.rules
    ]
    if any(rule.negated for rule in rules):
        return ""
    lines = "".join(f"{rule.text}\n" for rule in rules if not rule.anchored and "{" not in rule.text)
    return lines if len(lines.encode("utf-8", "surrogateescape")) <= _HINT_BYTES else ""
