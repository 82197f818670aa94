"""One session of an agent in the user's terminal: its tools, its run, and how it ended."""

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

from trunkline.agents.installed_agent import InstalledAgent, VersionCache, find_installed
from trunkline.agents.output_monitor import not_listed_problem, tools_lost_problem
from trunkline.agents.probe.probe import Isolation, ProbeResult, ProbeStore, check_isolation, probe_agent
from trunkline.agents.providers import provider_of
from trunkline.agents.providers.provider import RunSpec
from trunkline.agents.runner import AgentCommand, AgentRunner
from trunkline.agents.runs.agent_gateway import START_S, AgentGateway, AgentSocket
from trunkline.agents.runs.agent_gateway_settings import settings_of_session
from trunkline.agents.runs.instructions import project_instructions
from trunkline.agents.runs.run_events import EmitEvent
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.signals import INTERRUPTED, SessionSignals, handle_signals, interrupted_problem
from trunkline.config.settings import Settings, gateway_folder
from trunkline.core.call import Caller
from trunkline.core.errors import BAD_VALUE, NATIVE_TOOL, TOOLS_NOT_LISTED, GatewayError, Problem
from trunkline.frontends.stdio.private_socket import InterruptedCalls
from trunkline.runtime.children import Children
from trunkline.runtime.foreground import run_in_foreground
from trunkline.runtime.state_files import make_private_folder
from trunkline.runtime.temporary_folders import RunFolder
from trunkline.telemetry.redaction import Redactor
from trunkline.telemetry.span import Span, Value

