"""What happens in a run, as data: progress for people, `--json` and the log are all made from these.

`as_json` gives each as it is written by `--json`: its fields under their own names, and `event` with the name of what
happened. Names are stable; fields are added, never renamed or removed.
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
class RunStarted:
    workflow: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """`mode` is `intercept`, `additive` or `native`; it and `provider` are empty for a command."""

    step: str
    kind: Kind
    provider: str = ""
    mode: str = ""
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReady:
    """What the step's agent is, and the tools that it gets from us. A model behind an API has no `version`."""

    step: str
    provider: str
    version: str
    model: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """`command` is what Bash is to run, where that is to be shown; otherwise it is not there."""

    step: str
    tool: str
    source: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEnded:
    """`outcome` is the word of the log: `ok`, `error` (the server's own), or the code of what failed. `is_error` says
    that the tool did run and reports a failure, which is no failure of the call."""

    step: str
    tool: str
    source: str
    outcome: str
    is_error: bool
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpoke:
    """Text of the model on the way to its answer."""

    step: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetried:
    """The agent could not reach its model, and tries again: for the how-manieth time, of how many, and why."""

    step: str
    attempt: int
    most: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something that does not stop the run and that somebody should know. `step` is empty where it is about none."""

    step: str
    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    step: str
    status: Status
    seconds: float
    tool_calls: int
    input_tokens: int
    output_tokens: int
    output: str
    problem: Problem | None
    next: str
    """The state that comes now; empty where the run ends here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """`state` is the terminal state it ended in, empty where it ended without one; `output` is the last step's."""

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


RunEvent = (
    RunStarted
    | StepStarted
    | AgentReady
    | ToolCallStarted
    | ToolCallEnded
    | ModelSpoke
    | ModelRetried
    | Warned
    | StepEnded
    | RunEnded
)
EmitEvent = Callable[[RunEvent], None]

_DATA: Final = frozenset({"output", "text"})
"""What is data, and goes out as it came; everything else may quote what must not be shown."""
_ONLY_IF_GIVEN: Final = frozenset({"command"})
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def event_name(event: RunEvent) -> str:
    """`run_started`, `step_started`, `agent_ready`, `tool_call_started` …"""
    return _WORD.sub("_", type(event).__name__).lower()


def as_json(event: RunEvent, redact: Callable[[str], str]) -> dict[str, Any]:
    """The event for `--json`. Secrets are taken out of all but what steps put out, which is the user's own data."""
    members: dict[str, Any] = {"event": event_name(event)}
    for field in fields(event):
        value = getattr(event, field.name)
        if field.name in _ONLY_IF_GIVEN and not value:
            continue
        members[field.name] = value if field.name in _DATA else _plain(value, redact)
    return members


def _plain(value: object, redact: Callable[[str], str]) -> object:
    if isinstance(value, Problem):
        return {"code": value.code.id, "message": redact(value.message), "hint": redact(value.hint)}
    if isinstance(value, str):
        return redact(value)
    return round(value, 3) if isinstance(value, float) else value
