"""The program behind Glob and Grep: one request on stdin, one answer on stdout, then it ends.

It runs apart from the gateway, which ends it with the call: searching keeps a processor busy and many files open. It
runs without site-packages, so that it starts quickly, and imports only what does not need them.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import signal
import sys

if __name__ == "__main__":  # started by its path: packages without their `__init__`, which imports too much
    _root = __file__.rpartition("/trunkline/sources/")[0]
    sys.path.append(_root)
    for _name in ("trunkline.sources", "trunkline.sources.builtin"):
        sys.modules[_name] = type(sys)(_name)
        sys.modules[_name].__path__ = [f"{_root}/{_name.replace('.', '/')}"]

from trunkline.runtime.rooted_files import RootHandle
from trunkline.sources.builtin.ripgrep import (
    BadPattern,
    Ripgrep,
    RipgrepBroken,
    RootFiles,
    UnknownType,
    refuse_line_ends,
)
from trunkline.sources.builtin.text_length import printable, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    Request = dict[str, Any]

_OPEN_FILES = 1024
_LOOK_AHEAD = 500
_CUT_CHARACTERS = 500
_BEFORE_MATCH = 100


class SearchTimeout(Exception):
    """The time for one search is over."""


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    _raise_file_limit()
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
    try:
        with RootHandle(".", hidden=request["hidden"]) as beneath:
            found = answer(request, beneath)
    except Exception as error:
        import traceback

        found = {"crash": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.buffer.write(json.dumps(found).encode())
    sys.stdout.buffer.flush()
    os._exit(0)  # nothing needs tidying


def _raise_file_limit() -> None:
    """Some systems allow 256 open files by default."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _OPEN_FILES <= hard or (soft < _OPEN_FILES and hard == resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, hard))


def _on_alarm(number: int, frame: object) -> None:
    raise SearchTimeout


def answer(request: Request, beneath: RootHandle) -> dict[str, Any]:
    """The lines of one page with notes; or what is wrong."""
    page = ResultPage(offset=request["offset"], limit=request["limit"], most_characters=request["most_characters"])
    notes: list[str] = []
    files = RootFiles(beneath)
    ripgrep = Ripgrep(request, files)
    try:
        if request["tool"] == "Glob":
            _glob(request, files, ripgrep, page)
        else:
            _grep(request, files, ripgrep, page)
    except BadPattern as problem:
        return {"fault": f"The pattern is not a regular expression: {problem}"}
    except UnknownType:
        return {"types": ripgrep.types()}
    except RipgrepBroken as problem:
        return {"broken": str(problem)}
    except SearchTimeout:
        page.left_is_all = False
        notes.append(f"Stopped after {request['limit_s']:g} s, so there may be more: search a smaller folder")
    return {"lines": page.lines, "left": page.left, "left_is_all": page.left_is_all, "notes": notes}


# -- the two tools -----------------------------------------------------------------------------------------------------


def _glob(request: Request, files: RootFiles, ripgrep: Ripgrep, page: ResultPage) -> None:
    """The files whose paths fit, the one changed last first."""
    found = files.ages(_fitting(ripgrep.files(), request))
    first = heapq.nsmallest(page.wanted, found)  # quicker than to sort very many
    for _, path in first:
        page.add(printable(path))
    page.left += len(found) - len(first)


def _grep(request: Request, files: RootFiles, ripgrep: Ripgrep, page: ResultPage) -> None:
    if not re.fullmatch(r"\w{0,64}", request["type"]):
        raise UnknownType
    if not request["multiline"]:
        refuse_line_ends(request["pattern"])
    # a file given by its name is searched, whatever rules and globs say
    paths = [request["file"]] if request["file"] else _fitting(ripgrep.candidates(), request)
    if request["output_mode"] == "files_with_matches":
        newest = [path for _, path in sorted(files.ages(paths))]
        page.fill(printable(path) for path in ripgrep.matching(newest))
    elif request["output_mode"] == "count":
        page.fill(f"{printable(path)}:{count}" for path, count in ripgrep.counts(sorted(paths)))
    else:
        page.fill(_content(ripgrep, sorted(paths), request))


def _fitting(paths: Sequence[str], request: Request) -> list[str]:
    """The paths that fit the globs, which may be relative to the folder searched or to the root."""
    skip = len(request["folder"]) + 1 if request["folder"] else 0
    found = list(paths)
    for regex, fitting in ((request["wanted"], True), (request["unwanted"], False)):
        if regex:
            fits = re.compile(regex, re.DOTALL).fullmatch
            found = [path for path in found if bool(fits(path) or (skip and fits(path[skip:]))) is fitting]
    return found


def _content(ripgrep: Ripgrep, paths: Sequence[str], request: Request) -> Iterator[str]:
    before, after = request["before"], request["after"]
    last: tuple[str, int] | None = None
    for path, number, line, at in ripgrep.lines(paths, before, after):
        if (before or after) and last is not None and last != (path, number - 1):
            yield "--"
        last = path, number
        mark = "-" if at < 0 else ":"
        shown_number = f"{number}{mark}" if request["line_numbers"] else ""
        yield f"{printable(path)}{mark}{shown_number}{cut(line, at)}"


class ResultPage:
    """One page of a long result: the lines asked for, as far as they fit, and the number of those left."""

    def __init__(self, *, offset: int, limit: int, most_characters: int) -> None:
        self.lines: list[str] = []
        self.left = 0
        self.left_is_all = True
        self.wanted = offset + limit
        self._skip = offset
        self._limit = limit
        self._characters = most_characters

    def fill(self, lines: Iterable[str]) -> None:
        """Add lines until the page is full and enough of those left are counted."""
        for line in lines:
            self.add(line)
            if self.left >= _LOOK_AHEAD:
                self.left_is_all = False
                return

    def add(self, line: str) -> None:
        if self._skip:
            self._skip -= 1
        elif self.left or len(self.lines) >= self._limit or units(line) + 1 > self._characters:
            self.left += 1
        else:
            self._characters -= units(line) + 1
            self.lines.append(line)


def cut(line: str, match_at: int) -> str:
    """A part of the line that is short enough to show, around the match."""
    if len(line) <= _CUT_CHARACTERS:
        return line
    start = 0 if match_at < _CUT_CHARACTERS - _BEFORE_MATCH else match_at - _BEFORE_MATCH
    end = start + _CUT_CHARACTERS
    left_out = f"[line of {len(line):,} characters, cut]"
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''} {left_out}"


if __name__ == "__main__":
    main()
