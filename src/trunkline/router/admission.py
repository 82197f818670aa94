"""Limits on calls: how many may run at a source or wait for it, how much memory they may hold, how long they may take.

Every call passes `Admission.admit` of its source and comes back through `release` when it has ended. Both are on the
path of each `tools/call`, so the common case there does nothing but count.
"""

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
from trunkline.core.source import SERVING, Health, Source
from trunkline.core.unfinished_bytes import DEFAULT_BYTES
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.router.options import SourceOptions
from trunkline.router.sanitizing import redact_problem
from trunkline.runtime.deadlines import LATE_S, READ_FIRST_S
from trunkline.runtime.safe_callbacks import internal_problem, report_exception

_RETRY_AFTER_MS: Final = 1000
_REFUSING: Final[dict[str, Code]] = {
    "down": SOURCE_DOWN,
    "disabled": SOURCE_DISABLED,
    "auth_required": SOURCE_AUTH_REQUIRED,
}


class Admission:
    """Admission control for one source: submits calls while it is up and has room, and queues a limited number."""

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
        """Whether new calls are refused, for another reason than a full queue."""
        return self.draining or self.health.state in _REFUSING

    def admit(self, call: Call) -> None:
        """Submit the call to the source, queue it, or fail it."""
        call.admission = self
        if len(call.params) > LARGE_BYTES:
            problem = self._call_memory.reserve(call, len(call.params))
            if problem is not None:
                call.finish(Failure(problem))
                return
        if self._open and self.in_flight < self._max_in_flight:
            self.in_flight += 1
            call.admitted = True
            try:  # `contained` would cost a call; an exception here would end the call that made room for this one
                self.source.submit(call)
            except Exception as error:
                report_exception(f"a call to {self.name}", error)
                call.finish(Failure(internal_problem(call.source, call.tool)))
        else:
            self._hold(call)

    def _hold(self, call: Call) -> None:
        refusal = self.refusal(call.tool)
        if refusal is None and len(self.queue) >= self._max_queue:
            refusal = self._problem(call.tool, QUEUE_FULL, f"Server {self.name} has too many calls waiting")
        if refusal is not None:
            call.finish(Failure(refusal))
        else:
            self.queue.append(call)

    def refusal(self, tool: str = "") -> Problem | None:
        """Why calls are refused now, apart from a full queue; None while the source is up or may come up."""
        state = self.health.state
        if self.draining:
            return self._problem(tool, DRAINING, "The gateway is shutting down")
        if state in _REFUSING:
            reason = self.health.reason or self.health.last_error or "no reason given"
            return self._problem(tool, _REFUSING[state], f"Server {self.name} is {state}: {reason}")
        return None

    def _problem(self, tool: str, code: Code, message: str) -> Problem:
        tail = self.health.stderr_tail
        return Problem(
            code=code,
            message=message,
            source=self.name,
            tool=tool,
            retryable=code not in (SOURCE_DISABLED, SOURCE_AUTH_REQUIRED),
            retry_after_ms=_RETRY_AFTER_MS if code in (QUEUE_FULL, SOURCE_DOWN) else None,
            hint=self.health.hint or (tail and f"its last output on stderr: {tail}"),
        )

    def release(self, call: Call) -> None:
        """Take back a call that has ended, and submit the next one in the queue."""
        if call.admitted:
            call.admitted = False
            self.in_flight -= 1
            outcome = call.outcome
            if type(outcome) is Failure:
                outcome.problem = redact_problem(outcome.problem, self.options.redact)
            if self.queue:
                self._drain()
        elif self.queue and call.outcome is not None:
            with contextlib.suppress(ValueError):
                self.queue.remove(call)

    def set_health(self, health: Health) -> None:
        self.health = health
        self._open = health.state in SERVING and not self.draining
        self._drain()

    def drain(self) -> None:
        """Refuse new and queued calls; those in flight may end."""
        self.draining = True
        self._open = False
        self._drain()

    def retire(self) -> deque[Call]:
        """Stop admitting calls for good. Returns the queued ones, for the successor; those in flight may end here."""
        self._open = False
        self.draining = True
        waiting, self.queue = self.queue, deque()
        return waiting

    def _drain(self) -> None:
        """Submit queued calls while there is room, or refuse all of them if the source will not come up. A call may end
        while it is being admitted, which leads back here: then the outer loop goes on."""
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


