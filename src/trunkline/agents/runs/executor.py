"""The way through a workflow's states: what comes after what, and how all of it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from trunkline.agents.runs.agent_task import mode_of
from trunkline.agents.runs.interrupt import Interrupt
from trunkline.agents.runs.run_events import (
    RunEnded,
    RunStarted,
    Status,
    StepEnded,
    StepStarted,
    Tell,
)
from trunkline.agents.runs.step_costs import StepCosts
from trunkline.agents.runs.step_result import StepResult, Values
from trunkline.agents.said import Spent
from trunkline.agents.workflow.condition import Facts
from trunkline.agents.workflow.document import AgentState, CommandState, TerminalState, Workflow
from trunkline.core.errors import INTERNAL, STEP_INTERRUPTED, TOO_MANY_STEPS, GatewayError, Problem

MOST_STEPS: Final = 1000
Step = AgentState | CommandState
RunStep = Callable[[Step, Values], Coroutine[Any, Any, StepResult]]
"""Runs one step to its end. Cancelling it ends the step, and everything that it started, within a few seconds."""


@dataclass(slots=True)
class _Sums:
    steps: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Executor:
    """One run of one workflow. `tell` hears of everything; `stuck` is set where an interrupted step did not end in
    time, so that only the end of this process ends it."""

    def __init__(
        self, workflow: Workflow, run_step: RunStep, tell: Tell, costs: StepCosts, interrupt: Interrupt
    ) -> None:
        self._workflow = workflow
        self._run_step = run_step
        self._tell = tell
        self._costs = costs
        self._interrupt = interrupt
        self._outputs: dict[str, str] = {}
        self._exit_codes: dict[str, int] = {}
        self._last_output = ""
        self._last_problem: Problem | None = None
        self._sums = _Sums()
        self._started_at = monotonic()
        self.stuck = False

    async def run(self, inputs: Mapping[str, str]) -> RunEnded:
        workflow = self._workflow
        self._tell(RunStarted(workflow=workflow.name, file=str(workflow.path)))
        name = workflow.initial
        while True:
            state = workflow.states[name]
            values = Values(inputs=inputs, outputs=self._outputs)
            if isinstance(state, TerminalState):
                return self._ended_in(state, values)
            if self._sums.steps >= MOST_STEPS:
                return self._ended("failure", problem=_endless(name))
            result, name = await self._step(state, values)
            if self._interrupt.signal:
                return self._ended("interrupted", problem=result.problem)
            if not name:
                return self._ended("failure" if result.problem else "success", problem=result.problem)

    # -- steps ----------------------------------------------------------------------------------------------------

    async def _step(self, state: Step, values: Values) -> tuple[StepResult, str]:
        """How it ended, and the state that follows."""
        started_at = monotonic()
        self._tell(_started(state))
        result = await self._attempt(state, values)
        if self._interrupt.signal:
            result = replace(result, problem=_interrupted(state, self._interrupt.signal))
        tool_calls, tokens = self._costs.taken()
        self._take(state, result, tool_calls, tokens)
        following = "" if self._interrupt.signal else self._next(state, result, values)
        self._tell(_ended(state, result, monotonic() - started_at, tool_calls, tokens, following))
        return result, following

    async def _attempt(self, state: Step, values: Values) -> StepResult:
        """The step in a task of its own, which the signals can end without ending us."""
        task = asyncio.get_running_loop().create_task(self._run_step(state, values), name=f"step {state.name}")
        try:
            await asyncio.wait({task, self._interrupt.came}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stuck = not (task.done() or await self._interrupt.ended_in_time(task))
        return StepResult() if self.stuck else _result_of(task, state)

    def _take(self, state: Step, result: StepResult, tool_calls: int, tokens: Spent) -> None:
        self._outputs = {**self._outputs, state.name: result.output}
        self._exit_codes[state.name] = result.exit_status
        self._last_output, self._last_problem = result.output, result.problem
        self._sums.steps += 1
        self._sums.tool_calls += tool_calls
        self._sums.input_tokens += tokens.input_tokens
        self._sums.output_tokens += tokens.output_tokens

    def _next(self, state: Step, result: StepResult, values: Values) -> str:
        facts = Facts(inputs=values.inputs, outputs=self._outputs, exit_codes=self._exit_codes)
        for transition in state.transitions:
            if transition.when is None or transition.when.holds(facts):
                return transition.goto
        return state.on_success if result.problem is None else state.on_failure

    # -- the end --------------------------------------------------------------------------------------------------

    def _ended_in(self, state: TerminalState, values: Values) -> RunEnded:
        status: Status = "success" if state.success else "failure"
        problem = None if state.success else self._last_problem
        return self._ended(status, state=state.name, message=values.of(state.message), problem=problem)

    def _ended(self, status: Status, *, state: str = "", message: str = "", problem: Problem | None) -> RunEnded:
        sums = self._sums
        ended = RunEnded(
            status=status,
            state=state,
            message=message,
            seconds=monotonic() - self._started_at,
            steps=sums.steps,
            tool_calls=sums.tool_calls,
            input_tokens=sums.input_tokens,
            output_tokens=sums.output_tokens,
            output=self._last_output,
            problem=problem,
        )
        self._tell(ended)
        return ended


def _result_of(task: asyncio.Task[StepResult], state: Step) -> StepResult:
    """What became of a step that has ended, whatever it ended with."""
    if task.cancelled():
        return StepResult(problem=_internal(state, "it was cancelled"))
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, GatewayError):
        return StepResult(problem=replace(error.problem, where=error.problem.where or state.name))
    if isinstance(error, Exception):
        return StepResult(problem=_internal(state, f"{type(error).__name__}: {error}"))
    raise error


def _started(state: Step) -> StepStarted:
    if isinstance(state, CommandState):
        return StepStarted(step=state.name, kind="command", timeout_s=state.timeout_s)
    return StepStarted(
        step=state.name, kind="agent", provider=state.provider, mode=mode_of(state), timeout_s=state.timeout_s
    )


def _ended(
    state: Step, result: StepResult, seconds: float, tool_calls: int, tokens: Spent, following: str
) -> StepEnded:
    problem = result.problem
    status: Status = "success" if problem is None else "failure"
    if problem is not None and problem.code is STEP_INTERRUPTED:
        status = "interrupted"
    return StepEnded(
        step=state.name,
        status=status,
        seconds=seconds,
        tool_calls=tool_calls,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        output=result.output,
        problem=problem,
        next=following,
    )


def _interrupted(state: Step, signal: str) -> Problem:
    message = f"{signal} came: the step and everything that it started were ended"
    return Problem(code=STEP_INTERRUPTED, message=message, where=state.name)


def _endless(name: str) -> Problem:
    message = f"The run went through {MOST_STEPS} steps and reached no end; the next would be `{name}`"
    return Problem(code=TOO_MANY_STEPS, message=message, hint="check where the states of the circle lead")


def _internal(state: Step, what: str) -> Problem:
    return Problem(code=INTERNAL, message=f"Step `{state.name}` failed for a reason of ours: {what}", where=state.name)
