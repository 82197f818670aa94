"""A step that is an agent: its tools are made ready, it is run with them, and everything that was made for it goes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from trunkline.agents import PROVIDERS, instruction_files
from trunkline.agents.openai.wording import Wordings
from trunkline.agents.runs.agent_task import AgentTask
from trunkline.agents.runs.call_watch import CallWatch
from trunkline.agents.runs.model_step import run_model
from trunkline.agents.runs.program_step import ProgramSteps
from trunkline.agents.runs.project_instructions import project_instructions
from trunkline.agents.runs.run_events import AgentReady, ModelRetried, ModelSpoke, Tell
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.step_costs import StepCosts
from trunkline.agents.runs.step_gateway import StepGateway
from trunkline.agents.runs.step_result import StepResult
from trunkline.agents.runs.step_settings import settings_of_step
from trunkline.agents.said import Adapted, Retried, Said, Spent, Spoke
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.errors import OPTION_LEFT_OUT, STEP_TIMEOUT, GatewayError, Problem
from trunkline.runtime.children import Children
from trunkline.sources.builtin.protection.started_files import started_files


class AgentSteps:
    """Runs the agent steps of a workflow, whose file is at `workflow`. `plugins` are those that steps may expose
    operations of."""

    def __init__(
        self,
        settings: Settings,
        plugins: Mapping[str, SourceSection],
        telemetry: RunTelemetry,
        tell: Tell,
        costs: StepCosts,
        *,
        children: Children,
        environ: Mapping[str, str],
        home: Path,
        workflow: Path,
    ) -> None:
        self._settings = settings
        self._protected = (str(workflow.absolute()), *started_files(settings))
        self._plugins = plugins
        self._telemetry = telemetry
        self._tell = tell
        self._costs = costs
        self._wordings: Wordings = {}
        self._environ = environ
        state_dir = settings.gateway.state_dir
        self._programs = ProgramSteps(children, home=home, environ=environ, state_dir=state_dir)

    async def run(self, task: AgentTask) -> StepResult:
        """Cancelling this ends the agent, and everything that was started for it."""
        watch = CallWatch(task.name, self._tell)
        try:
            return await self._run(task, watch)
        except GatewayError as error:
            for detail in error.details:
                self._telemetry.warn(task.name, detail)
            return StepResult(problem=error.problem)

    async def _run(self, task: AgentTask, watch: CallWatch) -> StepResult:
        async with AsyncExitStack() as stack:
            instructions = self._instructions(task)
            if task.state.provider not in PROVIDERS:
                gateway = await self._gateway(task, watch, stack)
                self._ready(task, gateway, "")
                heard = partial(self._said, task)
                return await run_model(task, gateway, heard, instructions, self._wordings)
            folder = self._programs.folder(task)
            stack.callback(folder.remove)
            gateway = await self._gateway(task, watch, stack, private=(str(folder.path),))
            return await self._programs.run(
                task,
                folder.path,
                gateway,
                lambda said: self._said(task, said),
                instructions=instructions,
                warn=lambda problem: self._telemetry.warn(task.name, problem),
                ready=lambda version: self._ready(task, gateway, version),
            )

    async def _gateway(
        self, task: AgentTask, watch: CallWatch, stack: AsyncExitStack, private: tuple[str, ...] = ()
    ) -> StepGateway | None:
        """The step's tools, all of them there; none where the agent is run as it is. `stack` ends them."""
        if task.state.proxy is None:
            return None
        wanted = settings_of_step(self._settings, task.state.proxy, self._plugins, task.folder)
        events = self._telemetry.events_of(task.name)
        gateway = StepGateway(
            wanted,
            events,
            caller=task.caller,
            environ=self._environ,
            redact=self._telemetry.redact,
            private=private,
            protected=self._protected,
        )
        stack.push_async_callback(gateway.close)
        tracer = self._telemetry.tracer
        if tracer is not None and task.span is not None:
            tracer.attach(gateway.router)
            tracer.calls_of(task.caller.principal, task.span)
            stack.callback(tracer.calls_of, task.caller.principal, None)
        self._telemetry.follow(task.name, gateway.router, gateway.command_of)
        watch.attach(events, gateway.router, gateway.command_of)
        try:
            async with task.in_time():
                await gateway.start()
        except GatewayError as error:
            raise GatewayError(_with_what_starts(error.problem, gateway.starting()), error.details) from None
        return gateway

    def _instructions(self, task: AgentTask) -> str:
        """What the project tells an agent that does not look for it by itself."""
        if task.mode != "intercept" or not task.state.options.instructions:
            return ""
        names = instruction_files(task.state.provider)
        redact, warn = self._telemetry.redact, partial(self._telemetry.warn, task.name)
        return project_instructions(task.folder, names, self._settings, redact, warn)

    def _ready(self, task: AgentTask, gateway: StepGateway | None, version: str) -> None:
        tools = () if gateway is None else gateway.tools()
        provider = task.state.provider
        self._tell(AgentReady(step=task.name, provider=provider, version=version, model=task.model, tools=tools))

    def _said(self, task: AgentTask, said: Said) -> None:
        if isinstance(said, Spoke) and said.text.strip():
            self._tell(ModelSpoke(step=task.name, text=said.text))
        elif isinstance(said, Adapted):
            self._telemetry.warn(task.name, Problem(code=OPTION_LEFT_OUT, message=said.message))
        elif isinstance(said, Spent):
            self._costs.spend(said)
        elif isinstance(said, Retried):
            self._tell(ModelRetried(step=task.name, attempt=said.attempt, most=said.most, reason=said.reason))


def _with_what_starts(problem: Problem, starting: tuple[str, ...]) -> Problem:
    """Of a step whose time ended before its tools were there, what it waited for."""
    if problem.code is not STEP_TIMEOUT or not starting:
        return problem
    waited_for = ", ".join(f"`{name}`" for name in starting)
    return replace(problem, message=f"{problem.message}; still starting: {waited_for}")
