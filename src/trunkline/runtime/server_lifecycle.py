"""Tracks the health of a server, and how long to wait before it is started or connected again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_DOWN, SOURCE_OVER_LIMITS, Problem
from trunkline.core.source import Health, Sink, State

FIRST_S: Final = 0.1
BASE_S: Final = 0.5
CAP_S: Final = 30.0
AT_ONCE: Final = 5
AT_ONCE_WITHIN_S: Final = 60.0
SOON_S: Final = 1.0
"""How long calls may wait for the next attempt."""
_RETRY_AFTER_MS: Final = 1000


def warn_if_over_limits(sink: Sink | None, lost: asyncio.Future[Problem]) -> None:
    """Log that a server was ended because of its limits, even one of a single client, whose health is not shown."""
    if sink is not None and lost.result().code is SOURCE_OVER_LIMITS:
        sink.note("warning", f"{SOURCE_OVER_LIMITS}: {lost.result().message}")


class HealthTracker:
    """The health of a server; `report` is called whenever it changes.

    `health` is that of the process or session that all clients share. While it is starting or down but the server still
    `serves` some clients by processes of their own, it is reported as degraded.
    """

    def __init__(self, source: str, report: Callable[[Health], None], serves: Callable[[], bool] | None = None) -> None:
        self._source = source
        self._report_change = report
        self._serves = serves
        self.health = self._reported = Health(state="starting", since=time.time())

    @property
    def refuses(self) -> bool:
        """Whether calls for the shared process are to be refused rather than kept waiting."""
        return self.health.state in ("down", "auth_required")

    def refresh(self) -> None:
        """Report the health again if `serves` has changed it."""
        self._set(self.health)

    def ready(self) -> None:
        self._report("ready")

    def degraded(self, reason: str) -> None:
        """It answers calls, but something else does not work."""
        self._report("degraded", reason)

    def lost(self, problem: Problem, stderr_tail: str = "") -> None:
        """It was just lost: it is restarted at once, and calls may wait for it."""
        self._report_problem("starting", problem, stderr_tail, restarts=1)

    def failed(self, problem: Problem, stderr_tail: str = "") -> None:
        state: State = "auth_required" if problem.code is SOURCE_AUTH_REQUIRED else "down"
        self._report_problem(state, problem, stderr_tail)

    def may_wait(self, retry_s: float) -> bool:
        """Whether calls may wait for the next attempt; if that is too far off, the server is down until then."""
        if retry_s > SOON_S and self.health.state == "starting":
            self._set(replace(self.health, state="down"))
        return self.health.state == "starting"

    def refusal(self, tool: str) -> Problem:
        """The problem for a call that cannot wait any longer."""
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
        self._set(
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
        self._set(replace(self.health, state=state, reason=reason, hint=""))

    def _set(self, health: Health) -> None:
        self.health = health
        if health.state in ("starting", "down") and self._serves is not None and self._serves():
            reason = f"{health.reason}; clients that have a process of their own are served"
            health = replace(health, state="degraded", reason=reason)
        since = time.time() if health.state != self._reported.state else self._reported.since
        health = replace(health, since=since)
        if health != self._reported:
            self._reported = health
            self._report_change(health)


class RetryBackoff:
    """How long to wait before a server is tried again: exponential with full jitter.

    A server that worked before it was lost is tried again at once, but only `AT_ONCE` times a minute, because it may
    crash right after each handshake.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._worked = False
        self._at_once: list[float] = []

    def up(self) -> None:
        """Note that the server works: it has completed its handshake."""
        self._worked = True

    def next_delay_s(self) -> float:
        """The wait before the next attempt. The first is very short, so that a single failure costs almost no time."""
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
