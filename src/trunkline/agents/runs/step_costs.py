"""What the current step has cost so far: its tool calls, and the tokens of its model. A step that fails or is
interrupted has cost what it used."""

from __future__ import annotations

from typing import Final

from trunkline.agents.runs.run_events import RunEvent, ToolCallEnded
from trunkline.agents.said import Spent

_NOTHING: Final = Spent(0, 0)


class StepCosts:
    """`taken` ends the count of one step and begins that of the next."""

    def __init__(self) -> None:
        self.tool_calls = 0
        self.tokens = _NOTHING

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, ToolCallEnded):
            self.tool_calls += 1

    def spend(self, tokens: Spent) -> None:
        """`tokens` are those of the whole step."""
        self.tokens = tokens

    def taken(self) -> tuple[int, Spent]:
        taken = self.tool_calls, self.tokens
        self.tool_calls, self.tokens = 0, _NOTHING
        return taken
