"""A session from its beginning to its end: what ends it early, what is recorded of it, and what its end is worth."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Final

from trunkline.agents.hearing import not_listed, tools_lost
from trunkline.agents.runs.agent_session import AgentSession, Prepared, SessionAsked
from trunkline.agents.runs.interrupt import INTERRUPTED
from trunkline.agents.runs.run_events import Tell
from trunkline.agents.runs.run_telemetry import RunTelemetry
from trunkline.agents.runs.session_signals import SessionSignals, interrupted, listening_beside
from trunkline.config.settings import Settings, gateway_folder
from trunkline.core.errors import BAD_VALUE, TOOLS_NOT_LISTED, GatewayError, Problem
from trunkline.frontends.stdio.private_socket import CutOff
from trunkline.runtime.children import Children
from trunkline.runtime.private_files import make_private_folder
from trunkline.telemetry.redact import Redactor

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
