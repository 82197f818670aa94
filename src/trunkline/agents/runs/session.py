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

from trunkline.agents.installed import Installed, VersionCache, find_installed
from trunkline.agents.output_monitor import not_listed_problem, tools_lost_problem
from trunkline.agents.probe.probe import probe_agent
from trunkline.agents.probe.results import Isolation, ProbeResult, ProbeStore, check_isolation
from trunkline.agents.providers import provider_of
from trunkline.agents.providers.provider import LaunchPlan, RunSpec
from trunkline.agents.runner import AgentRunner, working_folder
from trunkline.agents.runs.instructions import project_instructions
from trunkline.agents.runs.run_events import EmitEvent
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.signals import INTERRUPTED, SessionSignals, handle_session_signals, interrupted_problem
from trunkline.agents.runs.step_gateway import PATIENCE_S, AgentSocket, StepGateway
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
class SessionResult:
    """`status` is for whoever started us. A `problem` that is a warning has not changed it."""

    status: int
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionObserver:
    """Whoever started the session: told of warnings until the agent has the terminal. `waiting` lasts while things are
    made ready, `ready` is told what is about to be started."""

    emit: EmitEvent
    waiting: Callable[[], AbstractAsyncContextManager[None]]
    ready: Callable[[PreparedSession], None]


async def run_session(request: SessionRequest, observer: SessionObserver, log_file: Path) -> SessionResult:
    """Run it to its end, or to the first signal that ends it. Raises GatewayError where it cannot be started."""
    with handle_session_signals() as signals:
        redact = Redactor(request.settings.secrets(request.environ), request.settings.names())
        settings, in_the_way = _off_the_screen(request)
        telemetry = RunTelemetry(settings, observer.emit, redact=redact, log_file=log_file, environ=request.environ)
        if in_the_way is not None:
            telemetry.warn(request.provider, in_the_way)
        children = Children(on_fault=lambda fault: telemetry.events.note("error", "supervisor", fault))
        session = AgentSession(request, children, telemetry)
        try:
            return await _whole(session, request, observer, telemetry, signals)
        finally:
            await _close(signals, session, children, telemetry)


def _off_the_screen(request: SessionRequest) -> tuple[Settings, Problem | None]:
    """Spans on the console would be in the way of a conversation."""
    gateway = request.settings.gateway
    if request.headless or gateway.telemetry.exporter != "console":
        return request.settings, None
    message = "Spans are left out: with `exporter: console` they would be on the screen of the agent"
    problem = Problem(code=BAD_VALUE, message=message, severity="warning", hint="use `exporter: file`")
    telemetry = gateway.telemetry.replace(exporter="none")
    return replace(request.settings, gateway=gateway.replace(telemetry=telemetry)), problem


async def _whole(
    session: AgentSession,
    request: SessionRequest,
    observer: SessionObserver,
    telemetry: RunTelemetry,
    signals: SessionSignals,
) -> SessionResult:
    name, note = request.provider, telemetry.events.note
    async with observer.waiting():
        prepared = await signals.unless_interrupted(session.prepare(), name)
    version = prepared.installed.version
    note("info", "session_started", name, version=version, mode=request.mode, tools=len(prepared.tools))
    observer.ready(prepared)
    began_at = monotonic()
    try:
        with signals.agent_has_terminal(works_alone=request.headless):
            code = await signals.unless_interrupted(session.run(), name)
        end = _judged(request, code, session, signals)
    except GatewayError as error:
        end = SessionResult(status=error.problem.code.exit or 1, problem=error.problem)
    signals.agent_ended(end.status)
    session.ended(end.status, end.problem)
    why: dict[str, object] = {} if end.problem is None else {"code": end.problem.code.id}
    note("info", "session_ended", name, status=end.status, seconds=round(monotonic() - began_at, 3), **why)
    return end


def _judged(request: SessionRequest, code: int, session: AgentSession, signals: SessionSignals) -> SessionResult:
    """An agent without a person at it that was interrupted may say 0, and one without our tools may, too."""
    status = code if code >= 0 else 128 - code
    if request.headless and signals.pressed:
        return SessionResult(status=INTERRUPTED, problem=interrupted_problem(request.provider, "SIGINT"))
    if session.listed:
        return _after_loss(request, status, session.cut_off)
    if request.headless and status == 0:
        return SessionResult(
            status=1, problem=not_listed_problem(request.provider, "ended without having asked for its tools")
        )
    message = f"`{request.provider}` ended before it request for its tools"
    return SessionResult(
        status=status,
        problem=Problem(code=TOOLS_NOT_LISTED, message=message, where=request.provider, severity="warning"),
    )


def _after_loss(request: SessionRequest, status: int, loss: CutOff) -> SessionResult:
    """An agent that works by itself and goes on without its tools may say 0. In a conversation, whoever leaves it in
    the middle of a call cuts that off, too."""
    mattered = request.headless or asyncio.get_running_loop().time() - loss.at > _LEAVING_S
    if not loss.tools or not mattered:
        return SessionResult(status=status)
    problem = tools_lost_problem(request.provider, loss.tools)
    if request.headless and status == 0 and not loss.came_back:
        return SessionResult(status=1, problem=problem)
    return SessionResult(status=status, problem=replace(problem, severity="warning"))


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


