"""Grep: the files, or the lines, that match a regular expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trunkline.config.suggest import nearest
from trunkline.sources.builtin.arguments import Hints, Parameter, definition
from trunkline.sources.builtin.file_search import MOST_NAMES, OFFSET, FileSearchTool, SearchStart, in_words, limit_of
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


class Grep(FileSearchTool):
    parameters = (
        Parameter(name="pattern", doc="The regular expression to search for", required=True, also=("regex", "query")),
        Parameter(
            name="path",
            doc="A folder or a file, relative to the root folder or an absolute path below it; all of it by default",
            also=("directory", "dir_path", "folder"),
        ),
        Parameter(
            name="glob",
            doc="Only files that fit this pattern (`*.js`, `*.{ts,tsx}`); several with blanks between, `!` excludes",
            also=("include", "file_pattern"),
        ),
        Parameter(name="type", doc="Only files of this type: `py`, `js`, `ts`, `go`, `rust`, `java`, `md`, …"),
        Parameter(
            name="output_mode",
            doc="Paths of files, matching lines, or counts",
            default=_FILES,
            choices=(_FILES, _CONTENT, _COUNT),
        ),
        Parameter(
            name="context_lines",
            kind="integer",
            minimum=0,
            default=0,
            doc="How many lines to show before and after each match, with `output_mode` `content`",
            also=("-C", "context"),
        ),
        Parameter(
            name="lines_before", kind="integer", minimum=0, doc="Only before each match", also=("-B", "before_context")
        ),
        Parameter(
            name="lines_after", kind="integer", minimum=0, doc="Only after each match", also=("-A", "after_context")
        ),
        Parameter(
            name="ignore_case",
            kind="boolean",
            default=False,
            doc="Whether `a` matches `A`",
            also=("-i", "case_insensitive"),
        ),
        Parameter(
            name="line_numbers",
            kind="boolean",
            default=True,
            doc="Whether lines come with their numbers",
            also=("-n",),
        ),
        Parameter(
            name="multiline", kind="boolean", default=False, doc="Whether `.` matches line ends, and a match may go on"
        ),
        limit_of(_MOST_LINES, "lines or paths"),
        OFFSET,
    )
    definition = definition("Grep", _DOC, parameters, Hints(title="Search files", reads_only=True, idempotent=True))

    async def run(self, arguments: Mapping[str, Any], job: Job) -> bytes:
        start = await self.start(arguments["path"], job, file_too=True)
        globs = [self.below_root(glob) for glob in split_patterns(arguments["glob"] or "")]
        found = await self.search(start, path_filter(globs), _request(arguments), job)
        if "types" in found:
            raise _no_such_type(arguments["type"], found["types"])
        one, many = ("line", "lines") if arguments["output_mode"] == _CONTENT else ("file", "files")
        none = _nothing(arguments, start)
        return text(in_words(found, offset=arguments["offset"], one=one, many=many, none=none))


def _request(arguments: Mapping[str, Any]) -> dict[str, Any]:
    around: int = arguments["context_lines"]
    before, after = arguments["lines_before"], arguments["lines_after"]
    most = _MOST_LINES if arguments["output_mode"] == _CONTENT else MOST_NAMES
    return {
        "tool": "Grep",
        **{name: arguments[name] for name in ("pattern", "output_mode", "ignore_case", "multiline", "offset")},
        "line_numbers": arguments["line_numbers"],
        "type": arguments["type"] or "",
        "before": min(around if before is None else before, _MOST_CONTEXT),
        "after": min(around if after is None else after, _MOST_CONTEXT),
        "limit": min(arguments["limit"] or most, most),
    }


def _no_such_type(name: str, known: Sequence[str]) -> ToolFault:
    guess = nearest(name, known)
    meant = f": did you mean `{guess}`?" if guess else f" (there are {', '.join(known)})"
    return ToolFault(f"There is no type {shown(name)}{meant}. Any other files can be named with `glob`")


def _nothing(arguments: Mapping[str, Any], start: SearchStart) -> str:
    where = shown(start.file or start.folder or ".")
    narrowed = [f"`{name}` {shown(arguments[name])}" for name in ("glob", "type") if arguments[name]]
    among = f" among files of {' and '.join(narrowed)}" if narrowed else ""
    ignored = "" if start.file else " (ignored and binary files are not searched)"
    return f"No match for {shown(arguments['pattern'])} in {where}{among}{ignored}"
