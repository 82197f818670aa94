"""One run of a workflow: from its initial state along the transitions to an end, until nothing of it is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from trunkline.agents.events import TokenUsage
from trunkline.agents.runs import run_events
from trunkline.agents.runs.agent_step import AgentStepRunner
from trunkline.agents.runs.command_step import CommandStepRunner
from trunkline.agents.runs.run_telemetry import RunSpans, RunTelemetry, record_step_result
from trunkline.agents.runs.signals import Interrupt, interrupt_on_signals
from trunkline.agents.runs.step import AgentTask, StepResult, StepUsage
from trunkline.agents.workflow.document import AgentState, CommandState, TerminalState, Workflow
from trunkline.agents.workflow.template import RunValues
from trunkline.config.problems import FileProblem
from trunkline.config.secret_detection import secrets_in
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.errors import (
    AGENT_FAILED,
    COMMAND_FAILED,
    INTERNAL,
    STEP_INTERRUPTED,
    TOO_MANY_STEPS,
    GatewayError,
    Problem,
)
from trunkline.runtime.children import Children
from trunkline.telemetry.redaction import Redactor, one_line

_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The folder that the steps of a run work in, and the user's home and environment."""

    folder: Path
    home: Path
    environ: Mapping[str, str]
    log_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended. `stuck`: something did not end in time and ends only with this process, which must end now."""

    ended: run_events.RunEnded
    stuck: bool


async def run_workflow(
    workflow: Workflow,
    inputs: Mapping[str, str],
    settings: Settings,
    plugins: Mapping[str, SourceSection],
    context: RunContext,
    emit: run_events.EmitEvent,
    redact: Redactor,
    warnings: Sequence[FileProblem] = (),
) -> RunOutcome:
    """Run a workflow to its end, or to the first signal. `emit` gets every event as it happens; the `warnings` about
    its file are logged too."""
    with interrupt_on_signals() as interrupt:
        telemetry = RunTelemetry(settings, emit, redact=redact, log_file=context.log_file, environ=context.environ)
        telemetry.record(warnings)
        usage = StepUsage()

        def on_event(event: run_events.RunEvent) -> None:
            usage.on_event(event)
            telemetry.on_event(event)
            emit(event)

        steps = _StepRunner(workflow, settings, plugins, context, telemetry, on_event, usage)
        executor = WorkflowExecutor(workflow, steps.run, on_event, usage, interrupt)
        try:
            ended = await executor.run(inputs)
            steps.spans.ended(ended)
        finally:
            if not executor.stuck:
                await steps.close()
            with suppress(TimeoutError):  # a collector that does not answer must not delay Ctrl+C
                async with asyncio.timeout(interrupt.left_s):
                    await telemetry.close()
        return RunOutcome(ended=ended, stuck=executor.stuck)


def workflow_redactor(workflow: Workflow, settings: Settings, environ: Mapping[str, str]) -> Redactor:
    """Hides the secrets of the configuration and of the workflow's options."""
    redact = Redactor(settings.secrets(environ), settings.names())
    for options in (state.options for state in workflow.states.values() if isinstance(state, AgentState)):
        given = {"url": options.base_url, "api_key": options.api_key, **options.headers}
        redact.learn(secrets_in("", given, from_outside=True))
    return redact


class _StepRunner:
    """Runs the steps of one run."""

    def __init__(
        self,
        workflow: Workflow,
        settings: Settings,
        plugins: Mapping[str, SourceSection],
        context: RunContext,
        telemetry: RunTelemetry,
        emit: run_events.EmitEvent,
        usage: StepUsage,
    ) -> None:
        self._context = context
        self._children = Children(on_fault=lambda fault: telemetry.events.note("error", "supervisor", fault))
        self._commands = CommandStepRunner(context.environ, settings, telemetry.warn, workflow.path)
        self.spans = RunSpans(telemetry.tracer, workflow, usage)
        self._agents = AgentStepRunner(
            settings,
            plugins,
            telemetry,
            emit,
            usage,
            children=self._children,
            environ=context.environ,
            home=context.home,
            workflow=workflow.path,
        )

    async def run(self, step: Step, values: RunValues) -> StepResult:
        written = values.of(step.dir)
        folder = _step_folder(self._context.folder, written)
        model = values.of(step.options.model) if isinstance(step, AgentState) else ""
        with self.spans.step(step, model) as span:
            if isinstance(folder, str):
                code = COMMAND_FAILED if isinstance(step, CommandState) else AGENT_FAILED
                message = f"The folder of step `{step.name}` {folder}: {one_line(written, _SHOWN)}"
                hint = "`dir` is relative to the folder of the run; name a folder elsewhere by its full path"
                result = StepResult(problem=Problem(code=code, message=message, hint=hint))
            elif isinstance(step, CommandState):
                result = await self._commands.run(step, values, folder)
            else:
                prompt = values.of(step.prompt)
                task = AgentTask(state=step, prompt=prompt, model=model, folder=folder, span=span)
                result = await self._agents.run(task)
            if result.problem is not None and not result.problem.where:
                result = replace(result, problem=replace(result.problem, where=step.name))
            if span is not None:
                record_step_result(span, result)
            return result

    async def close(self) -> None:
        await self._commands.close()
        await self._children.close()


def _step_folder(base: Path, written: str) -> Path | str:
    """The folder that a step works in, or why it cannot. Links must not lead a relative path out of the run's folder: a
    repository, or an earlier agent, would choose where the step's tools write."""
    base = base.resolve()
    try:
        meant = Path(os.path.normpath(base / Path(written).expanduser()))
        folder = meant.resolve()
        if not folder.is_dir():
            return "does not exist"
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, an unknown user
        return "does not exist"
    is_within = meant.is_relative_to(base) and not Path(written).expanduser().is_absolute()
    if is_within and not folder.is_relative_to(base):
        return f"is a link that leads out of {base}"
    return folder