def session_log(settings: Settings) -> Path:
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
class SessionRequest:
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
class PreparedSession:
    """What is about to be started, and the tools that it gets from us."""

    installed: Installed
    tools: tuple[str, ...]


class AgentSession:
    """`prepare` and then `run`; `close` in any case, which ends all that is left."""

    def __init__(self, request: SessionRequest, children: Children, telemetry: RunTelemetry) -> None:
        self._request = request
        self._children = children
        self._telemetry = telemetry
        self._provider = provider_of(request.provider)
        self._runner = AgentRunner(children, home=request.home, environ=request.environ)
        self._caller = Caller(principal=f"agent:{request.provider}")
        self._stack = AsyncExitStack()
        self._socket: AgentSocket | None = None
        self._start: tuple[LaunchPlan, Path] | None = None
        self._span: Span | None = None

    @property
    def listed(self) -> bool:
        """Whether the agent has asked for its tools."""
        return self._socket is not None and self._socket.listed

    @property
    def cut_off(self) -> CutOff:
        """Calls that were under way when its tool server was gone all at once."""
        return CutOff() if self._socket is None else self._socket.cut_off

    async def prepare(self) -> PreparedSession:
        """Everything but the agent itself. Raises GatewayError where it may not, or cannot, be started."""
        known = VersionCache(self._request.settings.gateway.state_dir)
        installed = await find_installed(self._provider, self._children, self._request.environ, known)
        folder = RunFolder(self._children, self._request.provider)
        self._stack.callback(folder.remove)
        gateway = await self._gateway(folder.path)
        isolation = await self._isolation(installed, gateway, folder.path / "t")
        for warning in isolation.warnings:
            self._telemetry.warn(self._request.provider, warning)
        spec = await self._run_spec(gateway, folder.path / "a", self._stack, self._request.args)
        spec = replace(spec, mitigation=isolation.mitigation, instructions=self._instructions())
        assert self._socket is not None
        self._socket.on_listed(self._tell_listed)
        plan = await self._runner.prepare(self._provider, installed, spec)
        self._start = (plan, working_folder(plan, spec))
        return PreparedSession(installed=installed, tools=gateway.tools())

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
        self._telemetry.events.note("info", "tools_listed", self._request.provider)

    def _instructions(self) -> str:
        request = self._request
        if request.mode != "intercept" or not request.instructions:
            return ""
        redact, warn = self._telemetry.redact, partial(self._telemetry.warn, request.provider)
        return project_instructions(request.folder, self._provider.instructions, request.settings, redact, warn)

    # -- the tools ------------------------------------------------------------------------------------------------

    async def _gateway(self, private: Path) -> StepGateway:
        request = self._request
        wanted = settings_of_session(request.settings, request.folder, builtin=request.mode == "intercept")
        gateway = StepGateway(
            wanted,
            self._telemetry.events_of(request.provider),
            caller=self._caller,
            environ=request.environ,
            redact=self._telemetry.redact,
            private=(str(private),),
        )
        self._stack.push_async_callback(gateway.close)
        self._telemetry.follow(request.provider, gateway.router, gateway.command_of)
        self._trace(gateway)
        # servers that take longer are there later, where the agent asks again for its tools
        await gateway.start(PATIENCE_S)
        return gateway

    def _trace(self, gateway: StepGateway) -> None:
        """One span for the session, and its calls below that."""
        tracer = self._telemetry.tracer
        if tracer is None:
            return
        name = self._request.provider
        attributes: dict[str, Value] = {
            "agent.mode": self._request.mode,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
        }
        self._span = span = tracer.begin(f"agent.{name}", attributes=attributes)
        self._stack.callback(span.end)
        tracer.attach(gateway.router)
        tracer.calls_of(self._caller.principal, span)
        self._stack.callback(tracer.calls_of, self._caller.principal, None)

    async def _run_spec(
        self, gateway: StepGateway, part: Path, stack: AsyncExitStack, args: tuple[str, ...] = ()
    ) -> RunSpec:
        """What the agent is started with, and the door to its tools, which is open as long as `stack` is."""
        run = part / "run"
        make_private_folder(run)
        self._socket = AgentSocket(gateway, part, result_chars=self._provider.result_chars)
        stack.push_async_callback(self._socket.close)
        return RunSpec(
            mode=self._request.mode,
            prompt=None,
            model="",
            project=self._request.folder,
            run=run,
            server=await self._socket.open(),
            timeout_s=_ENDLESS_S,
            args=args,
        )

    async def _isolation(self, installed: Installed, gateway: StepGateway, part: Path) -> Isolation:
        store = ProbeStore(self._request.settings.gateway.state_dir)
        trial = partial(self._trial, installed, gateway, part)
        try:
            return await check_isolation(self._provider, installed, self._request.mode, store, trial)
        except GatewayError as error:
            if error.problem.code is not NATIVE_TOOL:
                raise
            raise GatewayError(replace(error.problem, hint=_TOOLS_OF_ITS_OWN)) from None

    async def _trial(self, installed: Installed, gateway: StepGateway, part: Path) -> ProbeResult:
        async with AsyncExitStack() as stack:
            spec = await self._run_spec(gateway, part, stack)
            return await probe_agent(self._runner, self._provider, installed, spec)
