"""What happened, as events for telemetry. Subscribers observe; they never influence what is observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from trunkline.core.call import Call
from trunkline.core.source import Health, Level

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line for the log that is not about a call: a server's change of state, a refused client, a start."""

    level: Level
    event: str
    message: str
    fields: tuple[tuple[str, object], ...] = ()


class Events:
    """Lists of subscribers, one for each kind of event, and the methods that call them."""

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
            try:  # not by `_publish`: every call comes here
                subscriber(call, seconds)
            except Exception as error:
                self._failed(error)

    def health_changed(self, source: str, health: Health) -> None:
        self._publish(self.health, source, health)

    def source_removed(self, source: str) -> None:
        self._publish(self.removed, source)

    def count(self, counter: str, source: str = "", amount: int = 1) -> None:
        self._publish(self.counted, counter, source, amount)

    def note(self, level: Level, event: str, message: str, **fields: object) -> None:
        self._publish(self.noted, LogEvent(level, event, message, tuple(fields.items())))

    def _publish(self, subscribers: list[Callable[P, None]], *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in subscribers:
            try:
                subscriber(*args, **kwargs)
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Log an exception of a subscriber, which must harm neither the others nor what is observed."""
        if not self._failing:  # the subscriber that writes the log may be the one that fails
            self._failing = True
            self.note("error", "internal", f"telemetry: {type(error).__name__}: {error}")
            self._failing = False
