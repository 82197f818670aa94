"""The guard before a source: no path traversal passes, however it is written.

It reads the very bytes that are sent, literal by literal, names as well as values: nothing is parsed into a tree that
another parser could see differently, and nothing is written anew (docs/adr/0020).
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Call, Failure
from trunkline.core.errors import DRAINING, PATH_TRAVERSAL, QUEUE_FULL, Code, Problem
from trunkline.router.admission import Deadlines

# Where calls to guarded sources are stopped: short ones are looked at on the spot, long ones beside the loop.
#
# To look through megabytes takes a second or more where somebody wants it to, and nobody else should wait for that. Long
# calls are looked at one after the other, in a thread, and what they may take up while they wait is bounded.

_LONG_BYTES: Final = 32 * 1024
_MOST_BYTES: Final = 128 * 1024 * 1024
_RETRY_AFTER_MS: Final = 1000


class _Check(NamedTuple):
    call: Call
    start: int
    passed: Callable[[], None]


class PathGuard:
    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._waiting: deque[_Check] = deque()
        self._waiting_bytes = 0
        self._running: asyncio.Future[Problem | None] | None = None

    @property
    def pending(self) -> int:
        """How many long calls have not got their word yet."""
        return len(self._waiting) + (self._running is not None)

    def stops(self, call: Call, start: int, timeout_s: float, passed: Callable[[], None]) -> bool:
        """Whether this call goes no further now: it was refused, or is long. `passed` is then called once it may go on,
        if somebody still waits for it. What stands before `start` is not looked at."""
        if len(call.params) > _LONG_BYTES and may_traverse(bytes(call.params)):
            self._take(_Check(call, start, passed), timeout_s)
            return True
        climb = traversal_problem(call, start)
        if climb is not None:
            call.finish(Failure(climb))
        return climb is not None

    def drain(self) -> None:
        """Look at no more: those that wait are refused."""
        waiting, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for call in (check.call for check in waiting if not check.call.done):
            call.finish(Failure(_refusal(call, DRAINING, "The gateway is shutting down")))

    def _take(self, check: _Check, timeout_s: float) -> None:
        call = check.call
        if self._waiting_bytes + len(call.params) > _MOST_BYTES:
            call.finish(Failure(_refusal(call, QUEUE_FULL, "Too many long calls wait to be looked through")))
            return
        self._deadlines.set(call, timeout_s)
        self._waiting.append(check)
        self._waiting_bytes += len(call.params)
        self._next()

    def _next(self) -> None:
        while self._running is None and self._waiting:
            check = self._waiting.popleft()
            self._waiting_bytes -= len(check.call.params)
            if not check.call.done:
                self._running = self._loop.run_in_executor(None, traversal_problem, check.call, check.start)
                self._running.add_done_callback(lambda found, check=check: self._looked(check, found))

    def _looked(self, check: _Check, found: asyncio.Future[Problem | None]) -> None:
        self._running = None
        if not found.cancelled() and not check.call.done:
            climb = found.result()
            if climb is not None:
                check.call.finish(Failure(climb))
            else:
                check.passed()
        self._next()


def _refusal(call: Call, code: Code, message: str) -> Problem:
    return Problem(
        code=code,
        message=message,
        source=call.source,
        tool=call.tool,
        retryable=True,
        retry_after_ms=_RETRY_AFTER_MS if code is QUEUE_FULL else None,
    )


_LITERAL: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN: Final = re.compile(_LITERAL.pattern + rb"|[{}\[\],:]", re.DOTALL)
_IS_NAME: Final = re.compile(rb"\s*:")
_SHOWN_NAME: Final = re.compile(r"[\w -]{1,40}\Z")
_SHOWN_CHARACTERS: Final = 120
_HINT: Final = "give the path without `..`, from the folder it is in"


def traversal_problem(call: Call, start: int = 0) -> Problem | None:
    """What is wrong with the parameters of a call from `start` on, if anything climbs there. Nothing was sent."""
    params = bytes(call.params)
    if not may_traverse(params):
        return None
    for literal in _LITERAL.finditer(params, start):
        if _climbs(literal[0]):
            return _problem(call, _place(params, literal))
    return None


def may_traverse(params: bytes) -> bool:
    """A quick look that most calls end with: without any of this, no string is more than it seems and none climbs."""
    return (
        b".." in params
        or b"\\" in params
        or b"%" in params
        or b"&" in params
        or b"\x7f" in params
        or not params.isascii()
    )


def _climbs(literal: bytes) -> bool:
    # Its tables take most of a megabyte: whoever guards nothing, or is never sent anything odd, does without them.
    from trunkline.core.traversal import has_path_traversal

    try:
        return has_path_traversal(msgspec.json.decode(literal, type=str))
    except msgspec.MsgspecError:
        return True  # nobody can tell what the server would read


def _problem(call: Call, place: str) -> Problem:
    return Problem(
        code=PATH_TRAVERSAL,
        message=f"Path traversal in {place}",
        source=call.source,
        tool=call.tool,
        hint=_HINT,
    )


def _place(params: bytes, literal: re.Match[bytes]) -> str:
    """Where the string stands, for people; its text is theirs and need not be repeated."""
    path = _path(params, literal.start())
    if _IS_NAME.match(params, literal.end()) is not None:
        return f"a name in `{path}`" if path else "a name"
    return f"`{path}`"


def _path(params: bytes, end: int) -> str:
    """The members and indexes around a place, such as `arguments.files[2].path`."""
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
            steps[-1] = _next(steps[-1])
        else:
            name = _shown(mark)
    written = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps if step != "")
    return written[-_SHOWN_CHARACTERS:].lstrip(".")


def _next(step: str | int) -> str | int:
    return step + 1 if isinstance(step, int) else ""


def _shown(literal: bytes) -> str:
    name = literal[1:-1].decode(errors="replace")
    return name if _SHOWN_NAME.match(name) else "…"
