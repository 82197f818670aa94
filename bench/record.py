"""Everything one run found out, and the medians over it. Kept as JSON so that a report can be made again."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DISTURBED_CORES = 0.2  # used by others during a window


@dataclass
class Window:
    """One window of load on one peer."""

    peer: str
    cell: str
    repetition: int
    others_cores: float
    calls: int = 0
    errors: int = 0
    first_error: str = ""
    calls_per_s: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    cpu_us: float = 0.0  # per call, user and system
    rss_mb: float = 0.0

    @property
    def disturbed(self) -> bool:
        return self.others_cores > DISTURBED_CORES

    def __str__(self) -> str:
        numbers = f"{self.calls_per_s:11,.0f}/s  p50 {self.p50_us:11,.1f} µs  CPU {self.cpu_us:11,.1f} µs"
        errors = f"  {self.errors} errors" if self.errors else ""
        return f"{self.cell:10} {self.peer:31} {numbers}{errors}{'  disturbed' if self.disturbed else ''}"


@dataclass
class Record:
    made: str
    machine: str
    versions: dict[str, str]
    native: bool
    settings: dict[str, Any]
    starts: dict[str, list[dict[str, float]]] = field(default_factory=dict)  # by peer
    idle_rss_mb: dict[str, float] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)  # peers, or peers and cells, that did not work
    windows: list[Window] = field(default_factory=list)
    searches: list[dict[str, Any]] = field(default_factory=list)

    def of(self, peer: str, cell: str) -> list[Window]:
        """The windows to judge by: the undisturbed ones if there are at least two, else all."""
        found = [window for window in self.windows if window.peer == peer and window.cell == cell]
        calm = [window for window in found if not window.disturbed]
        return calm if len(calm) >= 2 else found

    def median(self, peer: str, cell: str, key: str) -> float | None:
        windows = self.of(peer, cell)
        return statistics.median(getattr(window, key) for window in windows) if windows else None

    def ratios(self, ours: tuple[str, str], theirs: tuple[str, str], key: str) -> list[float]:
        """One peer and cell as a share of another, repetition by repetition: how far the medians can be trusted."""
        by_repetition = {window.repetition: getattr(window, key) for window in self.of(*theirs)}
        shared = [window for window in self.of(*ours) if by_repetition.get(window.repetition)]
        return [getattr(window, key) / by_repetition[window.repetition] for window in shared]

    def is_disturbed(self, peer: str, cell: str) -> bool:
        return any(window.disturbed for window in self.of(peer, cell))

    def start_s(self, peer: str, key: str = "first_answer_s") -> float | None:
        starts = self.starts.get(peer)
        return statistics.median(start[key] for start in starts) if starts else None

    def start_is_disturbed(self, peer: str) -> bool:
        return any(start["others_cores"] > DISTURBED_CORES for start in self.starts.get(peer, []))

    def loaded_rss_mb(self, peer: str) -> float:
        return max((window.rss_mb for window in self.windows if window.peer == peer), default=0.0)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Record:
        kept = json.loads(path.read_text())
        return cls(**{**kept, "windows": [Window(**window) for window in kept["windows"]]})
