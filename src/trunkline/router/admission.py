"""The gate in front of one source: who may pass now, who waits, who is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from time import monotonic
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.core.errors import (
    DEADLINE,
    DRAINING,
    QUEUE_FULL,
    SOURCE_AUTH_REQUIRED,
    SOURCE_DISABLED,
    SOURCE_DOWN,
    Code,
    Problem,
)
from trunkline.core.source import Health, Source
from trunkline.core.unfinished_bytes import DEFAULT_BYTES
from trunkline.router.options import SourceOptions
from trunkline.router.sanitizing import redact_problem
from trunkline.runtime.contained import bug_problem, report_bug
from trunkline.runtime.overdue import LATE_S, READ_FIRST_S

_RETRY_AFTER_MS: Final = 1000
_REFUSING: Final[dict[str, Code]] = {
    "down": SOURCE_DOWN,
    "disabled": SOURCE_DISABLED,
    "auth_required": SOURCE_AUTH_REQUIRED,
}


class Admission:
    """Admits calls while the source is well and not full; holds a bounded queue while it starts or is full."""

    def __init__(
        self,
        name: str,
        source: Source,
        health: Health,
        options: SourceOptions,
        *,
        max_in_flight: int,
        max_queue: int,
        call_memory: CallMemory,
    ) -> None:
        self.name = name
        self.source = source
        self.health = health
        self.options = options
        self.draining = False
        self.in_flight = 0
        self.queue: deque[Call] = deque()
        self._max_in_flight = max_in_flight
        self._max_queue = max_queue
        self._call_memory = call_memory
        self._open = False
        self._serving_queue = False

    @property
    def refuses(self) -> bool:
        """Whether a call that comes now is turned away, and not for want of room."""
        return self.draining or self.health.state in _REFUSING

    def admit(self, call: Call) -> None:
        call.admission = self
        if len(call.params) > LARGE_BYTES:
            too_much = self._call_memory.refusal(call, len(call.params))
            if too_much is not None:
                call.finish(Failure(too_much))
                return
        if self._open and self.in_flight < self._max_in_flight:
            self.in_flight += 1
            call.admitted = True
            try:  # what costs nothing: every call comes here, and some in the name of another that has ended
                self.source.submit(call)
            except Exception as error:
                report_bug(f"a call to {self.name}", error)
                call.finish(Failure(bug_problem(call.source, call.tool)))
        else:
            self._hold(call)

    def _hold(self, call: Call) -> None:
        refusal = self.refusal(call.tool) or self._full(call)
        if refusal is not None:
            call.finish(Failure(refusal))
        else:
            self.queue.append(call)

    def refusal(self, tool: str = "") -> Problem | None:
        """Why nobody gets in now, whatever room there is; None while the source is there or may come."""
        state = self.health.state
        if self.draining:
            return self._problem(tool, DRAINING, "The gateway is shutting down")
        if state in _REFUSING:
            reason = self.health.reason or self.health.last_error or "no reason given"
            return self._problem(tool, _REFUSING[state], f"Server {self.name} is {state}: {reason}")
        return None

    def _full(self, call: Call) -> Problem | None:
        if len(self.queue) < self._max_queue:
            return None
        return self._problem(call.tool, QUEUE_FULL, f"Server {self.name} has too many calls waiting")

    def _problem(self, tool: str, code: Code, message: str) -> Problem:
        retry_after_ms = _RETRY_AFTER_MS if code in (QUEUE_FULL, SOURCE_DOWN) else None
        tail = self.health.stderr_tail
        return Problem(
            code=code,
            message=message,
            source=self.name,
            tool=tool,
            retryable=code not in (SOURCE_DISABLED, SOURCE_AUTH_REQUIRED),
            retry_after_ms=retry_after_ms,
            hint=self.health.hint or (tail and f"its last words on stderr: {tail}"),
        )

    def release(self, call: Call) -> None:
        """A call has ended: its place goes to the next in line."""
        if call.admitted:
            call.admitted = False
            self.in_flight -= 1
            outcome = call.outcome
            if type(outcome) is Failure:
                outcome.problem = redact_problem(outcome.problem, self.options.redact)
            if self.queue:
                self._drain()
        elif self.queue and call.outcome is not None:
            self._forget(call)

    def _forget(self, call: Call) -> None:
        with contextlib.suppress(ValueError):
            self.queue.remove(call)

    def set_health(self, health: Health) -> None:
        self.health = health
        self._open = health.state in ("ready", "degraded") and not self.draining
        self._drain()

    def drain(self) -> None:
        """Let nobody new in; what is in flight may end."""
        self.draining = True
        self._open = False
        self._drain()

    def retire(self) -> deque[Call]:
        """Let nobody in any more; what is in flight may end. Those that waited go to whoever comes next."""
        self._open = False
        self.draining = True
        waiting, self.queue = self.queue, deque()
        return waiting

    def _drain(self) -> None:
        """Serve the queue as far as the gate allows; refuse all of it when the source will not come.

        A call may end while it is being admitted, which leads back here: the outer loop goes on, the inner returns.
        """
        if self._open and not self._serving_queue:
            self._serving_queue = True
            try:
                while self.queue and self.in_flight < self._max_in_flight and self._open:
                    call = self.queue.popleft()
                    if not call.done:
                        self.admit(call)
            finally:
                self._serving_queue = False
        elif self.refuses:
            waiting, self.queue = self.queue, deque()
            for call in waiting:
                if not call.done:
                    self._hold(call)


# One bound over what large calls hold while they wait and run, whichever source they are for.
#
# How many calls there may be is bounded elsewhere; a thousand of them with megabytes each would still be too much.

LARGE_BYTES: Final = 16 * 1024
"""Smaller calls are not counted: their number bounds them, and every call would pay for the counting."""
_COPIES: Final = 2
"""What the client wrote is kept beside what its server gets."""


class CallMemory:
    __slots__ = ("_held", "_limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.total_bytes = 0
        self._held: dict[Call, int] = {}

    def refusal(self, call: Call, size_bytes: int) -> Problem | None:
        """Count a call until it is released; why it cannot go on where others hold too much already. One alone always
        may: the limit of a request bounds it."""
        if call in self._held:
            return None
        size_bytes *= _COPIES
        if self._held and self.total_bytes + size_bytes > self._limit_bytes:
            message = f"Calls in flight hold {self.total_bytes:,} bytes already (`limits.unfinished_bytes`)"
            return Problem(
                code=QUEUE_FULL,
                message=message,
                source=call.source,
                tool=call.tool,
                retryable=True,
                retry_after_ms=_RETRY_AFTER_MS,
            )
        self._held[call] = size_bytes
        self.total_bytes += size_bytes
        return None

    def release(self, call: Call) -> None:
        self.total_bytes -= self._held.pop(call, 0)


# When a call has waited long enough: its deadline, what buys more time, and what stops the clock.

_TOOLS_CALL: Final = "tools/call"


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop, longest_s: float) -> None:
        self._loop = loop
        self.longest_s = longest_s
        """What no call may take, however much progress it shows; what its client took to answer is not counted."""

    def set(self, call: Call, timeout_s: float) -> None:
        """Give the call this long from its start; it may have ended when this returns."""
        call.timeout = left_s = timeout_s
        if call.timer is not None:  # it waited until its server told what it offers, and that time counts
            call.timer.cancel()
            left_s -= monotonic() - call.started_at
            if left_s <= 0:
                self._expired(call)
                return
        call.timer = self._loop.call_later(left_s, self._due, call, call.started_at + timeout_s)

    def _due(self, call: Call, due: float) -> None:
        """Where the process was stopped, the answer may be there for long and nobody has read it."""
        if monotonic() - due > LATE_S:
            call.timer = self._loop.call_later(READ_FIRST_S, self._expired, call)
        else:
            self._expired(call)

    def _expired(self, call: Call) -> None:
        """Progress buys more time, up to the absolute maximum of a call; a question to the client stops the clock."""
        now = monotonic()
        if call.open_server_requests:  # each has a deadline of its own
            call.timer = self._loop.call_later(call.timeout, self._due, call, now + call.timeout)
            return
        end = min(call.progressed_at + call.timeout, call.started_at + self.longest_s + call.paused_s)
        if call.progressed_at and end > now:
            call.timer = self._loop.call_later(end - now, self._due, call, end)
            return
        seconds = round(now - call.started_at) if call.progressed_at else call.timeout
        phase = call.phase
        what = "Tool execution" if call.method == _TOOLS_CALL else f"`{call.method}`"
        problem = Problem(
            code=DEADLINE,
            message=f"{what} timed out after {seconds:g} seconds",
            source=call.source,
            tool=call.tool,
            phase=phase,
            executed="no" if phase == "queued" else "unknown",
            retryable=phase == "queued",
            hint="raise `timeout` of the server, or `tools.timeouts` of the tool, if it needs longer",
        )
        call.give_up(Failure(problem))
