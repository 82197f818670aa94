"""A step that is run: its task, how it ended, and what it has used."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from trunkline.agents.events import TokenUsage
from trunkline.agents.providers.provider import Mode
from trunkline.agents.runs.run_events import RunEvent, ToolCallEnded
from trunkline.agents.workflow.document import AgentState
from trunkline.core.call import Caller
from trunkline.core.errors import STEP_TIMEOUT, GatewayError, Problem
from trunkline.runtime.deadlines import TimeLimit
from trunkline.telemetry.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """How a step ended: `problem` is None if it succeeded. The output of a failed step is kept too."""

    output: str = ""
    problem: Problem | None = None
    exit_code: int | None = None
    """Of a command that exited, or was ended by a signal (128 plus its number, as in shells)."""

    @property
    def exit_status(self) -> int:
        """What conditions compare: without an exit code, 0 for success and 1 for failure."""
        return self.exit_code if self.exit_code is not None else int(self.problem is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """An agent step with its templates rendered. `folder` is where the agent works; the timeout runs from now."""

    state: AgentState
    prompt: str
    model: str
    folder: Path
    span: Span | None
    began_at: float = field(default_factory=monotonic)

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def mode(self) -> Mode:
        return self.state.mode

    @property
    def caller(self) -> Caller:
        """The caller of the agent's tool calls, by which log lines and spans find their step."""
        return Caller(principal=f"step:{self.name}")

    @property
    def left_s(self) -> float:
        """The time that is left; negative once it is over."""
        return self.began_at + self.state.timeout_s - monotonic()

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None, None]:
        """Limits its body to the time of the step. Raises GatewayError when that is over."""
        limit = TimeLimit(self.left_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise GatewayError(self.timeout_problem()) from None

    def timeout_problem(self, unreachable: str = "") -> Problem:
        """`unreachable` says that the agent's model could not be reached, if that is known."""
        message = f"Step `{self.name}` took longer than {self.state.timeout_s:g} s and was stopped"
        hint = "raise the step's `timeout`"
        if unreachable:
            message, hint = f"{message}; {unreachable}", f"see whether its model can be reached from here, or {hint}"
        return Problem(code=STEP_TIMEOUT, message=message, where=self.name, hint=hint)


_NOTHING: Final = TokenUsage(0, 0)


class StepUsage:
    """The tool calls and tokens of the current step, even if it fails. `take` returns and resets them."""

    def __init__(self) -> None:
        self.tool_calls = 0
        self.tokens = _NOTHING
        """Those of the whole step so far."""

    def on_event(self, event: RunEvent) -> None:
        self.tool_calls += isinstance(event, ToolCallEnded)

    def take(self) -> tuple[int, TokenUsage]:
        used = self.tool_calls, self.tokens
        self.tool_calls, self.tokens = 0, _NOTHING
        return used
