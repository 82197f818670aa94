"""How a server is doing, and why: told to whoever looks after it, whenever that changes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_DOWN, SOURCE_OVER_LIMITS, Problem
from trunkline.core.source import Health, Sink, State

SOON_S: Final = 1.0
"""How long calls may wait for the next try without being told."""
_RETRY_AFTER_MS: Final = 1000


def warn_if_over_limits(sink: Sink | None, lost: asyncio.Future[Problem]) -> None:
    """A line in the log for a server that we ended, also for one of a single client, whose health nobody sees."""
    if sink is not None and lost.result().code is SOURCE_OVER_LIMITS:
        sink.note("warning", f"{SOURCE_OVER_LIMITS}: {lost.result().message}")


class HealthTracker:
    """`health` is that of the process or session that all share. Others are told that the server is degraded, not that
    it is starting or down, as long as it still `serves` some of its clients by other means."""

    def __init__(self, source: str, tell: Callable[[Health], None], serves: Callable[[], bool] | None = None) -> None:
        self._source = source
        self._tell_others = tell
        self._serves = serves
        self.health = self._told = Health(state="starting", since=time.time())

    @property
    def refuses(self) -> bool:
        """Whether calls for what all share are better refused than kept waiting."""
        return self.health.state in ("down", "auth_required")

    def look_again(self) -> None:
        """What it serves by other means has changed."""
        self._tell(self.health)

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
        if retry_s > SOON_S and self.health.state == "starting":
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
            retry_after_ms=_RETRY_AFTER_MS,
            hint=self.health.hint,
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
        self.health = health
        if health.state in ("starting", "down") and self._serves is not None and self._serves():
            reason = f"{health.reason}; clients that have a process of their own are served"
            health = replace(health, state="degraded", reason=reason)
        since = time.time() if health.state != self._told.state else self._told.since
        health = replace(health, since=since)
        if health != self._told:
            self._told = health
            self._tell_others(health)


# How long to wait before trying a server again: not at all where it worked, else exponential with full jitter.

FIRST_S: Final = 0.1
BASE_S: Final = 0.5
CAP_S: Final = 30.0
AT_ONCE: Final = 5
AT_ONCE_WITHIN_S: Final = 60.0


class Backoff:
    """One that came up before it was lost is tried again at once, `AT_ONCE` times a minute.

    Its handshake is proof enough that it works: the number keeps one that crashes right behind it from being started
    without a pause.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._worked = False
        self._at_once: list[float] = []

    def up(self) -> None:
        """The server answers."""
        self._worked = True

    def next_delay_s(self) -> float:
        """The wait before the next try. The first is near nothing, so that one failure costs callers almost no time."""
        now = time.monotonic()
        worked, self._worked = self._worked, False
        if worked:
            self._at_once = [at for at in self._at_once if now - at < AT_ONCE_WITHIN_S]
            if len(self._at_once) < AT_ONCE:
                self._at_once.append(now)
                self.failures = 0
                return 0.0
        self.failures += 1
        if self.failures == 1:
            return random.uniform(0, FIRST_S)
        return random.uniform(0, min(CAP_S, BASE_S * 2 ** min(self.failures - 2, 10)))
