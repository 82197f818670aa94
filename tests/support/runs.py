"""Runs of workflows within the test process, with all their events."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from trunkline.agents.runs.run_events import EmitEvent, RunEnded, RunEvent, StepEnded
from trunkline.agents.runs.workflow_run import RunContext, run_workflow, workflow_redactor
from trunkline.agents.workflow.document import AgentState, Proxy, Workflow
from trunkline.agents.workflow.inputs import bind_inputs
from trunkline.agents.workflow.load import load_workflow_text
from trunkline.config.settings import GatewaySettings, Settings
from trunkline.config.sources import SourceSection

E = TypeVar("E")


@dataclass
class Ran:
    """A run that is over."""

    events: list[RunEvent] = field(default_factory=list[RunEvent])

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def end(self) -> RunEnded:
        [end] = self.of(RunEnded)
        return end

    @property
    def way(self) -> list[tuple[str, str, str]]:
        """Each step with its code and its output, in order."""
        return [
            (step.step, "" if step.problem is None else step.problem.code.id, step.output)
            for step in self.of(StepEnded)
        ]


def settings_in(folder: Path, sources: Mapping[str, SourceSection] | None = None) -> Settings:
    return Settings(folder / "trunkline.yaml", GatewaySettings(state_dir=folder / "state"), sources or {})


async def run_text(
    folder: Path,
    text: str,
    *,
    inputs: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    plugins: Mapping[str, SourceSection] | None = None,
    environ: Mapping[str, str] = os.environ,
    also: EmitEvent | None = None,
    log_file: Path | None = None,
    proxied: Proxy | None = None,
) -> Ran:
    """Run this text as a workflow in the folder; `also` hears what happens while it does. `proxied` replaces the block
    of every agent, for what no file that is checked can say."""
    loaded = load_workflow_text(text, folder / "flow.yaml", environ=environ)
    workflow = loaded.workflow
    assert workflow is not None, loaded.problems
    if proxied is not None:
        workflow = _with_proxy(workflow, proxied)
    ran = Ran()
    settings = settings or settings_in(folder)
    outcome = await run_workflow(
        workflow,
        bind_inputs(workflow, inputs or {}),
        settings,
        plugins or {},
        RunContext(folder=folder, home=folder, environ=environ, log_file=log_file),
        _both(ran.events.append, also),
        workflow_redactor(workflow, settings, environ),
    )
    assert not outcome.stuck
    assert outcome.ended is ran.end
    return ran


def _with_proxy(workflow: Workflow, proxy: Proxy) -> Workflow:
    agents = {name: state for name, state in workflow.states.items() if isinstance(state, AgentState)}
    return replace(
        workflow, states={**workflow.states, **{name: replace(a, proxy=proxy) for name, a in agents.items()}}
    )


def _both(first: Callable[[RunEvent], None], second: EmitEvent | None) -> EmitEvent:
    def emit(event: RunEvent) -> None:
        first(event)
        if second is not None:
            second(event)

    return emit
