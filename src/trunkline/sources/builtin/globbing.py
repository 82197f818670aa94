"""Glob: the files whose paths fit a pattern, newest first."""

from __future__ import annotations

from typing import Annotated, Final

from trunkline.config.call_arguments import Arguments, about
from trunkline.sources.builtin.arguments import Hints, definition
from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.searching import MOST_NAMES, PAGE, Offset, Searching, in_words, limit_of
from trunkline.sources.builtin.tool import Job, ToolFault, Workplace, text

_DOC: Final = f"""Finds files by their names and returns their paths, relative to the root folder, the one changed last first.

- `**/*.py` means all Python files at any depth, `src/*.ts` those right in `src`, `*.{{json,yaml}}` either kind. A pattern without a `/` is about file names, at any depth; `./*.py` about those right in the folder.
- Files that `.gitignore` (or `.ignore`) leaves out are left out, and `.git` always is; other hidden files are found. Folders and symbolic links are not listed. To look into an ignored folder, name it as `directory`.
- Up to {MOST_NAMES:,} paths come at once; when there are more, the last line says with which `offset` to go on.
- To search inside files, use Grep. Several searches can run in parallel."""  # noqa: E501


class GlobArguments(Arguments):
    pattern: Annotated[str, about("The pattern that paths must fit: `*`, `**`, `?`, `[ab]`, `{a,b}`", "glob")]
    directory: (
        Annotated[
            str,
            about(
                "The folder to search, relative to the root folder or an absolute path below it; all of it by default",
                *("path", "folder", "dir_path"),
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, limit_of(MOST_NAMES, "paths")] = PAGE
    offset: Offset = 0


class Glob:
    arguments = GlobArguments
    definition = definition("Glob", _DOC, GlobArguments, Hints(title="Find files", reads_only=True, idempotent=True))

    def __init__(self, place: Workplace) -> None:
        self._searching = Searching(place)

    async def run(self, arguments: GlobArguments, job: Job) -> bytes:
        written = arguments.pattern
        pattern = self._searching.below_root(written)
        if ".." in pattern.split("/"):
            raise ToolFault(f"{shown(written)} has a `..` in it: give the folder to search as `directory`")
        start = await self._searching.start("." if pattern != written else arguments.directory, job)
        limit = min(arguments.limit or MOST_NAMES, MOST_NAMES)
        request = {"tool": "Glob", "globs": [pattern], "limit": limit, "offset": arguments.offset}
        found = await self._searching.run(start, request, job)
        none = f"No file fits {shown(written)} in {shown(start.folder or '.')} (ignored files are not looked at)"
        return text(in_words(found, offset=arguments.offset, one="file", many="files", none=none))
