"""The throttled log of harmless faults of apps."""

from __future__ import annotations

from trunkline.core.source import Level
from trunkline.sources.app.connection import ThrottledLog


class Ear:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.counted: list[str] = []

    def note(self, level: Level, message: str) -> None:
        assert level == "warning"
        self.notes.append(message)

    def count(self, counter: str, amount: int = 1) -> None:
        self.counted.append(counter)


def test_everything_is_counted_and_a_flood_gives_one_line_now_and_then() -> None:
    ear = Ear()
    now = [0.0]
    throttled_log = ThrottledLog(ear, lambda: now[0])
    for _ in range(1000):
        throttled_log.add("noise_lines", "junk")
    throttled_log.add("other", "something else")
    assert len(ear.counted) == 1001
    assert ear.notes == ["junk", "something else"]
    now[0] = 11.0
    throttled_log.add("noise_lines", "junk again")
    assert ear.notes[2:] == ["junk again (999 more like this since the last such line)"]
