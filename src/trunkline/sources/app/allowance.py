"""How many calls per second: what was not used is saved up for a second, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Allowance:
    """A token bucket. It never waits: whoever comes too early is told how long it would take."""

    __slots__ = ("_clock", "_filled_at", "_left", "_per_second")

    def __init__(self, per_second: float, clock: Callable[[], float] = monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left = max(1.0, per_second)
        self._filled_at = clock()

    def take(self) -> float:
        """Use one up; or the seconds until there is one, and nothing was used."""
        now = self._clock()
        full = max(1.0, self._per_second)
        self._left = min(full, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_second
