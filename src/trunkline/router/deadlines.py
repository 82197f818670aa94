"""When a call has waited long enough: its deadline, what buys more time, and what stops the clock."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from trunkline.core.call import Call, Failure
from trunkline.core.errors import DEADLINE, Problem
from trunkline.runtime.overdue import LATE_S, READ_FIRST_S

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
        if call.questions:  # each has a deadline of its own
            call.timer = self._loop.call_later(call.timeout, self._due, call, now + call.timeout)
            return
        end = min(call.progressed_at + call.timeout, call.started_at + self.longest_s + call.rested_s)
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
