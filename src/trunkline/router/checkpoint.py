"""Where calls to guarded sources are stopped: short ones are looked at on the spot, long ones beside the loop.

To look through megabytes takes a second or more where somebody wants it to, and nobody else should wait for that. Long
calls are looked at one after the other, in a thread, and what they may take up while they wait is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from trunkline.core.call import Call, Failure
from trunkline.core.errors import DRAINING, QUEUE_FULL, Code, Problem
from trunkline.router.deadlines import Deadlines
from trunkline.router.guard import may_climb, traversal_problem

_LONG_BYTES: Final = 32 * 1024
_MOST_BYTES: Final = 128 * 1024 * 1024
_RETRY_AFTER_MS: Final = 1000


class _Check(NamedTuple):
    call: Call
    start: int
    passed: Callable[[], None]


class Checkpoint:
    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._waiting: deque[_Check] = deque()
        self._waiting_bytes = 0
        self._running: asyncio.Future[Problem | None] | None = None

    @property
    def looking_at(self) -> int:
        """How many long calls have not got their word yet."""
        return len(self._waiting) + (self._running is not None)

    def stops(self, call: Call, start: int, timeout_s: float, passed: Callable[[], None]) -> bool:
        """Whether this call goes no further now: it was refused, or is long. `passed` is then called once it may go on,
        if somebody still waits for it. What stands before `start` is not looked at."""
        if len(call.params) > _LONG_BYTES and may_climb(bytes(call.params)):
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
