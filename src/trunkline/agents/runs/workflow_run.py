"""One run of one workflow with everything it needs, from its first step until nothing of it is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trunkline.agents.runs.agent_step import AgentSteps
from trunkline.agents.runs.agent_task import AgentTask
from trunkline.agents.runs.command_step import CommandSteps
from trunkline.agents.runs.executor import Executor, Step
from trunkline.agents.runs.interrupt import listening
from trunkline.agents.runs.run_events import RunEnded, RunEvent, Tell
from trunkline.agents.runs.run_spans import RunSpans, StepSpan
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.step_costs import StepCosts
from trunkline.agents.runs.step_result import StepResult, Values
from trunkline.agents.workflow.document import AgentState, CommandState, Workflow
from trunkline.config.report import FileProblem
from trunkline.config.secret_values import secrets_in
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.errors import AGENT_FAILED, COMMAND_FAILED, Problem
from trunkline.runtime.children import Children
from trunkline.telemetry.redact import Redactor
from trunkline.telemetry.safe_text import one_line

_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Where a run takes place: the folder its steps work in, and the user whose it is."""

    folder: Path
    home: Path
    environ: Mapping[str, str]
    log_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """`stuck` says that something did not end in time: it ends with this process, which must end now."""

    ended: RunEnded
    stuck: bool


async def run_workflow(
    workflow: Workflow,
    inputs: Mapping[str, str],
    settings: Settings,
    plugins: Mapping[str, SourceSection],
    place: RunPlace,
    tell: Tell,
    redact: Redactor,
    told: Sequence[FileProblem] = (),
) -> RunOutcome:
    """Run it to its end, or to the first signal. `tell` hears of everything as it happens; what was `told` of its file
    before is logged, too."""
    with listening() as interrupt:
        telemetry = RunTelemetry(settings, tell, redact=redact, log_file=place.log_file, environ=place.environ)
        telemetry.record(told)
        costs = StepCosts()

        def tell_all(event: RunEvent) -> None:
            costs.hear(event)
            telemetry.hear(event)
            tell(event)

        steps = _Steps(workflow, settings, plugins, place, telemetry, tell_all, costs)
        executor = Executor(workflow, steps.run, tell_all, costs, interrupt)
        try:
            ended = await executor.run(inputs)
            steps.spans.ended(ended)
        finally:
            if not executor.stuck:
                await steps.close()
            with suppress(TimeoutError):  # a collector that does not answer keeps nobody who pressed Ctrl+C
                async with asyncio.timeout(interrupt.left_s):
                    await telemetry.close()
        return RunOutcome(ended=ended, stuck=executor.stuck)


def secrets_of(workflow: Workflow, settings: Settings, environ: Mapping[str, str]) -> Redactor:
    """Hides what neither people nor logs may see: of the configuration, and of the workflow's options."""
    redact = Redactor(settings.secrets(environ), settings.names())
    for options in (state.options for state in workflow.states.values() if isinstance(state, AgentState)):
        given = {"url": options.base_url, "api_key": options.api_key, **options.headers}
        redact.learn(secrets_in("", given, from_outside=True))
    return redact


class _Steps:
    """Whatever runs steps, for one run."""

    def __init__(
        self,
        workflow: Workflow,
        settings: Settings,
        plugins: Mapping[str, SourceSection],
        place: RunPlace,
        telemetry: RunTelemetry,
        tell: Tell,
        costs: StepCosts,
    ) -> None:
        self._place = place
        self._children = Children(on_fault=lambda fault: telemetry.events.note("error", "supervisor", fault))
        self._commands = CommandSteps(place.environ, settings, telemetry.warn, workflow.path)
        self.spans = RunSpans(telemetry.tracer, workflow, costs)
        self._agents = AgentSteps(
            settings,
            plugins,
            telemetry,
            tell,
            costs,
            children=self._children,
            environ=place.environ,
            home=place.home,
            workflow=workflow.path,
        )

    async def run(self, step: Step, values: Values) -> StepResult:
        folder = _folder(self._place.folder, values.of(step.dir))
        model = values.of(step.options.model) if isinstance(step, AgentState) else ""
        with self.spans.step(step, model) as span:
            result = (
                StepResult(problem=_no_folder(step, values.of(step.dir), folder))
                if isinstance(folder, str)
                else await self._run(step, values, folder, model, span)
            )
            if result.problem is not None and not result.problem.where:
                result = replace(result, problem=replace(result.problem, where=step.name))
            span.ended(result)
            return result

    async def _run(self, step: Step, values: Values, folder: Path, model: str, span: StepSpan) -> StepResult:
        if isinstance(step, CommandState):
            return await self._commands.run(step, values, folder)
        prompt = values.of(step.prompt)
        return await self._agents.run(AgentTask(state=step, prompt=prompt, model=model, folder=folder, span=span.span))

    async def close(self) -> None:
        await self._commands.close()
        await self._children.close()


def _folder(base: Path, written: str) -> Path | str:
    """The folder that a step works in, or why it cannot. A relative path is not led out of the folder of the run by
    links: whoever made those, a repository or an earlier agent, would choose where the step's tools write."""
    base = base.resolve()
    try:
        meant = Path(os.path.normpath(base / Path(written).expanduser()))
        folder = meant.resolve()
        if not folder.is_dir():
            return "is not there"
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, a user that is not there
        return "is not there"
    is_within = meant.is_relative_to(base) and not Path(written).expanduser().is_absolute()
    if is_within and not folder.is_relative_to(base):
        return f"is a link that leads out of {base}"
    return folder


def _no_folder(step: Step, folder: str, why: str) -> Problem:
    code = COMMAND_FAILED if isinstance(step, CommandState) else AGENT_FAILED
    message = f"The folder of step `{step.name}` {why}: {one_line(folder, _SHOWN)}"
    hint = "`dir` is relative to the folder of the run; what lies elsewhere is named by its full path"
    return Problem(code=code, message=message, where=step.name, hint=hint)
