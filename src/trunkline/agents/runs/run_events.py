"""The events of a run, as data: progress for people, `--json` and the log are all made from these.

`as_json` gives each as `--json` writes it: its fields under their own names, and its name as `event`. Names are stable;
fields are added, never renamed or removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from trunkline.core.errors import Problem

Status = Literal["success", "failure", "interrupted"]
Kind = Literal["agent", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Base class of the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent(RunEvent):
    """Base class of the events that concern a step."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    workflow: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(StepEvent):
    """`mode` is `intercept`, `additive` or `native`; it and `provider` are empty for a command."""

    kind: Kind
    provider: str = ""
    mode: str = ""
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReady(StepEvent):
    """The step's agent is about to start, with these tools of ours. A model behind an API has no `version`."""

    provider: str
    version: str
    model: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(StepEvent):
    """`command` is what Bash is to run, if that may be shown; otherwise it is left out."""

    tool: str
    source: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEnded(StepEvent):
    """`outcome` is as in the log: `ok`, `error` (the server's own), or an error code. `is_error` says that the tool ran
    and reports a failure, which is not a failure of the call."""

    tool: str
    source: str
    outcome: str
    is_error: bool
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpoke(StepEvent):
    """Text of the model on the way to its answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetried(StepEvent):
    """The agent could not reach its model and tries again: the attempt, the most there will be, and why."""

    attempt: int
    most: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(StepEvent):
    """A problem that does not stop the run. `step` is empty if it concerns none."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(StepEvent):
    status: Status
    seconds: float
    tool_calls: int
    input_tokens: int
    output_tokens: int
    output: str
    problem: Problem | None
    next: str
    """The state that follows; empty if the run ends here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(RunEvent):
    """`state` is the terminal state it ended in, empty if it ended without one; `output` is the last step's."""

    status: Status
    state: str
    message: str
    seconds: float
    steps: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    output: str
    problem: Problem | None


EmitEvent = Callable[[RunEvent], None]

_DATA: Final = frozenset({"output", "text"})
"""The user's own data, which is not redacted; all other fields may quote secrets."""

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def event_name(event: RunEvent) -> str:
    """`run_started`, `step_started`, `agent_ready`, `tool_call_started` …"""
    return _WORD.sub("_", type(event).__name__).lower()


def as_json(event: RunEvent, redact: Callable[[str], str]) -> dict[str, Any]:
    """The event for `--json`, redacted except for the output of steps, which is the user's own data."""
    members: dict[str, Any] = {"event": event_name(event)}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name == "command" and not value:  # only if given
            continue
        if isinstance(value, Problem):
            value = {"code": value.code.id, "message": redact(value.message), "hint": redact(value.hint)}
        elif isinstance(value, str) and field.name not in _DATA:
            value = redact(value)
        elif isinstance(value, float):
            value = round(value, 3)
        members[field.name] = value
    return members
