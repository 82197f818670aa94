"""What happened, as data. Telemetry subscribes; nothing that subscribes may steer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trunkline.core.call import Call
from trunkline.core.source import Health, Level


@dataclass(frozen=True, slots=True)
class Note:
    """Anything worth a line in the log that is not a call: a server's change of state, a refused client, a start."""

    level: Level
    event: str
    message: str
    fields: tuple[tuple[str, object], ...] = ()


class Events:
    """One stream for everything that is counted or logged."""

    __slots__ = ("call_done", "counted", "health", "noted", "removed")

    def __init__(self) -> None:
        self.call_done: list[Callable[[Call, float], None]] = []
        self.health: list[Callable[[str, Health], None]] = []
        self.removed: list[Callable[[str], None]] = []
        self.counted: list[Callable[[str, str, int], None]] = []
        self.noted: list[Callable[[Note], None]] = []

    def call_ended(self, call: Call, seconds: float) -> None:
        for subscriber in self.call_done:
            subscriber(call, seconds)

    def health_changed(self, source: str, health: Health) -> None:
        for subscriber in self.health:
            subscriber(source, health)

    def source_removed(self, source: str) -> None:
        for subscriber in self.removed:
            subscriber(source)

    def count(self, counter: str, source: str = "", amount: int = 1) -> None:
        for subscriber in self.counted:
            subscriber(counter, source, amount)

    def note(self, level: Level, event: str, message: str, **fields: object) -> None:
        record = Note(level, event, message, tuple(fields.items()))
        for subscriber in self.noted:
            subscriber(record)
