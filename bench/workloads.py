"""What is asked of a peer, and how much of it at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

IN_FLIGHT = (1, 8, 64)


@dataclass(frozen=True)
class Workload:
    key: str
    title: str
    method: str = "tools/call"
    tool: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    expect: str = ""  # text that must be in each answer
    min_bytes: int = 0  # and how long the answer is at least
    spread: bool = False  # over all backends that have the tool, not only the first
    window: float = 1.0  # share of the usual measured window: slow calls give their numbers sooner

    def __hash__(self) -> int:
        return hash(self.key)


ECHO = Workload("echo", "echo (11 bytes)", tool="echo", arguments={"text": "hello world"}, expect="hello world")
KB100 = Workload("100kb", "100 KB text", tool="blob", arguments={"kb": 100}, min_bytes=100 * 1024, window=0.7)
MB1 = Workload("1mb", "1 MB text", tool="blob", arguments={"kb": 1000}, min_bytes=1000 * 1024, window=0.7)
SPREAD = Workload("spread", "echo, over all backends", tool="echo", arguments={"text": "hello world"}, spread=True)
READ = Workload("read", "built-in Read of a 1 MB file", tool="Read", arguments={"path": "1mb.txt"}, expect="line 1 ")
LIST = Workload("list", "tools/list", method="tools/list", expect='"tools"')

WORKLOADS = {workload.key: workload for workload in (ECHO, KB100, MB1, SPREAD, READ, LIST)}


@dataclass(frozen=True)
class Cell:
    """One box of the tables: a workload with so many calls in flight."""

    workload: Workload
    in_flight: int

    def __str__(self) -> str:
        return f"{self.workload.key}@{self.in_flight}"


def cells(*workloads: Workload, in_flight: tuple[int, ...] = IN_FLIGHT) -> tuple[Cell, ...]:
    return tuple(Cell(workload, count) for workload in workloads for count in in_flight)


STANDARD = cells(ECHO, KB100, MB1)
QUICK = {str(cell) for cell in (*cells(ECHO, READ, LIST, in_flight=(1, 64)), *cells(KB100, MB1, in_flight=(1,)))}