MOST_STEPS: Final = 1000
Step = AgentState | CommandState
RunStep = Callable[[Step, RunValues], Coroutine[Any, Any, StepResult]]
"""Runs one step. Cancelling it ends the step, and everything that it started, within a few seconds."""


@dataclass(slots=True)
class _RunTotals:
    steps: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, tool_calls: int, tokens: TokenUsage) -> None:
        self.steps += 1
        self.tool_calls += tool_calls
        self.input_tokens += tokens.input_tokens
        self.output_tokens += tokens.output_tokens


class WorkflowExecutor:
    """Goes through the states of a workflow. `stuck` is set if an interrupted step did not end in time, so that only
    the end of this process ends it."""

    def __init__(
        self, workflow: Workflow, run_step: RunStep, emit: run_events.EmitEvent, usage: StepUsage, interrupt: Interrupt
    ) -> None:
        self._workflow = workflow
        self._run_step = run_step
        self._emit = emit
        self._usage = usage
        self._interrupt = interrupt
        self._last = StepResult()
        self._totals = _RunTotals()
        self._started_at = monotonic()
        self.stuck = False

    async def run(self, inputs: Mapping[str, str]) -> run_events.RunEnded:
        workflow = self._workflow
        self._emit(run_events.RunStarted(workflow=workflow.name, file=str(workflow.path)))
        name, values = workflow.initial, RunValues(inputs=inputs)
        while True:
            state = workflow.states[name]
            if isinstance(state, TerminalState):
                status: run_events.Status = "success" if state.success else "failure"
                problem = None if state.success else self._last.problem
                return self._ended(status, state=state.name, message=values.of(state.message), problem=problem)
            if self._totals.steps >= MOST_STEPS:
                message = f"The run took {MOST_STEPS} steps without reaching an end; the next would be `{name}`"
                hint = "check the transitions of the states in this loop"
                return self._ended("failure", problem=Problem(code=TOO_MANY_STEPS, message=message, hint=hint))
            values, name = await self._step(state, values)
            problem = self._last.problem
            if self._interrupt.signal:
                return self._ended("interrupted", problem=problem)
            if not name:
                return self._ended("failure" if problem else "success", problem=problem)

    # -- steps ----------------------------------------------------------------------------------------------------

    async def _step(self, state: Step, values: RunValues) -> tuple[RunValues, str]:
        """Run a step: the values after it, and the state that follows."""
        started_at = monotonic()
        started = run_events.StepStarted(step=state.name, kind="command", timeout_s=state.timeout_s)
        if isinstance(state, AgentState):
            started = replace(started, kind="agent", provider=state.provider, mode=state.mode)
        self._emit(started)
        result = await self._attempt(state, values)
        if self._interrupt.signal:
            message = f"Interrupted by {self._interrupt.signal}: the step and everything it started were stopped"
            result = replace(result, problem=Problem(code=STEP_INTERRUPTED, message=message, where=state.name))
        tool_calls, tokens = self._usage.take()
        values = replace(
            values,
            outputs={**values.outputs, state.name: result.output},
            exit_codes={**values.exit_codes, state.name: result.exit_status},
        )
        self._last = result
        self._totals.add(tool_calls, tokens)
        status: run_events.Status = "interrupted"
        following = ""
        if not self._interrupt.signal:
            status = "success" if result.problem is None else "failure"
            usual = state.on_success if result.problem is None else state.on_failure
            taken = (each.goto for each in state.transitions if each.when is None or each.when.holds(values))
            following = next(taken, usual)
        self._emit(
            run_events.StepEnded(
                step=state.name,
                status=status,
                seconds=monotonic() - started_at,
                tool_calls=tool_calls,
                input_tokens=tokens.input_tokens,
                output_tokens=tokens.output_tokens,
                output=result.output,
                problem=result.problem,
                next=following,
            )
        )
        return values, following

    async def _attempt(self, state: Step, values: RunValues) -> StepResult:
        """Run the step in a task of its own, which signals can end without ending the run."""
        task = asyncio.get_running_loop().create_task(self._run_step(state, values), name=f"step {state.name}")
        try:
            await self._interrupt.until_ended(task)
        finally:
            self.stuck = not task.done()
        return StepResult() if self.stuck else _result_of(task, state)

    # -- the end --------------------------------------------------------------------------------------------------

    def _ended(
        self, status: run_events.Status, *, state: str = "", message: str = "", problem: Problem | None
    ) -> run_events.RunEnded:
        ended = run_events.RunEnded(
            status=status,
            state=state,
            message=message,
            seconds=monotonic() - self._started_at,
            **asdict(self._totals),
            output=self._last.output,
            problem=problem,
        )
        self._emit(ended)
        return ended


def _result_of(task: asyncio.Task[StepResult], state: Step) -> StepResult:
    """The result of a finished task, whatever it ended with."""
    error = None if task.cancelled() else task.exception()
    if error is None and not task.cancelled():
        return task.result()
    if isinstance(error, GatewayError):
        return StepResult(problem=replace(error.problem, where=error.problem.where or state.name))
    if error is not None and not isinstance(error, Exception):
        raise error
    what = "it was cancelled" if error is None else f"{type(error).__name__}: {error}"
    message = f"Step `{state.name}` failed with an internal error: {what}"
    return StepResult(problem=Problem(code=INTERNAL, message=message, where=state.name))
