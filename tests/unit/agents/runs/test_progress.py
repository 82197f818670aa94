"""Progress of a run for people and as events for programs."""

from __future__ import annotations

import json

import pytest

from trunkline.agents.runs.progress import RunProgress, RunSummary
from trunkline.agents.runs.run_events import (
    AgentReady,
    ModelRetried,
    ModelSpoke,
    RunEnded,
    RunEvent,
    StepEnded,
    StepStarted,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
    as_json,
    event_name,
)
from trunkline.core.errors import DEADLINE, STEP_TIMEOUT, Problem
from trunkline.telemetry.redaction import Redactor

SECRET = "correct-horse-battery"
HOSTILE = f"\x1b[2J\nstep x: success {SECRET}"
REDACT = Redactor([SECRET])
PROBLEM = Problem(code=STEP_TIMEOUT, message=HOSTILE, where="a", hint=HOSTILE)
SPENT = {"tool_calls": 2, "input_tokens": 1200, "output_tokens": 34}
STEP = StepEnded(step="a", status="failure", seconds=1.26, output=SECRET, problem=PROBLEM, next="", **SPENT)
END = RunEnded(
    status="failure", state="end", message=HOSTILE, seconds=2.0, steps=1, output=SECRET, problem=PROBLEM, **SPENT
)
EVENTS: list[RunEvent] = [
    StepStarted(step=HOSTILE, kind="agent", provider="claude", mode="intercept", timeout_s=1.0),
    AgentReady(step=HOSTILE, provider="claude", version=HOSTILE, model=HOSTILE, tools=(HOSTILE,)),
    ToolCallStarted(step=HOSTILE, tool=HOSTILE, source=HOSTILE),
    ToolCallEnded(step="a", tool=HOSTILE, source=HOSTILE, outcome="ok", is_error=False, ms=1.0),
    ModelSpoke(step="a", text=HOSTILE),
    ModelRetried(step="a", attempt=1, most=10, reason=HOSTILE),
    Warned(step="a", code="", message=HOSTILE, hint=HOSTILE),
    STEP,
    END,
]


def shown(event: RunEvent) -> list[str]:
    return list(RunProgress(REDACT).lines(event))


@pytest.mark.law
def test_nothing_from_outside_drives_a_terminal_or_makes_lines_of_its_own_and_no_secret_is_shown() -> None:
    progress, summary = RunProgress(REDACT), RunSummary(REDACT)
    for event in EVENTS:
        summary.on_event(event)
        for line in [*progress.lines(event), progress.activity(event), *summary.lines()]:
            assert line.isprintable()
            assert SECRET not in line


def test_a_call_is_shown_with_how_it_ended_and_how_long_it_took() -> None:
    def call(source: str, outcome: str, *, is_error: bool = False) -> str:
        [line] = shown(ToolCallEnded(step="a", tool="t", source=source, outcome=outcome, is_error=is_error, ms=12.6))
        return line.strip()

    assert call("builtin", "ok") == "t ok in 13 ms"
    assert call("jobs", "ok", is_error=True) == "jobs.t failed in 13 ms"
    assert call("jobs", DEADLINE.id).startswith(f"jobs.t failed ({DEADLINE.id}: ")
    assert call("jobs", "error") == "jobs.t was refused by its server in 13 ms"


def test_tries_to_reach_the_model_are_shown_and_waited_for() -> None:
    event = ModelRetried(step="a", attempt=2, most=10, reason="status 529")
    [line] = shown(event)
    for text in (line, RunProgress(REDACT).activity(event)):
        assert "try 2 of 10" in text
        assert "status 529" in text


def test_a_step_is_shown_with_its_end_what_it_cost_and_what_went_wrong() -> None:
    first, error, hint = shown(STEP)
    assert first == "step a: failure in 1.3 s, 2 tool calls, 1,234 tokens"
    assert STEP_TIMEOUT.id in error
    assert hint.strip().startswith("hint: ")


def test_what_is_waited_for_is_the_tool_and_then_the_model_again() -> None:
    activity = RunProgress(REDACT).activity
    assert activity(ToolCallStarted(step="a", tool="Bash", source="builtin")) == "a: Bash"
    ended = ToolCallEnded(step="a", tool="Bash", source="builtin", outcome="ok", is_error=False, ms=1.0)
    assert activity(ended) == "a: the model"
    assert activity(STEP) == ""


def test_the_summary_has_a_line_for_each_step_and_one_for_all_and_shows_the_last_of_many() -> None:
    summary = RunSummary(REDACT)
    for _ in range(60):
        summary.on_event(STEP)
    assert summary.lines() == []  # it is not over
    summary.on_event(END)
    lines = summary.lines()
    assert len(lines) == 1 + 1 + 50 + 1
    assert lines[0].split()[:2] == ["step", "status"]
    assert lines[-1].split() == ["all", "failure", "2.0", "2", "1,200", "34"]


def test_programs_get_every_field_and_data_as_it_is() -> None:
    encoded = as_json(STEP, REDACT)
    assert event_name(STEP) == encoded["event"] == "step_ended"
    assert encoded["output"] == SECRET
    assert encoded["seconds"] == 1.26
    assert encoded["problem"]["code"] == STEP_TIMEOUT.id
    assert SECRET not in json.dumps(encoded["problem"])
