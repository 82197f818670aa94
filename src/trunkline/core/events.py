"""What happened, as data. Telemetry subscribes; nothing that subscribes may steer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from trunkline.core.call import Call
from trunkline.core.source import Health, Level

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Anything worth a line in the log that is not a call: a server's change of state, a refused client, a start."""

    level: Level
    event: str
    message: str
    fields: tuple[tuple[str, object], ...] = ()


class Events:
    """One stream for everything that is counted or logged."""

    __slots__ = ("_failing", "call_done", "counted", "health", "noted", "removed")

    def __init__(self) -> None:
        self.call_done: list[Callable[[Call, float], None]] = []
        self.health: list[Callable[[str, Health], None]] = []
        self.removed: list[Callable[[str], None]] = []
        self.counted: list[Callable[[str, str, int], None]] = []
        self.noted: list[Callable[[LogEvent], None]] = []
        self._failing = False

    def call_ended(self, call: Call, seconds: float) -> None:
        for subscriber in self.call_done:
            try:  # written out, for every call comes here
                subscriber(call, seconds)
            except Exception as error:
                self._failed(error)

    def health_changed(self, source: str, health: Health) -> None:
        self._tell(self.health, source, health)

    def source_removed(self, source: str) -> None:
        self._tell(self.removed, source)

    def count(self, counter: str, source: str = "", amount: int = 1) -> None:
        self._tell(self.counted, counter, source, amount)

    def note(self, level: Level, event: str, message: str, **fields: object) -> None:
        self._tell(self.noted, LogEvent(level, event, message, tuple(fields.items())))

    def _tell(self, subscribers: list[Callable[P, None]], *what: P.args, **more: P.kwargs) -> None:
        for subscriber in subscribers:
            try:
                subscriber(*what, **more)
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """A bug of whoever listens costs neither others who do, nor what is told of."""
        if not self._failing:  # a report that cannot be written is not worth another
            self._failing = True
            self.note("error", "internal", f"telemetry: {type(error).__name__}: {error}")
            self._failing = False
