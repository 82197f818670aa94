"""How a server is doing, and why: told to whoever looks after it, whenever that changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_DOWN, SOURCE_OVER_LIMITS, Problem
from trunkline.core.source import Health, Sink, State

_SOON_S: Final = 1.0


def warn_if_over_limits(sink: Sink | None, lost: asyncio.Future[Problem]) -> None:
    """A line in the log for a server that we ended, also for one of a single client, whose health nobody sees."""
    if sink is not None and lost.result().code is SOURCE_OVER_LIMITS:
        sink.note("warning", f"{SOURCE_OVER_LIMITS}: {lost.result().message}")


class Vitals:
    def __init__(self, source: str, tell: Callable[[Health], None]) -> None:
        self._source = source
        self._tell_others = tell
        self.health = Health(state="starting", since=time.time())

    def well(self) -> None:
        self._report("ready")

    def ailing(self, reason: str) -> None:
        """It answers calls, and something else of it does not work."""
        self._report("degraded", reason)

    def lost(self, problem: Problem, stderr_tail: str = "") -> None:
        """It was up a moment ago: a restart follows at once, and calls may wait for it."""
        self._report_problem("starting", problem, stderr_tail, restarts=1)

    def failed(self, problem: Problem, stderr_tail: str = "") -> None:
        state: State = "auth_required" if problem.code is SOURCE_AUTH_REQUIRED else "down"
        self._report_problem(state, problem, stderr_tail)

    def worth_waiting(self, retry_s: float) -> bool:
        """Whether calls may wait for the next try; where that is a while off, it is down until then."""
        if retry_s > _SOON_S and self.health.state == "starting":
            self._tell(replace(self.health, state="down"))
        return self.health.state == "starting"

    def refusal(self, tool: str) -> Problem:
        """For a call that cannot wait any longer."""
        reason = self.health.reason or self.health.last_error or "not connected"
        return Problem(
            code=SOURCE_DOWN,
            message=f"Server {self._source} is {self.health.state}: {reason}",
            source=self._source,
            tool=tool,
            retryable=True,
        )

    def _report_problem(self, state: State, problem: Problem, tail: str, restarts: int = 0) -> None:
        reason = problem.message.removeprefix(f"Server {self._source}: ")
        if problem.code is SOURCE_OVER_LIMITS:
            reason = f"{problem.code}: {reason}"
        tail = tail or problem.stderr_tail or self.health.stderr_tail
        self._tell(
            replace(
                self.health,
                state=state,
                reason=reason,
                last_error=reason,
                restarts=self.health.restarts + restarts,
                stderr_tail=tail,
                hint=problem.hint,
            )
        )

    def _report(self, state: State, reason: str = "") -> None:
        self._tell(replace(self.health, state=state, reason=reason, hint=""))

    def _tell(self, health: Health) -> None:
        if health.state != self.health.state:
            health = replace(health, since=time.time())
        if health != self.health:
            self.health = health
            self._tell_others(health)
