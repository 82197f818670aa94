"""Records a run besides what people see of it: the log of calls, spans, and the secrets that appear in neither.

People see progress on stderr, one line for each call, so the structured log is not mixed into it: its JSON lines go to
the file of `--log`, and nowhere without one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from trunkline.agents.runs import run_events
from trunkline.agents.runs.step import StepResult, StepUsage
from trunkline.agents.workflow.document import AgentState, CommandState, Workflow
from trunkline.config.problems import FileProblem
from trunkline.config.settings import Settings
from trunkline.core.call import Call, Result
from trunkline.core.errors import BAD_VALUE, GatewayError, Problem
from trunkline.core.events import Events, Level, LogEvent
from trunkline.core.source import Health
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.router.router import Router
from trunkline.telemetry.call_log import CallLines, CallLog
from trunkline.telemetry.call_summary import outcome_word, tool_failed
from trunkline.telemetry.redaction import Redactor
from trunkline.telemetry.span import Span, Value
from trunkline.telemetry.tracing import Tracer, make_tracer


class RunTelemetry:
    """The log and the tracer of a run. `emit` gets warnings; every event of the run must be passed to `on_event`."""

    def __init__(
        self,
        settings: Settings,
        emit: run_events.EmitEvent,
        *,
        redact: Redactor,
        log_file: Path | None,
        environ: Mapping[str, str],
    ) -> None:
        self.redact = redact
        self.events = Events()
        self._emit = emit
        self._log: CallLog | None = None
        if log_file is not None:
            try:
                self._log_fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                message = f"The log file cannot be written: {error.strerror}"
                raise GatewayError(Problem(code=BAD_VALUE, message=message, where=str(log_file))) from error
            level = cast(Level, settings.gateway.log.level)
            self._log = CallLog(stream_fd=self._log_fd, level=level, format="json", redactor=redact)
        self.tracer = make_tracer(
            settings.gateway.telemetry, environ=environ, redact=redact, events=self.events, folder=settings.path.parent
        )
        self._lines: dict[str, CallLines] = {}
        self._journal = Events()
        if self._log is not None:
            self._log.attach(self._journal)
        self._attach(self.events, "")

    def events_of(self, step: str) -> Events:
        """Events for the gateway of one step: they are logged, and emitted if something is wrong."""
        events = Events()
        self._attach(events, step)
        return events

    def follow(self, step: str, router: Router, command_of: Callable[[Call], str] | None) -> None:
        """Log the calls of a step's router under the names that callers know, with the command of `command_of`."""
        if self._log is not None:
            self._lines[step].follow(router, command_of)

    def warn(self, step: str, problem: Problem) -> None:
        """Report a problem that does not end the step."""
        self._emit(run_events.Warned(step=step, code=problem.code.id, message=problem.message, hint=problem.hint))
        self._write("warning", "run", problem.message, step=step, code=problem.code.id, hint=problem.hint)

    def record(self, warnings: Iterable[FileProblem]) -> None:
        """Log the problems of the workflow file that the user has seen."""
        for problem in warnings:
            where, code = problem.where, problem.code.id
            self._write("warning", "workflow", problem.message, step=problem.step, code=code, where=where)

    def on_event(self, event: run_events.RunEvent) -> None:
        """Log the start and the end of steps, and the end of the run."""
        match event:
            case run_events.StepStarted():
                self._write(
                    "info", "step_started", event.step, step=event.step, provider=event.provider, mode=event.mode
                )
            case run_events.StepEnded():
                code = "" if event.problem is None else event.problem.code.id
                level: Level = "info" if event.problem is None else "warning"
                self._write(
                    level, "step_ended", event.status, step=event.step, code=code, seconds=round(event.seconds, 3)
                )
            case run_events.RunEnded():
                self._write("info", "run_ended", event.status, steps=event.steps, seconds=round(event.seconds, 3))
            case _:
                pass

    async def close(self) -> None:
        try:
            if self.tracer is not None:
                await self.tracer.close()
        finally:
            if self._log is not None:
                self._log.close()
                os.close(self._log_fd)

    def _attach(self, events: Events, step: str) -> None:
        if self._log is not None:
            self._lines[step] = self._log.attach(events, None if self.tracer is None else self.tracer.ids_of)

        def on_note(note: LogEvent) -> None:
            if note.level in ("warning", "error"):
                fields = {name: str(value) for name, value in note.fields}
                code, hint = fields.get("code", ""), fields.get("hint", "")
                self._emit(run_events.Warned(step=step, code=code, message=note.message, hint=hint))

        def on_health(source: str, health: Health) -> None:
            if health.state in ("down", "auth_required"):
                message = f"{source} is {health.state}: {health.reason}"
                self._emit(run_events.Warned(step=step, code="", message=message, hint=health.hint))

        events.noted.append(on_note)
        events.health.append(on_health)

    def _write(self, level: Level, event: str, message: str, **fields: object) -> None:
        """Write to the log only; people are told by events."""
        self._journal.note(level, event, message, **{name: value for name, value in fields.items() if value})


