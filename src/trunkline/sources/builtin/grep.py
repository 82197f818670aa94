"""Grep: the files, or the lines, that match a regular expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from trunkline.config.call_arguments import Arguments, about
from trunkline.config.problems import nearest
from trunkline.sources.builtin.arguments import Hints, definition
from trunkline.sources.builtin.file_search import (
    MOST_NAMES,
    PAGE,
    FileSearchTool,
    Offset,
    SearchStart,
    in_words,
    limit_of,
)
from trunkline.sources.builtin.glob_patterns import path_filter, split_patterns
from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.tool import MOST_LINES, Job, ToolFault, text

_FILES, _CONTENT, _COUNT = "files_with_matches", "content", "count"
_MOST_LINES: Final = MOST_LINES - 50  # room for what is said below them
_MOST_CONTEXT: Final = 500

_DOC: Final = f"""Searches inside files for a regular expression (ripgrep's kind: `log.*Error`, `function\\s+\\w+`).

- `output_mode` says what comes back: `{_FILES}` (the default) the paths of the files, the one changed last first; `{_CONTENT}` the lines, as `path:number:line`, lines around them as `path-number-line`; `{_COUNT}` how many lines match in each file, as `path:count`.
- Narrow it with `path` (a folder or one file), `glob` (`*.js`, `src/**`, `!*.test.ts`) or `type` (`py`, `ts`, `go`, …).
- `.` and `[^a]` stay within a line; set `multiline` to true for patterns over several lines. Braces and brackets that mean themselves are escaped: `interface\\{{\\}}`.
- Files that `.gitignore` (or `.ignore`) leaves out, `.git` and binary files are not searched; other hidden files are. Long lines are cut. When there is more than fits, the last line says with which `offset` to go on."""  # noqa: E501


class GrepArguments(Arguments):
    pattern: Annotated[str, about("The regular expression to search for", "regex", "query")]
    path: (
        Annotated[
            str,
            about(
                "A folder or a file, relative to the root folder or an absolute path below it; all of it by default",
                *("directory", "dir_path", "folder"),
            ),
        ]
        | None
    ) = None
    glob: (
        Annotated[
            str,
            about(
                "Only files that fit this pattern (`*.js`, `*.{ts,tsx}`); several with blanks between, `!` excludes",
                *("include", "file_pattern"),
            ),
        ]
        | None
    ) = None
    type: Annotated[str, about("Only files of this type: `py`, `js`, `ts`, `go`, `rust`, `java`, `md`, …")] | None = (
        None
    )
    output_mode: Annotated[
        Literal["files_with_matches", "content", "count"],
        about("Paths of files, matching lines, or counts"),
    ] = _FILES
    context_lines: Annotated[
        int,
        about(
            "How many lines to show before and after each match, with `output_mode` `content`", "-C", "context", ge=0
        ),
    ] = 0
    lines_before: Annotated[int, about("Only before each match", "-B", "before_context", ge=0)] | None = None
    lines_after: Annotated[int, about("Only after each match", "-A", "after_context", ge=0)] | None = None
    ignore_case: Annotated[bool, about("Whether `a` matches `A`", "-i", "case_insensitive")] = False
    line_numbers: Annotated[bool, about("Whether lines come with their numbers", "-n")] = True
    multiline: Annotated[bool, about("Whether `.` matches line ends, and a match may go on")] = False
    limit: Annotated[int, limit_of(_MOST_LINES, "lines or paths")] = PAGE
    offset: Offset = 0


class Grep(FileSearchTool):
    arguments = GrepArguments
    definition = definition("Grep", _DOC, GrepArguments, Hints(title="Search files", reads_only=True, idempotent=True))

    async def run(self, arguments: GrepArguments, job: Job) -> bytes:
        start = await self.start(arguments.path, job, file_too=True)
        globs = [self.below_root(glob) for glob in split_patterns(arguments.glob or "")]
        found = await self.search(start, path_filter(globs), _request(arguments), job)
        if "types" in found:
            raise _no_such_type(arguments.type or "", found["types"])
        one, many = ("line", "lines") if arguments.output_mode == _CONTENT else ("file", "files")
        none = _nothing(arguments, start)
        return text(in_words(found, offset=arguments.offset, one=one, many=many, none=none))


def _request(arguments: GrepArguments) -> dict[str, Any]:
    around = arguments.context_lines
    before, after = arguments.lines_before, arguments.lines_after
    most = _MOST_LINES if arguments.output_mode == _CONTENT else MOST_NAMES
    return {
        "tool": "Grep",
        "pattern": arguments.pattern,
        "output_mode": arguments.output_mode,
        "ignore_case": arguments.ignore_case,
        "multiline": arguments.multiline,
        "offset": arguments.offset,
        "line_numbers": arguments.line_numbers,
        "type": arguments.type or "",
        "before": min(around if before is None else before, _MOST_CONTEXT),
        "after": min(around if after is None else after, _MOST_CONTEXT),
        "limit": min(arguments.limit or most, most),
    }


def _no_such_type(name: str, known: Sequence[str]) -> ToolFault:
    guess = nearest(name, known)
    meant = f": did you mean `{guess}`?" if guess else f" (there are {', '.join(known)})"
    return ToolFault(f"There is no type {quoted(name)}{meant}. Any other files can be named with `glob`")


def _nothing(arguments: GrepArguments, start: SearchStart) -> str:
    where = shown(start.file or start.folder or ".")
    given = {"glob": arguments.glob, "type": arguments.type}
    narrowed = [f"`{name}` {quoted(value)}" for name, value in given.items() if value]
    among = f" among files of {' and '.join(narrowed)}" if narrowed else ""
    ignored = "" if start.file else " (ignored and binary files are not searched)"
    return f"No match for {quoted(arguments.pattern)} in {where}{among}{ignored}"
