"""What people see of a run: a line for each event, what is waited for now, and a table of its steps at the end.

This only makes text; the command line shows it. Nothing in it can drive a terminal, and no secret of the configuration
is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from trunkline.agents.providers import PROVIDERS
from trunkline.agents.runs import run_events
from trunkline.agents.runs.agent_gateway_settings import BUILTIN
from trunkline.core.errors import CODES, Problem
from trunkline.telemetry.redaction import one_line

_NAME: Final = 128
_TEXT: Final = 2000
_SHORT_TEXT: Final = 80
_MODES: Final = {"intercept": "only our tools", "additive": "our tools beside its own", "native": "its own tools"}


class RunProgress:
    """Events as lines for people. `redact` takes secrets out of a text."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def lines(self, event: run_events.RunEvent) -> Iterable[str]:
        """The lines to show of an event; none of many."""
        match event:
            case run_events.RunStarted():
                yield f"run {self._name(event.workflow)} ({self._name(event.file)})"
            case run_events.StepStarted():
                yield f"step {self._name(event.step)}: {_kind(event)}"
            case run_events.AgentReady():
                yield f"  {self._ready(event)}"
            case run_events.ToolCallStarted() | run_events.ToolCallEnded():
                yield from self._call(event)
            case run_events.ModelRetried():
                yield f"  the model cannot be reached, {self._retry(event)}"
            case run_events.Warned():
                yield from self._message("warning", event.code, event.message, event.hint)
            case run_events.StepEnded():
                yield f"step {self._name(event.step)}: {event.status} in {event.seconds:.1f} s{_usage(event)}"
                yield from self._problem(event.problem)
            case run_events.RunEnded():
                yield self._end(event)
                if event.steps == 0 or (event.problem is not None and not event.problem.where):
                    yield from self._problem(event.problem)
            case _:
                pass

    def activity(self, event: run_events.RunEvent) -> str:
        """What the run waits for after an event; empty if that has not changed."""
        match event:
            case run_events.StepStarted():
                what = event.provider or "command"
            case run_events.AgentReady() | run_events.ToolCallEnded():
                what = "the model"
            case run_events.ToolCallStarted():
                what = self._tool(event)
            case run_events.ModelSpoke():
                what = self._line(event.text, _SHORT_TEXT)
            case run_events.ModelRetried():
                what = f"the model, {self._line(self._retry(event), _SHORT_TEXT)}"
            case _:
                return ""
        return f"{self._name(event.step)}: {what}"

    def _call(self, event: run_events.ToolCallStarted | run_events.ToolCallEnded) -> Iterable[str]:
        if isinstance(event, run_events.ToolCallEnded):
            yield f"  {self._tool(event)} {_how(event)} in {event.ms:.0f} ms"
        elif event.command:
            yield f"  {self._tool(event)}: {one_line(self._redact(event.command), _TEXT)}"

    def _retry(self, event: run_events.ModelRetried) -> str:
        return f"try {event.attempt} of {event.most}: {self._line(event.reason, _TEXT)}"

    def _ready(self, event: run_events.AgentReady) -> str:
        agent = self._name(" ".join(part for part in (event.provider, event.version, event.model) if part))
        tools = f"{len(event.tools)} tool{'' if len(event.tools) == 1 else 's'}"
        shown = self._line(", ".join(event.tools), _TEXT)
        return f"{agent}: {tools}{f' ({shown})' if shown else ''}"

    def _end(self, event: run_events.RunEnded) -> str:
        state = f" in state {self._name(event.state)}" if event.state else ""
        message = f": {self._line(event.message, _TEXT)}" if event.message else ""
        return f"run: {event.status}{state} after {event.seconds:.1f} s{message}"

    def _problem(self, problem: Problem | None) -> Iterable[str]:
        if problem is not None:
            yield from self._message("error", problem.code.id, problem.message, problem.hint)

    def _message(self, kind: str, code: str, message: str, hint: str) -> Iterable[str]:
        yield f"  {kind}: {code + ': ' if code else ''}{self._line(message, _TEXT)}"
        if hint:
            yield f"  hint: {self._line(hint, _TEXT)}"

    def _tool(self, event: run_events.ToolCallStarted | run_events.ToolCallEnded) -> str:
        return self._name(event.tool if event.source in ("", BUILTIN) else f"{event.source}.{event.tool}")

    def _name(self, text: str) -> str:
        return self._line(text, _NAME)

    def _line(self, text: str, limit: int) -> str:
        return one_line(" ".join(self._redact(text).split()), limit)


def _kind(event: run_events.StepStarted) -> str:
    if event.kind == "command":
        return "command"
    has_own_tools = event.mode != "native" or event.provider in PROVIDERS
    return f"{event.provider}, {_MODES[event.mode] if has_own_tools else 'no tools'}"


def _how(event: run_events.ToolCallEnded) -> str:
    code = CODES.get(event.outcome)
    if code is not None:
        return f"failed ({event.outcome}: {code.title})"
    if event.outcome == "error":
        return "was refused by its server"
    return "failed" if event.is_error else event.outcome


def _usage(event: run_events.StepEnded | run_events.RunEnded) -> str:
    calls = f", {event.tool_calls} tool call{'' if event.tool_calls == 1 else 's'}" if event.tool_calls else ""
    tokens = event.input_tokens + event.output_tokens
    return f"{calls}, {tokens:,} tokens" if tokens else calls


_HEAD: Final = ("step", "status", "seconds", "tool calls", "tokens in", "tokens out")
_LEFT: Final = 2
"""Columns of text; the others hold numbers."""
_SUMMARY_NAME: Final = 48
_MOST: Final = 50
"""The most steps shown; of a longer run the last ones."""


class RunSummary:
    """Collects the steps of a run for a table at its end."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._steps: list[run_events.StepEnded] = []
        self._end: run_events.RunEnded | None = None

    def on_event(self, event: run_events.RunEvent) -> None:
        if isinstance(event, run_events.StepEnded):
            self._steps.append(event)
        elif isinstance(event, run_events.RunEnded):
            self._end = event

    def lines(self) -> list[str]:
        if self._end is None or not self._steps:
            return []
        shown = self._steps[-_MOST:]
        rows = [_HEAD, *(self._row(step.step, step) for step in shown), self._row("all", self._end)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = [str.ljust] * _LEFT + [str.rjust] * (len(_HEAD) - _LEFT)
        lines = [
            "  ".join(align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)).rstrip()
            for row in rows
        ]
        left_out = len(self._steps) - len(shown)
        return [*lines[:1], f"({left_out} earlier steps)", *lines[1:]] if left_out else lines

    def _row(self, name: str, event: run_events.StepEnded | run_events.RunEnded) -> tuple[str, ...]:
        return (
            one_line(self._redact(name), _SUMMARY_NAME),
            event.status,
            f"{event.seconds:.1f}",
            str(event.tool_calls),
            f"{event.input_tokens:,}",
            f"{event.output_tokens:,}",
        )
