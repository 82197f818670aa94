"""A sink that records what its source reports."""

from __future__ import annotations

from trunkline.core.source import Health
from trunkline.core.tool import Snapshot


class Ledger:
    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.healths: list[Health] = []

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def health(self, health: Health) -> None:
        self.healths.append(health)

    def count(self, counter: str, amount: int = 1) -> None:
        """Nobody looks."""

    @property
    def states(self) -> list[str]:
        return [health.state for health in self.healths]
