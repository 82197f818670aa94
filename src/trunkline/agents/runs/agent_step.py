"""Runs agent steps: their tools are made ready, the agent runs with them, and everything made for it is removed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from trunkline.agents.events import AgentEvent, AgentText, ModelRetry, OptionDropped, TokenUsage
from trunkline.agents.installed_agent import InstalledAgent, VersionCache, find_installed
from trunkline.agents.probe.probe import Isolation, ProbeResult, ProbeStore, check_isolation, probe_agent
from trunkline.agents.providers import PROVIDERS, instruction_files, provider_of
from trunkline.agents.providers.openai.request import KnownDialects
from trunkline.agents.providers.provider import Provider, RunSpec, ToolServer
from trunkline.agents.runner import AgentRunner
from trunkline.agents.runs.agent_gateway import AgentGateway, AgentSocket
from trunkline.agents.runs.agent_gateway_settings import settings_of_step
from trunkline.agents.runs.instructions import project_instructions
from trunkline.agents.runs.model_step import run_model
from trunkline.agents.runs.run_events import AgentReady, EmitEvent, ModelRetried, ModelSpoke
from trunkline.agents.runs.run_telemetry import RunTelemetry, ToolCallEvents
from trunkline.agents.runs.step import AgentTask, StepResult, StepUsage
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.core.errors import OPTION_LEFT_OUT, STEP_TIMEOUT, GatewayError, Problem
from trunkline.runtime.children import Children
from trunkline.runtime.state_files import make_private_folder
from trunkline.runtime.temporary_folders import RunFolder
from trunkline.sources.builtin.protection.protected_paths import started_files


class AgentStepRunner:
    """Runs the agent steps of the workflow in the file `workflow`. `plugins` are those whose operations steps may
    expose."""

    def __init__(
        self,
        settings: Settings,
        plugins: Mapping[str, SourceSection],
        telemetry: RunTelemetry,
        emit: EmitEvent,
        usage: StepUsage,
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
        self._emit = emit
        self._usage = usage
        self._dialects: KnownDialects = {}
        self._environ = environ
        self._children = children
        self._runner = AgentRunner(children, home=home, environ=environ)
        self._probe_store = ProbeStore(settings.gateway.state_dir)
        self._versions = VersionCache(settings.gateway.state_dir)

    async def run(self, task: AgentTask) -> StepResult:
        """Run a step. Cancelling this ends the agent, and everything that was started for it."""
        try:
            return await self._run(task)
        except GatewayError as error:
            for detail in error.details:
                self._telemetry.warn(task.name, detail)
            return StepResult(problem=error.problem)

    async def _run(self, task: AgentTask) -> StepResult:
        async with AsyncExitStack() as stack:
            instructions = self._instructions(task)
            if task.state.provider not in PROVIDERS:
                gateway = await self._gateway(task, stack)
                self._ready(task, gateway, "")
                return await run_model(task, gateway, partial(self._on_event, task), instructions, self._dialects)
            folder = RunFolder(self._children, task.name)  # with the socket to the gateway, and the agent's files
            stack.callback(folder.remove)
            gateway = await self._gateway(task, stack, private=(str(folder.path),))
            return await self._run_program(task, folder.path, gateway, instructions)

    async def _gateway(
        self, task: AgentTask, stack: AsyncExitStack, private: tuple[str, ...] = ()
    ) -> AgentGateway | None:
        """The step's tools, all of them up; None if the agent keeps its own alone. `stack` closes them."""
        if task.state.proxy is None:
            return None
        wanted = settings_of_step(self._settings, task.state.proxy, self._plugins, task.folder)
        gateway = AgentGateway(
            wanted,
            self._telemetry.events_of(task.name),
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
            tracer.set_call_parent(task.caller.principal, task.span)
            stack.callback(tracer.set_call_parent, task.caller.principal, None)
        self._telemetry.follow(task.name, gateway.router, gateway.command_of)
        ToolCallEvents(task.name, self._emit, gateway.router, gateway.command_of)
        try:
            async with task.in_time():
                await gateway.start()
        except GatewayError as error:
            problem = error.problem
            if problem.code is STEP_TIMEOUT and (starting := gateway.starting()):
                waited_for = ", ".join(f"`{name}`" for name in starting)
                problem = replace(problem, message=f"{problem.message}; still starting: {waited_for}")
            raise GatewayError(problem, error.details) from None
        return gateway

    def _instructions(self, task: AgentTask) -> str:
        """The project's instructions for an agent that does not read them itself."""
        if task.mode != "intercept" or not task.state.options.instructions:
            return ""
        names = instruction_files(task.state.provider)
        redact, warn = self._telemetry.redact, partial(self._telemetry.warn, task.name)
        return project_instructions(task.folder, names, self._settings, redact, warn)

    def _ready(self, task: AgentTask, gateway: AgentGateway | None, version: str) -> None:
        tools = () if gateway is None else gateway.tools()
        provider = task.state.provider
        self._emit(AgentReady(step=task.name, provider=provider, version=version, model=task.model, tools=tools))

    def _on_event(self, task: AgentTask, event: AgentEvent) -> None:
        if isinstance(event, AgentText) and event.text.strip():
            self._emit(ModelSpoke(step=task.name, text=event.text))
        elif isinstance(event, OptionDropped):
            self._telemetry.warn(task.name, Problem(code=OPTION_LEFT_OUT, message=event.message))
        elif isinstance(event, TokenUsage):
            self._usage.tokens = event
        elif isinstance(event, ModelRetry):
            self._emit(ModelRetried(step=task.name, attempt=event.attempt, most=event.most, reason=event.reason))

    async def _run_program(
        self, task: AgentTask, folder: Path, gateway: AgentGateway | None, instructions: str
    ) -> StepResult:
        provider = provider_of(task.state.provider)
        async with AsyncExitStack() as stack:
            async with task.in_time():
                installed = await find_installed(provider, self._children, self._environ, self._versions)
                spec, socket = await self._run_spec(task, provider, folder / "a", gateway, stack)
                isolation = await self._isolation(task, provider, installed, folder, gateway)
            for warning in isolation.warnings:
                self._telemetry.warn(task.name, warning)
            self._ready(task, gateway, installed.version)
            spec = replace(spec, mitigation=isolation.mitigation, instructions=instructions, timeout_s=task.left_s)
            result = await self._runner.run(provider, installed, spec, socket, partial(self._on_event, task))
        for warning in result.warnings:
            self._telemetry.warn(task.name, warning)
        timed_out = result.problem is not None and result.problem.code is STEP_TIMEOUT
        # the agent only had what was left of the step's time, and the file names the whole
        problem = task.timeout_problem(result.unreachable) if timed_out else result.problem
        return StepResult(output=result.output, problem=problem)

    async def _run_spec(
        self, task: AgentTask, provider: Provider, part: Path, gateway: AgentGateway | None, stack: AsyncExitStack
    ) -> tuple[RunSpec, AgentSocket | None]:
        """What the agent is to do, and the socket to its tools; None if it keeps its own alone."""
        make_private_folder(part / "run")
        socket: AgentSocket | None = None
        server: ToolServer | None = None
        if gateway is not None:
            socket = AgentSocket(gateway, part, result_chars=provider.result_chars)
            stack.push_async_callback(socket.close)
            server = await socket.open()
        spec = RunSpec(mode=task.mode, run=part / "run", project=task.folder, timeout_s=task.left_s)
        return replace(spec, prompt=task.prompt, model=task.model, server=server), socket

    async def _isolation(
        self, task: AgentTask, provider: Provider, installed: InstalledAgent, folder: Path, gateway: AgentGateway | None
    ) -> Isolation:
        async def probe() -> ProbeResult:
            async with AsyncExitStack() as stack:
                spec, _ = await self._run_spec(task, provider, folder / "t", gateway, stack)
                return await probe_agent(self._runner, provider, installed, spec)

        return await check_isolation(provider, installed, task.mode, self._probe_store, probe, model=task.model)
