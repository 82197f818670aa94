"""One agent step with all its texts in place, and the time that it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from trunkline.agents.events import TokenUsage
from trunkline.agents.providers.provider import Mode
from trunkline.agents.runs.run_events import RunEvent, ToolCallEnded
from trunkline.agents.workflow.document import AgentState
from trunkline.agents.workflow.template import Template
from trunkline.core.call import Caller
from trunkline.core.errors import STEP_TIMEOUT, GatewayError, Problem
from trunkline.runtime.overdue import Within
from trunkline.telemetry.span import Span

# What a step is given, and how it ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValues:
    """What texts of a workflow may refer to, as it is when a step begins."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def of(self, template: Template | None) -> str:
        """The text that is meant; empty where there is none."""
        return "" if template is None else template.render(self.inputs, self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`problem` is None where the step did what it was to do. What a failed step put out is kept too."""

    output: str = ""
    problem: Problem | None = None
    exit_code: int | None = None
    """Of a command that ended by itself, or by a signal (128 and its number, as shells say it)."""

    @property
    def exit_status(self) -> int:
        """What conditions compare: 0 where it did what it was to do, and 1 where it failed and has no exit code."""
        return self.exit_code if self.exit_code is not None else int(self.problem is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """`folder` is where the agent works. The time runs from when this is made."""

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
        return mode_of(self.state)

    @property
    def caller(self) -> Caller:
        """As whom the agent calls tools: log lines and spans find their step by it."""
        return Caller(principal=f"step:{self.name}")

    @property
    def left_s(self) -> float:
        """Less than nothing once it is over."""
        return self.began_at + self.state.timeout_s - monotonic()

    @asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None, None]:
        """What is done here ends with the time of the step. Raises GatewayError then."""
        limit = Within(self.left_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise GatewayError(self.too_late()) from None

    def too_late(self, unreachable: str = "") -> Problem:
        """`unreachable` says that the agent's model could not be reached, where that is known."""
        message = f"Step `{self.name}` took longer than {self.state.timeout_s:g} s and was ended"
        hint = "raise the step's `timeout`"
        if unreachable:
            message, hint = f"{message}; {unreachable}", f"see whether its model can be reached from here, or {hint}"
        return Problem(code=STEP_TIMEOUT, message=message, where=self.name, hint=hint)


def mode_of(state: AgentState) -> Mode:
    """What becomes of the agent's own tools."""
    if state.proxy is None:
        return "native"
    return "intercept" if state.proxy.intercept_builtins else "additive"


# What the current step has cost so far: its tool calls, and the tokens of its model. A step that fails or is
# interrupted has cost what it used.

_NOTHING: Final = TokenUsage(0, 0)


class StepUsage:
    """`take` ends the count of one step and begins that of the next."""

    def __init__(self) -> None:
        self.tool_calls = 0
        self.tokens = _NOTHING

    def hear(self, event: RunEvent) -> None:
        if isinstance(event, ToolCallEnded):
            self.tool_calls += 1

    def set_tokens(self, tokens: TokenUsage) -> None:
        """`tokens` are those of the whole step."""
        self.tokens = tokens

    def take(self) -> tuple[int, TokenUsage]:
        take = self.tool_calls, self.tokens
        self.tool_calls, self.tokens = 0, _NOTHING
        return take