_INTERRUPTED = "interrupted"


class RunSpans:
    """The spans of a run: one for the workflow and one for each step, with its tool calls below."""

    def __init__(self, tracer: Tracer | None, workflow: Workflow, usage: StepUsage) -> None:
        self._tracer = tracer
        self._usage = usage
        named: dict[str, Value] = {"workflow.name": workflow.name}
        if workflow.version:
            named["workflow.version"] = workflow.version
        self._run = None if tracer is None else tracer.begin(f"workflow.{workflow.name}", attributes=named)

    @contextmanager
    def step(self, state: AgentState | CommandState, model: str) -> Generator[Span | None, None, None]:
        """The span of a step; None without a tracer. A step that ends without a result was interrupted."""
        if self._tracer is None:
            yield None
            return
        span = self._tracer.begin(f"step.{state.name}", parent=self._run, attributes=_attributes(state, model))
        try:
            yield span
        except BaseException:
            span.set("step.status", _INTERRUPTED)
            span.fail(_INTERRUPTED)
            raise
        finally:
            tokens = self._usage.tokens
            if tokens.input_tokens or tokens.output_tokens:
                span.set("gen_ai.usage.input_tokens", tokens.input_tokens)
                span.set("gen_ai.usage.output_tokens", tokens.output_tokens)
            span.end()

    def ended(self, ended: run_events.RunEnded) -> None:
        if self._run is None:
            return
        self._run.set("workflow.status", ended.status)
        self._run.set("workflow.steps", ended.steps)
        if ended.problem is not None:
            self._run.fail(ended.problem.code.id, ended.problem.message)
        elif ended.status != "success":
            self._run.fail(ended.status, ended.message)
        self._run.end()


def record_step_result(span: Span, result: StepResult) -> None:
    span.set("step.status", "success" if result.problem is None else "failure")
    if result.problem is not None:
        span.fail(result.problem.code.id, result.problem.message)


def _attributes(state: AgentState | CommandState, model: str) -> dict[str, Value]:
    if isinstance(state, CommandState):
        return {"step.name": state.name, "step.kind": "command"}
    attributes: dict[str, Value] = {
        "step.name": state.name,
        "step.kind": "agent",
        "step.provider": state.provider,
        "step.mode": state.mode,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": state.provider,
    }
    return attributes | ({"gen_ai.request.model": model} if model else {})


class ToolCallEvents:
    """Emits the tool calls of a step's router as events of the run. `command_of` gives the command that a call runs, as
    it may be shown."""

    def __init__(
        self, step: str, emit: run_events.EmitEvent, router: Router, command_of: Callable[[Call], str] | None
    ) -> None:
        self._step = step
        self._emit = emit
        self._command_of = command_of
        self._begun: set[Call] = set()
        self._loop = asyncio.get_running_loop()
        router.events.call_done.append(self._ended)
        others = router.on_call

        def began(call: Call) -> None:
            if others is not None:
                others(call)
            if call.method == TOOLS_CALL:
                self._loop.call_soon(self._began, call)  # the tool and its source are known a moment later

        router.on_call = began

    def _began(self, call: Call) -> None:
        if not call.done:
            self._emit_start(call)
            self._begun.add(call)

    def _emit_start(self, call: Call) -> None:
        command = "" if self._command_of is None else self._command_of(call)
        self._emit(run_events.ToolCallStarted(step=self._step, tool=call.tool, source=call.source, command=command))

    def _ended(self, call: Call, seconds: float) -> None:
        if call.method != TOOLS_CALL:
            return
        if call not in self._begun:
            self._emit_start(call)
        self._begun.discard(call)
        outcome = call.outcome
        self._emit(
            run_events.ToolCallEnded(
                step=self._step,
                tool=call.tool,
                source=call.source,
                outcome=outcome_word(outcome),
                is_error=isinstance(outcome, Result) and tool_failed(outcome),
                ms=round(seconds * 1000, 3),
            )
        )
