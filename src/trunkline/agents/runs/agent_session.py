"""One session of an agent in the user's terminal: its tools are made ready, it is given the terminal, and when it has
ended everything that was made for it goes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from trunkline.agents import provider_of
from trunkline.agents.installed import Installed, find_installed
from trunkline.agents.known_versions import KnownVersions
from trunkline.agents.plan import Plan
from trunkline.agents.runner import AgentRunner, Job, started_in
from trunkline.agents.runs.agent_door import AgentDoor
from trunkline.agents.runs.isolation import Isolation, judge
from trunkline.agents.runs.project_instructions import project_instructions
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.step_gateway import PATIENCE_S, StepGateway
from trunkline.agents.runs.step_settings import settings_of_session
from trunkline.agents.trial.trial import Tried, try_out
from trunkline.agents.trial.verdicts import Verdicts
from trunkline.config.settings import Settings
from trunkline.core.call import Caller
from trunkline.core.errors import NATIVE_TOOL, GatewayError, Problem
from trunkline.frontends.stdio.private_socket import CutOff
from trunkline.runtime.children import Children
from trunkline.runtime.foreground import run_in_foreground
from trunkline.runtime.private_files import make_private_folder
from trunkline.runtime.run_folder import RunFolder
from trunkline.telemetry.span import Span, Value

_ENDLESS_S: Final = 1e9
_TOOLS_OF_ITS_OWN: Final = "use a version that is verified, or `--additive` if its own tools may stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAsked:
    """`provider` is one of those that are programs. `headless` says that `args` have it answer and end by itself."""

    provider: str
    mode: Literal["intercept", "additive"]
    args: tuple[str, ...]
    headless: bool
    settings: Settings
    folder: Path
    home: Path
    environ: Mapping[str, str]
    instructions: bool = True
    """Whether an isolated agent is given those of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is about to be started, and the tools that it gets from us."""

    installed: Installed
    tools: tuple[str, ...]


class AgentSession:
    """`prepare` and then `run`; `close` in any case, which ends all that is left."""

    def __init__(self, asked: SessionAsked, children: Children, telemetry: RunTelemetry) -> None:
        self._asked = asked
        self._children = children
        self._telemetry = telemetry
        self._provider = provider_of(asked.provider)
        self._runner = AgentRunner(children, home=asked.home, environ=asked.environ)
        self._caller = Caller(principal=f"agent:{asked.provider}")
        self._stack = AsyncExitStack()
        self._door: AgentDoor | None = None
        self._start: tuple[Plan, Path] | None = None
        self._span: Span | None = None

    @property
    def listed(self) -> bool:
        """Whether the agent has asked for its tools."""
        return self._door is not None and self._door.listed

    @property
    def cut_off(self) -> CutOff:
        """Calls that were under way when its tool server was gone all at once."""
        return CutOff() if self._door is None else self._door.cut_off

    async def prepare(self) -> Prepared:
        """Everything but the agent itself. Raises GatewayError where it may not, or cannot, be started."""
        known = KnownVersions(self._asked.settings.gateway.state_dir)
        installed = await find_installed(self._provider, self._children, self._asked.environ, known)
        folder = RunFolder(self._children, self._asked.provider)
        self._stack.callback(folder.remove)
        gateway = await self._gateway(folder.path)
        isolation = await self._isolation(installed, gateway, folder.path / "t")
        for warning in isolation.warnings:
            self._telemetry.warn(self._asked.provider, warning)
        job = await self._job(gateway, folder.path / "a", self._stack, self._asked.args)
        job = replace(job, mitigation=isolation.mitigation, instructions=self._instructions())
        assert self._door is not None
        self._door.when_listed(self._tell_listed)
        plan = await self._runner.prepare(self._provider, installed, job)
        self._start = (plan, started_in(plan, job))
        return Prepared(installed=installed, tools=gateway.tools())

    async def run(self) -> int:
        """The agent's return code, once it has ended. Cancelling this ends it."""
        assert self._start is not None
        plan, cwd = self._start
        env = self._runner.environment(plan, cwd)
        return await run_in_foreground(self._children, plan.argv, env=env, cwd=str(cwd), label=self._provider.name)

    def ended(self, status: int, problem: Problem | None) -> None:
        """What its end was worth, for the span."""
        if self._span is None:
            return
        self._span.set("agent.exit_status", status)
        if problem is not None:
            self._span.fail(problem.code.id, problem.message)

    async def close(self) -> None:
        await self._stack.aclose()

    def _tell_listed(self) -> None:
        self._telemetry.events.note("info", "tools_listed", self._asked.provider)

    def _instructions(self) -> str:
        asked = self._asked
        if asked.mode != "intercept" or not asked.instructions:
            return ""
        redact, warn = self._telemetry.redact, partial(self._telemetry.warn, asked.provider)
        return project_instructions(asked.folder, self._provider.instructions, asked.settings, redact, warn)

    # -- the tools ------------------------------------------------------------------------------------------------

    async def _gateway(self, private: Path) -> StepGateway:
        asked = self._asked
        wanted = settings_of_session(asked.settings, asked.folder, builtin=asked.mode == "intercept")
        gateway = StepGateway(
            wanted,
            self._telemetry.events_of(asked.provider),
            caller=self._caller,
            environ=asked.environ,
            redact=self._telemetry.redact,
            private=(str(private),),
        )
        self._stack.push_async_callback(gateway.close)
        self._telemetry.follow(asked.provider, gateway.router, gateway.command_of)
        self._trace(gateway)
        # servers that take longer are there later, where the agent asks again for its tools
        await gateway.start(PATIENCE_S)
        return gateway

    def _trace(self, gateway: StepGateway) -> None:
        """One span for the session, and its calls below that."""
        tracer = self._telemetry.tracer
        if tracer is None:
            return
        name = self._asked.provider
        attributes: dict[str, Value] = {
            "agent.mode": self._asked.mode,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
        }
        self._span = span = tracer.begin(f"agent.{name}", attributes=attributes)
        self._stack.callback(span.end)
        tracer.attach(gateway.router)
        tracer.calls_of(self._caller.principal, span)
        self._stack.callback(tracer.calls_of, self._caller.principal, None)

    async def _job(self, gateway: StepGateway, part: Path, stack: AsyncExitStack, args: tuple[str, ...] = ()) -> Job:
        """What the agent is started with, and the door to its tools, which is open as long as `stack` is."""
        run = part / "run"
        make_private_folder(run)
        self._door = AgentDoor(gateway, part, result_chars=self._provider.result_chars)
        stack.push_async_callback(self._door.close)
        return Job(
            mode=self._asked.mode,
            prompt=None,
            model="",
            project=self._asked.folder,
            run=run,
            server=await self._door.open(),
            timeout_s=_ENDLESS_S,
            args=args,
        )

    async def _isolation(self, installed: Installed, gateway: StepGateway, part: Path) -> Isolation:
        verdicts = Verdicts(self._asked.settings.gateway.state_dir)
        trial = partial(self._trial, installed, gateway, part)
        try:
            return await judge(self._provider, installed, self._asked.mode, verdicts, trial)
        except GatewayError as error:
            if error.problem.code is not NATIVE_TOOL:
                raise
            raise GatewayError(replace(error.problem, hint=_TOOLS_OF_ITS_OWN)) from None

    async def _trial(self, installed: Installed, gateway: StepGateway, part: Path) -> Tried:
        async with AsyncExitStack() as stack:
            job = await self._job(gateway, part, stack)
            return await try_out(self._runner, self._provider, installed, job)
