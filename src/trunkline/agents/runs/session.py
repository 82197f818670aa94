"""A session from its beginning to its end: what ends it early, what is recorded of it, and what its end is worth."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from trunkline.agents.installed import Installed, KnownVersions, find_installed
from trunkline.agents.output_monitor import not_listed, tools_lost
from trunkline.agents.probe.probe import try_out
from trunkline.agents.probe.results import Isolation, Tried, Verdicts, judge
from trunkline.agents.providers import provider_of
from trunkline.agents.providers.provider import Plan
from trunkline.agents.runner import AgentRunner, Job, started_in
from trunkline.agents.runs.instructions import project_instructions
from trunkline.agents.runs.run_events import Tell
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.signals import INTERRUPTED, SessionSignals, interrupted, listening_beside
from trunkline.agents.runs.step_gateway import PATIENCE_S, AgentDoor, StepGateway
from trunkline.agents.runs.step_settings import settings_of_session
from trunkline.config.settings import Settings, gateway_folder
from trunkline.core.call import Caller
from trunkline.core.errors import BAD_VALUE, NATIVE_TOOL, TOOLS_NOT_LISTED, GatewayError, Problem
from trunkline.frontends.stdio.private_socket import CutOff
from trunkline.runtime.children import Children
from trunkline.runtime.foreground import run_in_foreground
from trunkline.runtime.private_files import make_private_folder
from trunkline.runtime.run_folder import RunFolder
from trunkline.telemetry.redact import Redactor
from trunkline.telemetry.span import Span, Value

_CLOSE_S: Final = 10.0
_LEAVING_S: Final = 2.0
"""From when the tools of an agent are gone until it has ended, where it is just leaving."""
_LOG: Final = "agent.log"
_LONGEST_LOG_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """`status` is for whoever started us. A `problem` that is a warning has not changed it."""

    status: int
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Whoever started the session: told of warnings until the agent has the terminal. `waiting` lasts while things are
    made ready, `ready` is told what is about to be started."""

    tell: Tell
    waiting: Callable[[], AbstractAsyncContextManager[None]]
    ready: Callable[[Prepared], None]


async def run_session(asked: SessionAsked, audience: Audience, log_file: Path) -> SessionEnd:
    """Run it to its end, or to the first signal that ends it. Raises GatewayError where it cannot be started."""
    with listening_beside() as signals:
        redact = Redactor(asked.settings.secrets(asked.environ), asked.settings.names())
        settings, in_the_way = _off_the_screen(asked)
        telemetry = RunTelemetry(settings, audience.tell, redact=redact, log_file=log_file, environ=asked.environ)
        if in_the_way is not None:
            telemetry.warn(asked.provider, in_the_way)
        children = Children(on_fault=lambda fault: telemetry.events.note("error", "supervisor", fault))
        session = AgentSession(asked, children, telemetry)
        try:
            return await _whole(session, asked, audience, telemetry, signals)
        finally:
            await _close(signals, session, children, telemetry)


def _off_the_screen(asked: SessionAsked) -> tuple[Settings, Problem | None]:
    """Spans on the console would be in the way of a conversation."""
    gateway = asked.settings.gateway
    if asked.headless or gateway.telemetry.exporter != "console":
        return asked.settings, None
    message = "Spans are left out: with `exporter: console` they would be on the screen of the agent"
    problem = Problem(code=BAD_VALUE, message=message, severity="warning", hint="use `exporter: file`")
    telemetry = gateway.telemetry.replace(exporter="none")
    return replace(asked.settings, gateway=gateway.replace(telemetry=telemetry)), problem


async def _whole(
    session: AgentSession, asked: SessionAsked, audience: Audience, telemetry: RunTelemetry, signals: SessionSignals
) -> SessionEnd:
    name, note = asked.provider, telemetry.events.note
    async with audience.waiting():
        prepared = await signals.unless_interrupted(session.prepare(), name)
    version = prepared.installed.version
    note("info", "session_started", name, version=version, mode=asked.mode, tools=len(prepared.tools))
    audience.ready(prepared)
    began_at = monotonic()
    try:
        with signals.agent_has_terminal(works_alone=asked.headless):
            code = await signals.unless_interrupted(session.run(), name)
        end = _judged(asked, code, session, signals)
    except GatewayError as error:
        end = SessionEnd(status=error.problem.code.exit or 1, problem=error.problem)
    signals.agent_ended(end.status)
    session.ended(end.status, end.problem)
    why: dict[str, object] = {} if end.problem is None else {"code": end.problem.code.id}
    note("info", "session_ended", name, status=end.status, seconds=round(monotonic() - began_at, 3), **why)
    return end


def _judged(asked: SessionAsked, code: int, session: AgentSession, signals: SessionSignals) -> SessionEnd:
    """An agent without a person at it that was interrupted may say 0, and one without our tools may, too."""
    status = code if code >= 0 else 128 - code
    if asked.headless and signals.pressed:
        return SessionEnd(status=INTERRUPTED, problem=interrupted(asked.provider, "SIGINT"))
    if session.listed:
        return _after_loss(asked, status, session.cut_off)
    if asked.headless and status == 0:
        return SessionEnd(status=1, problem=not_listed(asked.provider, "ended without having asked for its tools"))
    message = f"`{asked.provider}` ended before it asked for its tools"
    return SessionEnd(
        status=status,
        problem=Problem(code=TOOLS_NOT_LISTED, message=message, where=asked.provider, severity="warning"),
    )


def _after_loss(asked: SessionAsked, status: int, loss: CutOff) -> SessionEnd:
    """An agent that works by itself and goes on without its tools may say 0. In a conversation, whoever leaves it in
    the middle of a call cuts that off, too."""
    mattered = asked.headless or asyncio.get_running_loop().time() - loss.at > _LEAVING_S
    if not loss.tools or not mattered:
        return SessionEnd(status=status)
    problem = tools_lost(asked.provider, loss.tools)
    if asked.headless and status == 0 and not loss.came_back:
        return SessionEnd(status=1, problem=problem)
    return SessionEnd(status=status, problem=replace(problem, severity="warning"))


async def _close(signals: SessionSignals, session: AgentSession, children: Children, telemetry: RunTelemetry) -> None:
    """What does not end in time is left to the supervisors, which end everything as soon as we are gone."""
    left_s = signals.interrupt.left_s
    try:
        async with asyncio.timeout(_CLOSE_S if left_s is None else left_s):
            await session.close()
            await children.close()
    except TimeoutError:
        if left_s is not None:
            os._exit(INTERRUPTED)
    with suppress(TimeoutError):
        async with asyncio.timeout(signals.interrupt.left_s):
            await telemetry.close()


def log_of(settings: Settings) -> Path:
    """Where sessions are logged when nobody says otherwise; a long one makes room for a new one. Raises OSError."""
    folder = gateway_folder(settings)
    make_private_folder(folder)
    log = folder / _LOG
    with suppress(FileNotFoundError):
        if log.stat().st_size > _LONGEST_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
    return log


# One session of an agent in the user's terminal: its tools are made ready, it is given the terminal, and when it has
# ended everything that was made for it goes.

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
