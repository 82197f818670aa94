"""What apps do wrong without harm: counted each time, logged now and then."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from trunkline.core.source import Level

_QUIET_S: Final = 10.0


class Hearer(Protocol):
    """The part of a sink that complaints go to."""

    def note(self, level: Level, message: str, /) -> None: ...
    def count(self, counter: str, amount: int = 1, /) -> None: ...


class Complaints:
    """A flood of one kind of thing gives one line in the log every few seconds, which says how many there were."""

    def __init__(self, hearer: Hearer, clock: Callable[[], float] = monotonic) -> None:
        self.hearer = hearer
        self._clock = clock
        self._quiet_until: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def add(self, counter: str, message: str) -> None:
        self.hearer.count(counter)
        now = self._clock()
        if now < self._quiet_until.get(counter, now):
            self._unsaid[counter] = self._unsaid.get(counter, 0) + 1
            return
        self._quiet_until[counter] = now + _QUIET_S
        unsaid = self._unsaid.pop(counter, 0)
        more = f" ({unsaid} more like this since the last line about it)" if unsaid else ""
        self.hearer.note("warning", message + more)
