"""What is said of a run when it is over: a line for each step, and one for all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from trunkline.agents.runs.run_events import RunEnded, RunEvent, StepEnded
from trunkline.telemetry.safe_text import one_line

_HEAD: Final = ("step", "status", "seconds", "tool calls", "tokens in", "tokens out")
_LEFT: Final = 2
"""Columns of text; those after them hold numbers."""
_NAME: Final = 48
_MOST: Final = 50
"""Steps that are shown; of a longer run the last ones."""


class Summary:
    """Hears what happens, and is asked at the end."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._steps: list[StepEnded] = []
        self._end: RunEnded | None = None

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, StepEnded):
            self._steps.append(event)
        elif isinstance(event, RunEnded):
            self._end = event

    def lines(self) -> list[str]:
        if self._end is None or not self._steps:
            return []
        shown = self._steps[-_MOST:]
        rows = [_HEAD, *(self._row(step.step, step) for step in shown), self._row("all", self._end)]
        lines = list(_aligned(rows))
        left_out = len(self._steps) - len(shown)
        return [*lines[:1], f"({left_out} earlier steps)", *lines[1:]] if left_out else lines

    def _row(self, name: str, event: StepEnded | RunEnded) -> tuple[str, ...]:
        return (
            one_line(self._redact(name), _NAME),
            event.status,
            f"{event.seconds:.1f}",
            str(event.tool_calls),
            f"{event.input_tokens:,}",
            f"{event.output_tokens:,}",
        )


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = zip(row, widths, range(len(row)), strict=True)
        padded = (cell.ljust(width) if column < _LEFT else cell.rjust(width) for cell, width, column in cells)
        yield "  ".join(padded).rstrip()
