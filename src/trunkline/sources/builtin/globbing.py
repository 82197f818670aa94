"""Glob: the files whose paths fit a pattern, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trunkline.sources.builtin.arguments import Hints, Parameter, definition
from trunkline.sources.builtin.file_search import MOST_NAMES, OFFSET, FileSearchTool, in_words, limit_of
from trunkline.sources.builtin.glob_patterns import path_filter
from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.tool import Job, ToolFault, text

_DOC: Final = f"""Finds files by their names and returns their paths, relative to the root folder, the one changed last first.

- `**/*.py` means all Python files at any depth, `src/*.ts` those right in `src`, `*.{{json,yaml}}` either kind. A pattern without a `/` is about file names, at any depth; `./*.py` about those right in the folder.
- Files that `.gitignore` (or `.ignore`) leaves out are left out, and `.git` always is; other hidden files are found. Folders and symbolic links are not listed. To look into an ignored folder, name it as `directory`.
- Up to {MOST_NAMES:,} paths come at once; when there are more, the last line says with which `offset` to go on.
- To search inside files, use Grep. Several searches can run in parallel."""  # noqa: E501


class Glob(FileSearchTool):
    parameters = (
        Parameter(
            name="pattern",
            doc="The pattern that paths must fit: `*`, `**`, `?`, `[ab]`, `{a,b}`",
            required=True,
            also=("glob",),
        ),
        Parameter(
            name="directory",
            doc="The folder to search, relative to the root folder or an absolute path below it; all of it by default",
            also=("path", "folder", "dir_path"),
        ),
        limit_of(MOST_NAMES, "paths"),
        OFFSET,
    )
    definition = definition("Glob", _DOC, parameters, Hints(title="Find files", reads_only=True, idempotent=True))

    async def run(self, arguments: Mapping[str, Any], job: Job) -> bytes:
        written: str = arguments["pattern"]
        pattern = self.below_root(written)
        if ".." in pattern.split("/"):
            raise ToolFault(f"{shown(written)} has a `..` in it: give the folder to search as `directory`")
        start = await self.start("." if pattern != written else arguments["directory"], job)
        limit = min(arguments["limit"] or MOST_NAMES, MOST_NAMES)
        request = {"tool": "Glob", "limit": limit, "offset": arguments["offset"]}
        found = await self.search(start, path_filter([pattern]), request, job)
        none = f"No file fits {shown(written)} in {shown(start.folder or '.')} (ignored files are not looked at)"
        return text(in_words(found, offset=arguments["offset"], one="file", many="files", none=none))
