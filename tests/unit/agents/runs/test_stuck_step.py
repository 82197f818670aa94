"""A step that does not stop: the run ends anyway and reports it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from trunkline.agents.runs.run_events import RunEnded, RunEvent
from trunkline.agents.runs.signals import Interrupt
from trunkline.agents.runs.step import StepResult, StepUsage
from trunkline.agents.runs.workflow_run import Step, WorkflowExecutor
from trunkline.agents.workflow.document import CommandState, Workflow
from trunkline.agents.workflow.template import RunValues, Template
from trunkline.core.errors import INTERNAL, STEP_INTERRUPTED


def one_step() -> Workflow:
    state = CommandState(name="only", command=Template(("true",)), timeout_s=60.0)
    return Workflow(path=Path("flow.yaml"), name="w", version="", inputs=(), initial="only", states={"only": state})


async def test_an_interrupted_step_that_does_not_end_is_not_waited_for_longer_than_it_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trunkline.agents.runs.signals.ORDERLY_S", 0.05)
    interrupt, released = Interrupt(), asyncio.Event()
    events: list[RunEvent] = []

    async def deaf(step: Step, values: RunValues) -> StepResult:
        interrupt.on_signal(signal.SIGINT)
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return StepResult()

    executor = WorkflowExecutor(one_step(), deaf, events.append, StepUsage(), interrupt)
    ended = await executor.run({})
    assert executor.stuck
    assert (ended.status, ended.problem and ended.problem.code) == ("interrupted", STEP_INTERRUPTED)
    assert isinstance(events[-1], RunEnded)
    released.set()


async def test_a_step_that_fails_for_a_reason_of_ours_is_a_failed_step() -> None:
    async def broken(step: Step, values: RunValues) -> StepResult:
        raise RuntimeError("a bug")

    ended = await WorkflowExecutor(one_step(), broken, lambda _: None, StepUsage(), Interrupt()).run({})
    assert (ended.status, ended.problem and ended.problem.code) == ("failure", INTERNAL)


async def test_whoever_runs_a_workflow_can_end_it_and_its_step() -> None:
    ended: list[str] = []

    async def slow(step: Step, values: RunValues) -> StepResult:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(step.name)
        return StepResult()

    run = asyncio.get_running_loop().create_task(
        WorkflowExecutor(one_step(), slow, lambda _: None, StepUsage(), Interrupt()).run({})
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ended == ["only"]
