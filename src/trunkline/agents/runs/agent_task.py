"""One agent step with all its texts in place, and the time that it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from trunkline.agents.plan import Mode
from trunkline.agents.workflow.document import AgentState
from trunkline.core.call import Caller
from trunkline.core.errors import STEP_TIMEOUT, GatewayError, Problem
from trunkline.runtime.overdue import Within
from trunkline.telemetry.span import Span


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

    def too_late(self, unreached: str = "") -> Problem:
        """`unreached` says that the agent's model could not be reached, where that is known."""
        message = f"Step `{self.name}` took longer than {self.state.timeout_s:g} s and was ended"
        hint = "raise the step's `timeout`"
        if unreached:
            message, hint = f"{message}; {unreached}", f"see whether its model can be reached from here, or {hint}"
        return Problem(code=STEP_TIMEOUT, message=message, where=self.name, hint=hint)


def mode_of(state: AgentState) -> Mode:
    """What becomes of the agent's own tools."""
    if state.proxy is None:
        return "native"
    return "intercept" if state.proxy.intercept_builtins else "additive"
