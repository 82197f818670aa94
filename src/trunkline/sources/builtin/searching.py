"""What Glob and Grep share: where a search begins, who carries it out, and how a page of its results reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from trunkline.config.call_arguments import about
from trunkline.links.environment import child_environment
from trunkline.links.search.asking import Searches, SearchFailed
from trunkline.sources.builtin.programs import find_program
from trunkline.sources.builtin.root import Root, shown
from trunkline.sources.builtin.tool import MOST_CHARACTERS, Job, ToolFault, Workplace

PAGE: Final = 250
MOST_NAMES: Final = 1_000
_LONGEST_PATTERN: Final = 4_000  # bytes: the worker hands it on through a pipe
_NOTES: Final = 1_000  # characters kept free for what is said below the lines

Offset = Annotated[int, about("How many results to skip: the way to the next page", ge=0)]


def limit_of(most: int, what: str) -> Meta:
    """For an argument with the default `PAGE`."""
    doc = f"How many {what} to return; 0 for as many as fit, at most {most:,}"
    return about(doc, "head_limit", "max_results", ge=0)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search begins: a folder, from the root, empty for the root itself; or one file."""

    folder: str
    file: str
    ripgrep: str | None


class Searching:
    def __init__(self, place: Workplace) -> None:
        env = child_environment(place.parts.environ, extra={}, inherit=())
        self._root = place.root
        self._path = env.get("PATH", os.defpath)
        self._searches = Searches(place.parts.children, env, label=place.source)

    async def start(self, path: str | None, job: Job, *, file_too: bool = False) -> Start:
        """Raises ToolFault for what is no place to search in."""
        return await job.in_thread(self._start, path or ".", file_too)

    def _start(self, path: str, file_too: bool) -> Start:
        is_file = file_too and _is_file(self._root, path)
        if not is_file:
            os.close(self._root.open_folder(path))
        name = self._root.name_of(path)
        name = "" if name == "." else name
        ripgrep = find_program("rg", self._path, self._root.path)
        return Start("", name, ripgrep) if is_file else Start(name, "", ripgrep)

    def below_root(self, pattern: str) -> str:
        """A glob that begins with the root's own path, from the root; any other as it is. Raises ToolFault."""
        if not pattern.startswith("/") or pattern.count("/") == 1:
            return pattern
        for root in {self._root.path, os.path.realpath(self._root.path)}:
            if pattern.startswith(root.rstrip("/") + "/"):
                return pattern[len(root.rstrip("/")) :]
        raise ToolFault(f"{shown(pattern)} is outside the root folder `{self._root.path}`: write it from there")

    async def run(self, start: Start, request: Mapping[str, Any], job: Job) -> dict[str, Any]:
        """One page from the worker: `lines`, `left`, `left_is_all`, `notes`. Raises ToolFault."""
        for name in ("pattern", "globs"):
            if len(os.fsencode("".join(request.get(name) or ""))) > _LONGEST_PATTERN:
                raise ToolFault(f"The pattern is longer than {_LONGEST_PATTERN:,} bytes")
        whole = {
            **request,
            "folder": start.folder,
            "file": start.file,
            "ripgrep": start.ripgrep,
            "whole_disk": self._root.path == "/",
            "hidden": await job.in_thread(self._root.own.hidden),
            "most_characters": MOST_CHARACTERS - _NOTES,
        }
        try:
            found = await self._searches.ask(self._root.path, whole)
        except SearchFailed as failed:
            raise ToolFault(f"{failed}. Search a smaller folder, or for something simpler") from None
        if "fault" in found:
            raise ToolFault(found["fault"])
        if "crash" in found:
            raise RuntimeError(found["crash"])
        return found


def _is_file(root: Root, path: str) -> bool:
    """Whether a path leads to a file. Raises ToolFault when it leads to neither a file nor a folder."""
    try:
        os.close(root.open_folder(path))
    except ToolFault:
        os.close(root.open_file(path))
        return True
    return False


def in_words(found: Mapping[str, Any], *, offset: int, one: str, many: str, none: str) -> str:
    """The lines of a page, and below them what is left and how to get there."""
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