_CLOSE_S: Final = 10.0
_LEAVING_S: Final = 2.0
"""An agent that leaves in an orderly way ends this soon after its tool server."""
_LOG: Final = "agent.log"
_LONGEST_LOG_BYTES: Final = 16 << 20
_TOOLS_OF_ITS_OWN: Final = "use a version that is verified, or `--additive` if its own tools may stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What the user asked for. `headless` says that `args` make the agent answer and end by itself."""

    provider: str
    mode: Literal["intercept", "additive"]
    args: tuple[str, ...]
    headless: bool
    settings: Settings
    folder: Path
    home: Path
    environ: Mapping[str, str]
    instructions: bool = True
    """Whether an isolated agent is given the project's instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSession:
    """An agent that is about to be started, and the tools that it gets through `socket`."""

    installed: InstalledAgent
    tools: tuple[str, ...]
    command: AgentCommand
    socket: AgentSocket


class AgentSession:
    """Call `prepare`, then `run`; `close` in any case, which ends all that is left."""

    def __init__(self, request: SessionRequest, children: Children, telemetry: RunTelemetry) -> None:
        self._request = request
        self._children = children
        self._telemetry = telemetry
        self._provider = provider_of(request.provider)
        self._runner = AgentRunner(children, home=request.home, environ=request.environ)
        self._caller = Caller(principal=f"agent:{request.provider}")
        self._stack = AsyncExitStack()
        self._span: Span | None = None

    async def prepare(self) -> PreparedSession:
        """Make everything ready but the agent itself. Raises GatewayError if it may not or cannot be started."""
        request = self._request
        known = VersionCache(request.settings.gateway.state_dir)
        installed = await find_installed(self._provider, self._children, request.environ, known)
        folder = RunFolder(self._children, request.provider)
        self._stack.callback(folder.remove)
        gateway = await self._gateway(folder.path)
        isolation = await self._isolation(installed, gateway, folder.path / "t")
        for warning in isolation.warnings:
            self._telemetry.warn(request.provider, warning)
        spec, socket = await self._run_spec(gateway, folder.path / "a", self._stack)
        instructions = ""
        if request.mode == "intercept" and request.instructions:
            redact, warn = self._telemetry.redact, partial(self._telemetry.warn, request.provider)
            names = self._provider.instructions
            instructions = project_instructions(request.folder, names, request.settings, redact, warn)
        spec = replace(spec, args=request.args, mitigation=isolation.mitigation, instructions=instructions)
        socket.on_listed = lambda: self._telemetry.events.note("info", "tools_listed", request.provider)
        command = await self._runner.prepare(self._provider, installed, spec)
        return PreparedSession(installed=installed, tools=gateway.tools(), command=command, socket=socket)

    async def run(self, prepared: PreparedSession) -> int:
        """Give the agent the terminal; its return code once it has ended. Cancelling this ends it."""
        argv, env, cwd = prepared.command.argv, prepared.command.env, prepared.command.cwd
        return await run_in_foreground(self._children, argv, env=env, cwd=cwd, label=self._provider.name)

    def record_end(self, status: int, problem: Problem | None) -> None:
        """Record the end in the session's span."""
        if self._span is None:
            return
        self._span.set("agent.exit_status", status)
        if problem is not None:
            self._span.fail(problem.code.id, problem.message)

    async def close(self) -> None:
        await self._stack.aclose()

    # -- the tools ------------------------------------------------------------------------------------------------

    async def _gateway(self, private: Path) -> AgentGateway:
        request = self._request
        wanted = settings_of_session(request.settings, request.folder, builtin=request.mode == "intercept")
        gateway = AgentGateway(
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
        # slower servers appear later, when the agent lists its tools again
        await gateway.start(START_S)
        return gateway

    def _trace(self, gateway: AgentGateway) -> None:
        """A span for the session, with its calls below."""
        tracer = self._telemetry.tracer
        if tracer is None:
            return
        name = self._request.provider
        attributes: dict[str, Value] = {"agent.mode": self._request.mode}
        attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        self._span = span = tracer.begin(f"agent.{name}", attributes=attributes)
        self._stack.callback(span.end)
        tracer.attach(gateway.router)
        tracer.set_call_parent(self._caller.principal, span)
        self._stack.callback(tracer.set_call_parent, self._caller.principal, None)

    async def _run_spec(self, gateway: AgentGateway, part: Path, stack: AsyncExitStack) -> tuple[RunSpec, AgentSocket]:
        """What the agent is started with, and the socket to its tools, which is open as long as `stack`."""
        make_private_folder(part / "run")
        socket = AgentSocket(gateway, part, result_chars=self._provider.result_chars)
        stack.push_async_callback(socket.close)
        request, server = self._request, await socket.open()
        return RunSpec(mode=request.mode, project=request.folder, run=part / "run", server=server), socket

    async def _isolation(self, installed: InstalledAgent, gateway: AgentGateway, part: Path) -> Isolation:
        async def probe() -> ProbeResult:
            async with AsyncExitStack() as stack:
                spec, _ = await self._run_spec(gateway, part, stack)
                return await probe_agent(self._runner, self._provider, installed, spec)

        store = ProbeStore(self._request.settings.gateway.state_dir)
        try:
            return await check_isolation(self._provider, installed, self._request.mode, store, probe)
        except GatewayError as error:
            if error.problem.code is not NATIVE_TOOL:
                raise
            raise GatewayError(replace(error.problem, hint=_TOOLS_OF_ITS_OWN)) from None


# -- from start to end -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """How a session ended: `status` is the exit status to return. A warning in `problem` has not changed it."""

    status: int
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionObserver:
    """What the command line shows: `emit` gets warnings until the agent has the terminal, `waiting` lasts while things
    are made ready, and `ready` gets what is about to be started."""

    emit: EmitEvent
    waiting: Callable[[], AbstractAsyncContextManager[None]]
    ready: Callable[[PreparedSession], None]


async def run_session(request: SessionRequest, observer: SessionObserver, log_file: Path) -> SessionResult:
    """Run a session until it ends or a signal ends it. Raises GatewayError if it cannot be started."""
    signals = SessionSignals()
    with handle_signals(signals.on_signal):
        redact = Redactor(request.settings.secrets(request.environ), request.settings.names())
        settings, warning = _without_console_spans(request)
        telemetry = RunTelemetry(settings, observer.emit, redact=redact, log_file=log_file, environ=request.environ)
        if warning is not None:
            telemetry.warn(request.provider, warning)
        children = Children(on_fault=lambda fault: telemetry.events.note("error", "supervisor", fault))
        session = AgentSession(request, children, telemetry)
        try:
            return await _run(session, request, observer, telemetry, signals)
        finally:
            await _close(signals, session, children, telemetry)


def _without_console_spans(request: SessionRequest) -> tuple[Settings, Problem | None]:
    """The settings without spans on the console, which would disturb a conversation."""
    gateway = request.settings.gateway
    if request.headless or gateway.telemetry.exporter != "console":
        return request.settings, None
    message = "Spans are not exported: `exporter: console` would print them over the agent's screen"
    problem = Problem(code=BAD_VALUE, message=message, severity="warning", hint="use `exporter: file`")
    telemetry = gateway.telemetry.replace(exporter="none")
    return replace(request.settings, gateway=gateway.replace(telemetry=telemetry)), problem


async def _run(
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
        with signals.agent_has_terminal(headless=request.headless):
            code = await signals.unless_interrupted(session.run(prepared), name)
        end = _result_of(request, code, prepared.socket, signals)
    except GatewayError as error:
        end = SessionResult(status=error.problem.code.exit or 1, problem=error.problem)
    signals.agent_ended(end.status)
    session.record_end(end.status, end.problem)
    why: dict[str, object] = {} if end.problem is None else {"code": end.problem.code.id}
    note("info", "session_ended", name, status=end.status, seconds=round(monotonic() - began_at, 3), **why)
    return end


def _result_of(request: SessionRequest, code: int, socket: AgentSocket, signals: SessionSignals) -> SessionResult:
    """The exit status to return: a headless agent may exit with 0 when interrupted, or without our tools."""
    status = code if code >= 0 else 128 - code
    if request.headless and signals.pressed:
        return SessionResult(status=INTERRUPTED, problem=interrupted_problem(request.provider, "SIGINT"))
    if socket.listed:
        return _after_loss(request, status, socket.interrupted_calls)
    if request.headless and status == 0:
        problem = not_listed_problem(request.provider, "exited without asking for its tools")
        return SessionResult(status=1, problem=problem)
    message = f"`{request.provider}` exited before it asked for its tools"
    problem = Problem(code=TOOLS_NOT_LISTED, message=message, where=request.provider, severity="warning")
    return SessionResult(status=status, problem=problem)


def _after_loss(request: SessionRequest, status: int, loss: InterruptedCalls) -> SessionResult:
    """The result after a lost connection. A headless agent that continued without tools may exit with 0; in a
    conversation, leaving in the middle of a call loses the connection as well."""
    mattered = request.headless or asyncio.get_running_loop().time() - loss.at > _LEAVING_S
    if not loss.tools or not mattered:
        return SessionResult(status=status)
    problem = tools_lost_problem(request.provider, loss.tools)
    if request.headless and status == 0 and not loss.reconnected:
        return SessionResult(status=1, problem=problem)
    return SessionResult(status=status, problem=replace(problem, severity="warning"))


async def _close(signals: SessionSignals, session: AgentSession, children: Children, telemetry: RunTelemetry) -> None:
    """What does not end in time is left to the supervisors, which end everything once this process is gone."""
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
    """The default log file of sessions; a long one is rotated. Raises OSError."""
    folder = gateway_folder(settings)
    make_private_folder(folder)
    log = folder / _LOG
    with suppress(FileNotFoundError):
        if log.stat().st_size > _LONGEST_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
    return log
