"""The spans of a run: one for the workflow, and one for each step, whose children its tool calls are."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from trunkline.agents.runs.agent_task import mode_of
from trunkline.agents.runs.run_events import RunEnded
from trunkline.agents.runs.step_costs import StepCosts
from trunkline.agents.runs.step_result import StepResult
from trunkline.agents.workflow.document import AgentState, CommandState, Workflow
from trunkline.telemetry.span import Span, Value
from trunkline.telemetry.tracing import Tracer

_INTERRUPTED = "interrupted"


class StepSpan:
    """The span of one step while it lasts; none where nothing is recorded."""

    def __init__(self, span: Span | None) -> None:
        self.span = span

    def ended(self, result: StepResult) -> None:
        if self.span is None:
            return
        self.span.set("step.status", "success" if result.problem is None else "failure")
        if result.problem is not None:
            self.span.fail(result.problem.code.id, result.problem.message)


class RunSpans:
    def __init__(self, tracer: Tracer | None, workflow: Workflow, costs: StepCosts) -> None:
        self._tracer = tracer
        self._costs = costs
        self._run = None if tracer is None else tracer.begin(f"workflow.{workflow.name}", attributes=_named(workflow))

    @contextmanager
    def step(self, state: AgentState | CommandState, model: str) -> Generator[StepSpan, None, None]:
        """A step that does not get as far as a result was interrupted."""
        if self._tracer is None:
            yield StepSpan(None)
            return
        span = self._tracer.begin(f"step.{state.name}", parent=self._run, attributes=_attributes(state, model))
        try:
            yield StepSpan(span)
        except BaseException:
            span.set("step.status", _INTERRUPTED)
            span.fail(_INTERRUPTED)
            raise
        finally:
            tokens = self._costs.tokens
            if tokens.input_tokens or tokens.output_tokens:
                span.set("gen_ai.usage.input_tokens", tokens.input_tokens)
                span.set("gen_ai.usage.output_tokens", tokens.output_tokens)
            span.end()

    def ended(self, ended: RunEnded) -> None:
        if self._run is None:
            return
        self._run.set("workflow.status", ended.status)
        self._run.set("workflow.steps", ended.steps)
        if ended.problem is not None:
            self._run.fail(ended.problem.code.id, ended.problem.message)
        elif ended.status != "success":
            self._run.fail(ended.status, ended.message)
        self._run.end()


def _named(workflow: Workflow) -> dict[str, Value]:
    named: dict[str, Value] = {"workflow.name": workflow.name}
    return named | ({"workflow.version": workflow.version} if workflow.version else {})


def _attributes(state: AgentState | CommandState, model: str) -> dict[str, Value]:
    if isinstance(state, CommandState):
        return {"step.name": state.name, "step.kind": "command"}
    attributes: dict[str, Value] = {
        "step.name": state.name,
        "step.kind": "agent",
        "step.provider": state.provider,
        "step.mode": mode_of(state),
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": state.provider,
    }
    return attributes | ({"gen_ai.request.model": model} if model else {})
