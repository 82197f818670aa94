"""The option `guard.path_traversal` of a source: calls with path traversal are refused (docs/sources/service.md).

The guard reads the bytes that are sent, string by string, names of members as well as values: the parameters of the
call and its `_meta`. Nothing is parsed into a tree that another parser could build differently, and nothing is encoded
again (docs/adr/0020).

Short calls are checked at once. Megabytes may take a second or more, so long calls are checked in a thread, one after
the other, and the memory of those that wait is limited.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Call, Failure, Json
from trunkline.core.errors import DRAINING, PATH_TRAVERSAL, QUEUE_FULL, Problem
from trunkline.protocol.jsonrpc import encode_members
from trunkline.router.admission import Deadlines, retry_later
from trunkline.router.sanitizing import JSON_STRING
from trunkline.runtime.safe_callbacks import resume_safely

_LONG_BYTES: Final = 32 * 1024
_MAX_WAITING_BYTES: Final = 128 * 1024 * 1024


class _Check(NamedTuple):
    call: Call
    start: int
    size_bytes: int
    go_on: Callable[[], None]


class PathGuard:
    """Checks calls, and holds those that are checked in the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._waiting: deque[_Check] = deque()
        self._waiting_bytes = 0
        self._running: asyncio.Future[Problem | None] | None = None

    @property
    def pending(self) -> int:
        """How many long calls are being checked or wait for it."""
        return len(self._waiting) + (self._running is not None)

    def stops(self, call: Call, start: int, timeout_s: float, go_on: Callable[[], None]) -> bool:
        """Check the parameters from `start` on, and `_meta`. Returns True if the call was refused, or is held to be
        checked. A call that was held goes on by way of `go_on` if it passes."""
        meta = sent_meta(call.meta) if call.meta else b""
        size_bytes = len(call.params) + len(meta)
        if size_bytes > _LONG_BYTES and (may_traverse(bytes(call.params)) or may_traverse(meta)):
            self._take(_Check(call, start, size_bytes, go_on), timeout_s)
            return True
        problem = traversal_problem(call, start)
        if problem is not None:
            call.finish(Failure(problem))
        return problem is not None

    def drain(self) -> None:
        """Refuse the calls that wait to be checked."""
        waiting, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for call in (check.call for check in waiting if not check.call.done):
            call.finish(Failure(retry_later(DRAINING, "The gateway is shutting down", call)))

    def _take(self, check: _Check, timeout_s: float) -> None:
        call = check.call
        if self._waiting_bytes + check.size_bytes > _MAX_WAITING_BYTES:
            message = "Too many long calls are waiting to be checked for path traversal"
            call.finish(Failure(retry_later(QUEUE_FULL, message, call)))
            return
        self._deadlines.set(call, timeout_s)
        self._waiting.append(check)
        self._waiting_bytes += check.size_bytes
        self._next()

    def _next(self) -> None:
        while self._running is None and self._waiting:
            check = self._waiting.popleft()
            self._waiting_bytes -= check.size_bytes
            if not check.call.done:
                self._running = self._loop.run_in_executor(None, traversal_problem, check.call, check.start)
                self._running.add_done_callback(lambda found, check=check: self._checked(check, found))

    def _checked(self, check: _Check, found: asyncio.Future[Problem | None]) -> None:
        self._running = None
        if not found.cancelled() and not check.call.done:
            # a bug in the check or behind it fails this call, and those that wait are checked all the same
            resume_safely(check.call, self._settle, check, found)
        self._next()

    @staticmethod
    def _settle(check: _Check, found: asyncio.Future[Problem | None]) -> None:
        problem = found.result()
        if problem is None:
            check.go_on()
        else:
            check.call.finish(Failure(problem))


_TOKEN: Final = re.compile(JSON_STRING.pattern + rb"|[{}\[\],:]", re.DOTALL)
_IS_NAME: Final = re.compile(rb"\s*:")
_SHOWN_NAME: Final = re.compile(r"[\w -]{1,40}\Z")
_SHOWN_CHARACTERS: Final = 120
_HINT: Final = "write the path without `..`"
_META_HINT: Final = "`_meta` is checked like the arguments: write the path without `..`"


def traversal_problem(call: Call, start: int = 0) -> Problem | None:
    """Find path traversal in what is sent of a call: its parameters from `start` on, and its `_meta`."""
    place, hint = _traversing_string(bytes(call.params), start), _HINT
    if not place and call.meta:
        place, hint = _traversing_string(sent_meta(call.meta), 0), _META_HINT
    if not place:
        return None
    message = f"Path traversal in {place}"
    return Problem(code=PATH_TRAVERSAL, message=message, source=call.source, tool=call.tool, hint=hint)


def sent_meta(meta: Mapping[str, Json]) -> bytes:
    """The `_meta` that is passed on with a call, as a member of an object."""
    return encode_members({"_meta": encode_members(meta)})


def _traversing_string(json: bytes, start: int) -> str:
    """Where the first string with path traversal stands, without its text; empty if there is none."""
    if not may_traverse(json):
        return ""
    for literal in JSON_STRING.finditer(json, start):
        if _traverses(literal[0]):
            path = _path(json, literal.start())
            if _IS_NAME.match(json, literal.end()) is None:
                return f"`{path}`"
            return f"a name in `{path}`" if path else "a name"
    return ""


def may_traverse(json: bytes) -> bool:
    """A quick test, false for most calls. Where it is false, no string has traversal, however it is read: there are no
    two dots in a row, and nothing that could be decoded, replaced or dropped to make them."""
    return (
        b".." in json
        or b"\\" in json
        or b"%" in json
        or b"&" in json  # begins an HTML entity: `&#46;` is a dot
        or b"\x7f" in json  # the one invisible ASCII character that JSON allows unescaped: some readers drop it
        or not json.isascii()
    )


def _traverses(literal: bytes) -> bool:
    # Imported here because its tables take most of a megabyte, and many gateways never need them.
    from trunkline.core.path_traversal import has_path_traversal

    try:
        return has_path_traversal(msgspec.json.decode(literal, type=str))
    except msgspec.MsgspecError:
        return True  # a server might read anything here


def _path(params: bytes, end: int) -> str:
    """The members and indexes that lead to a position, such as `arguments.files[2].path`."""
    steps: list[str | int] = []
    name = ""
    for token in _TOKEN.finditer(params, 0, end):
        mark = token[0]
        if mark == b"{":
            steps.append("")
        elif mark == b"[":
            steps.append(0)
        elif mark in b"]}":
            steps.pop()
        elif mark == b":":
            steps[-1] = name
        elif mark == b",":
            step = steps[-1]
            steps[-1] = step + 1 if isinstance(step, int) else ""
        else:
            written = mark[1:-1].decode(errors="replace")
            name = written if _SHOWN_NAME.match(written) else "…"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps if step != "")
    return path[-_SHOWN_CHARACTERS:].lstrip(".")