# -- memory -----------------------------------------------------------------------------------------------------------

LARGE_BYTES: Final = 16 * 1024
"""Smaller calls are not counted: their number is limited, and counting would cost every call something."""
_COPIES: Final = 2
"""The client's message is kept beside the one for the server."""


def retry_later(code: Code, message: str, call: Call) -> Problem:
    """Refuses a call that may succeed when it is repeated."""
    retry_after_ms = _RETRY_AFTER_MS if code is QUEUE_FULL else None
    return Problem(
        code=code, message=message, source=call.source, tool=call.tool, retryable=True, retry_after_ms=retry_after_ms
    )


class CallMemory:
    """A limit on the bytes that large calls hold while they wait and run, over all sources. The number of calls is
    limited elsewhere, but a thousand calls of some megabytes each would still be too much."""

    __slots__ = ("_held", "_limit_bytes", "total_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.total_bytes = 0
        self._held: dict[Call, int] = {}

    def reserve(self, call: Call, size_bytes: int) -> Problem | None:
        """Count the call until it is released. Returns a problem instead if the others hold too much already. A call
        that is alone is always admitted: the limit of one request bounds it."""
        if call in self._held:
            return None
        size_bytes *= _COPIES
        if self._held and self.total_bytes + size_bytes > self._limit_bytes:
            message = f"Calls in flight hold {self.total_bytes:,} bytes already (`limits.unfinished_bytes`)"
            return retry_later(QUEUE_FULL, message, call)
        self._held[call] = size_bytes
        self.total_bytes += size_bytes
        return None

    def release(self, call: Call) -> None:
        self.total_bytes -= self._held.pop(call, 0)


# -- deadlines --------------------------------------------------------------------------------------------------------


class Deadlines:
    """Times calls out. Progress extends a deadline up to `max_call_s` from the start of the call. Time that a client
    takes to answer its server is not counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_call_s: float) -> None:
        self._loop = loop
        self.max_call_s = max_call_s

    def set(self, call: Call, timeout_s: float) -> None:
        """Set the deadline, counted from the start of the call; the call may have timed out when this returns."""
        call.timeout_s = left_s = timeout_s
        if call.timer is not None:  # it waited for its source to come up, which counts
            call.timer.cancel()
            left_s -= monotonic() - call.started_at
            if left_s <= 0:
                self._expired(call)
                return
        call.timer = self._loop.call_later(left_s, self._due, call, call.started_at + timeout_s)

    def _due(self, call: Call, due: float) -> None:
        """If the process was suspended meanwhile, the response may have arrived and not been read yet."""
        if monotonic() - due > LATE_S:
            call.timer = self._loop.call_later(READ_FIRST_S, self._expired, call)
        else:
            self._expired(call)

    def _expired(self, call: Call) -> None:
        """Time out, unless there was progress or the client still has to answer the server."""
        now = monotonic()
        if call.open_server_requests:  # these have deadlines of their own
            call.timer = self._loop.call_later(call.timeout_s, self._due, call, now + call.timeout_s)
            return
        end = min(call.progressed_at + call.timeout_s, call.started_at + self.max_call_s + call.paused_s)
        if call.progressed_at and end > now:
            call.timer = self._loop.call_later(end - now, self._due, call, end)
            return
        seconds = round(now - call.started_at) if call.progressed_at else call.timeout_s
        phase = call.phase
        what = "Tool execution" if call.method == TOOLS_CALL else f"`{call.method}`"
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
