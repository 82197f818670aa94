"""Runs an agent's program headless: starts it as its provider planned, follows its output, and ends it.

A run in which the agent never asked for our tools counts as failed, whatever it answered.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from trunkline.agents.events import AgentEvent
from trunkline.agents.final_answer import answer_problem
from trunkline.agents.installed_agent import InstalledAgent, query_program, too_slow_error
from trunkline.agents.output_monitor import OutputMonitor, not_listed_problem, tools_lost_problem
from trunkline.agents.providers.provider import LaunchPlan, LaunchRequest, Provider, RunSpec, UserSetup
from trunkline.config.secret_detection import secrets_in_environment
from trunkline.core.errors import AGENT_FAILED, DRAINING, STEP_TIMEOUT, GatewayError, Problem
from trunkline.frontends.stdio.private_socket import InterruptedCalls
from trunkline.protocol.framing import LineFramer, LineTooLong
from trunkline.runtime.child_io import PipeReader, PipeWriter, StderrTail, exit_reason, safe_text, stderr_hint
from trunkline.runtime.children import Children, child_environment
from trunkline.runtime.deadlines import wait_first
from trunkline.runtime.state_files import make_private_folder
from trunkline.runtime.supervisor_client import Child
from trunkline.telemetry.redaction import Redactor

_LISTING_S: Final = 60.0
_ANSWER_S: Final = 60.0
_SHOWN_CHARACTERS: Final = 2048


class ToolConnection(Protocol):
    """The agent's connection to our tools."""

    @property
    def listed(self) -> bool: ...
    @property
    def interrupted_calls(self) -> InterruptedCalls: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How a run ended. `output` is the answer unless there is a `problem`; `status` is negative for a signal."""

    output: str
    status: int
    input_tokens: int
    output_tokens: int
    problem: Problem | None
    seconds: float
    warnings: tuple[Problem, ...] = ()
    unreachable: str = ""
    """Why the model could not be reached at the end; empty if it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """A command line that starts an agent, and what it gets on stdin."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: str


class AgentRunner:
    """Starts agents as `children`, with the `home` and `environ` of the user."""

    def __init__(
        self,
        children: Children,
        *,
        home: Path,
        environ: Mapping[str, str],
        listing_s: float = _LISTING_S,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._children = children
        self._home = home
        self._environ = child_environment(environ, extra={}, inherit="all")
        self._listing_s = listing_s
        self._answer_s = answer_s
        self._redact = Redactor(secrets_in_environment(environ))

    async def run(
        self,
        provider: Provider,
        installed: InstalledAgent,
        spec: RunSpec,
        connection: ToolConnection | None,
        on_event: Callable[[AgentEvent], None],
    ) -> AgentResult:
        """Run the agent until it ends, times out or must be stopped; nothing of it is left on return. Raises
        GatewayError if it cannot be started. Cancelling this ends the agent within seconds."""
        started_at = monotonic()
        command = await self.prepare(provider, installed, spec)
        monitor = OutputMonitor(provider, spec.mode, on_event)
        process = await self._start(provider, command, monitor)
        try:
            problem = await self._wait(process, monitor, connection, provider, spec, started_at)
            loss = None if connection is None else connection.interrupted_calls  # ending the agent loses it as well
        finally:
            await process.end()
        problem = problem or self._final_problem(provider.name, process, monitor, connection)
        problem, warnings = _after_loss(loss, problem, provider.name, monitor)
        return AgentResult(
            output=monitor.answer or "",
            status=process.status,
            input_tokens=monitor.usage.input_tokens,
            output_tokens=monitor.usage.output_tokens,
            problem=problem,
            seconds=monotonic() - started_at,
            warnings=warnings,
            unreachable=self._unreachable(monitor),
        )

    async def prepare(self, provider: Provider, installed: InstalledAgent, spec: RunSpec) -> AgentCommand:
        """How to start the agent as its provider plans it, with the files of the plan written. The environment is the
        user's without our own variables, with PWD because some agents rely on it."""
        plan = provider.plan(
            LaunchRequest(
                **{each.name: getattr(spec, each.name) for each in fields(spec)},
                program=installed.program,
                version=installed.version,
                home=await self._read_user_setup(provider, installed, monotonic() + spec.timeout_s),
            )
        )
        try:
            write_plan(plan, spec.run)
        except OSError as error:
            message = f"The files of the run cannot be written: {error.strerror or error}"
            raise GatewayError(Problem(code=AGENT_FAILED, message=message, where=str(spec.run))) from error
        cwd = str(spec.run / plan.cwd if plan.cwd else spec.project)
        kept = {name: value for name, value in self._environ.items() if name not in plan.unset}
        return AgentCommand(argv=plan.argv, env=kept | {"PWD": cwd} | dict(plan.env), cwd=cwd, stdin=plan.stdin)

    async def _read_user_setup(self, provider: Provider, installed: InstalledAgent, deadline: float) -> UserSetup:
        query = provider.user_setup_query(self._home, self._environ)
        command_outputs: dict[str, str] = {}
        for name, arguments in query.command_outputs.items():
            argv = [installed.program, *arguments]
            left_s = deadline - monotonic()
            limit_s = min(self._answer_s, left_s)
            printed = await query_program(self._children, argv, env=self._environ, cwd="/", timeout_s=limit_s)
            if printed.status is None and limit_s < left_s:  # otherwise the whole step has timed out
                raise too_slow_error(provider.name, argv, limit_s)
            if printed.status == 0:
                command_outputs[name] = printed.stdout
        return UserSetup(
            folder=self._home,
            environ=self._environ,
            texts=read_texts(query.texts),
            command_outputs=command_outputs,
            present=existing(query.links),
            entries=entries(query.folders),
        )

    async def _start(self, provider: Provider, command: AgentCommand, monitor: OutputMonitor) -> AgentProcess:
        try:
            child = await self._children.spawn(command.argv, env=command.env, cwd=command.cwd, label=provider.name)
        except GatewayError as error:
            if error.problem.code is DRAINING:
                raise
            raise GatewayError(replace(error.problem, code=AGENT_FAILED)) from error
        return AgentProcess(child, stdin=command.stdin, on_line=monitor.line, redact=self._redact)

    async def _wait(
        self,
        process: AgentProcess,
        monitor: OutputMonitor,
        connection: ToolConnection | None,
        provider: Provider,
        spec: RunSpec,
        started_at: float,
    ) -> Problem | None:
        """Wait until the agent ends; the problem if it must be stopped before."""
        deadline = started_at + spec.timeout_s
        listing = deadline if connection is None else min(deadline, monotonic() + self._listing_s)
        for until in (listing, deadline):
            await wait_first([process.exited, monitor.stopped], until - monotonic())
            if monitor.stopped.done():
                return monitor.stop_reason()
            if process.exited.done():
                return None
            if until < deadline and connection is not None and not connection.listed:
                return not_listed_problem(provider.name, f"did not ask for its tools within {self._listing_s:g} s")
        message = f"`{provider.name}` did not finish within {spec.timeout_s:g} s{_after(self._unreachable(monitor))}"
        hint = "raise the `timeout` of the step"
        return Problem(code=STEP_TIMEOUT, message=message, where=provider.name, hint=hint)

    def _final_problem(
        self, agent: str, process: AgentProcess, monitor: OutputMonitor, connection: ToolConnection | None
    ) -> Problem | None:
        """The problem of an agent that ended by itself. Its last lines may contain what would have stopped it."""
        if (problem := monitor.stop_reason()) is not None:
            return problem
        status = process.status
        unlisted = connection is not None and not connection.listed
        if process.lost:
            return self._failed(agent, process, "was lost: its supervisor was killed")
        if monitor.reported_error:
            return self._failed(agent, process, f"reports: {self._shown(monitor.reported_error)}")
        if status != 0:
            what = exit_reason(status) + (" before it asked for its tools" if unlisted else "")
            return self._failed(agent, process, what + _after(self._unreachable(monitor)))
        if unlisted:
            tail = str(process.stderr)
            return replace(not_listed_problem(agent, "exited without asking for its tools"), stderr_tail=tail)
        if monitor.answer is None:
            return self._failed(agent, process, "ended without an answer" + _after(self._unreachable(monitor)))
        problem = answer_problem(f"`{agent}`", monitor.answer, monitor.has_tool)
        return None if problem is None else replace(problem, where=agent)

    def _failed(self, agent: str, process: AgentProcess, what: str) -> Problem:
        tail = str(process.stderr)
        return Problem(
            code=AGENT_FAILED, message=f"`{agent}` {what}", where=agent, hint=stderr_hint(tail), stderr_tail=tail
        )

    def _unreachable(self, monitor: OutputMonitor) -> str:
        if (last := monitor.retried) is None:
            return ""
        tries = f"{last.attempt} {'try' if last.attempt == 1 else 'tries'}"
        return f"its model could not be reached: {tries}, last: {self._shown(last.reason)}"

    def _shown(self, text: str) -> str:
        return safe_text(text, self._redact)[:_SHOWN_CHARACTERS]


def _after_loss(
    loss: InterruptedCalls | None, problem: Problem | None, agent: str, monitor: OutputMonitor
) -> tuple[Problem | None, tuple[Problem, ...]]:
    """The problem and the warnings of a run that lost its tools. One that continued without them has failed."""
    if loss is None or not loss.tools or (problem is None and loss.at >= monitor.answered_at):
        return problem, ()
    lost = tools_lost_problem(agent, loss.tools)
    if problem is None and not loss.reconnected:
        return lost, ()
    return problem, (replace(lost, severity="warning"),)


def _after(reason: str) -> str:
    return f"; {reason}" if reason else ""


_LONGEST_LINE_BYTES: Final = 32 << 20
"""Longer lines are skipped. Agents print whole tool results, images included."""
_TERM_S: Final = 2.0
_GONE_S: Final = 2.0  # after SIGKILL; what is still there hangs in the kernel


class AgentProcess:
    """An agent's process: takes over the pipes of a child. `on_line` gets each line of its stdout."""

    def __init__(
        self, child: Child, *, stdin: str, on_line: Callable[[str], None], redact: Callable[[str], str]
    ) -> None:
        self._child = child
        self._on_line = on_line
        self._framer = LineFramer(_LONGEST_LINE_BYTES)
        self.stderr = StderrTail(redact)
        self._reading = (PipeReader(child.stdout, self._on_stdout), PipeReader(child.stderr, self.stderr.add))
        self._feeding = PipeWriter(child.stdin, stdin.encode(errors="replace"))

    @property
    def exited(self) -> asyncio.Future[int]:
        return self._child.exited

    @property
    def status(self) -> int:
        """The exit status, negative for a signal; 0 if it never exited."""
        return self.exited.result() if self.exited.done() else 0

    @property
    def lost(self) -> bool:
        """Whether its exit status is unknown because its supervisor was killed."""
        return self._child.lost

    async def end(self) -> None:
        """End it and all it started with SIGTERM, then SIGKILL; if it has exited, only what it left behind.
        Afterwards every line it wrote has been handled. Cancelling this kills what is left at once."""
        try:
            if not self.exited.done():
                self._child.terminate(term_s=_TERM_S)
            await asyncio.wait([self._child.gone], timeout=_TERM_S + _GONE_S)
        finally:
            if not self._child.gone.done():
                self._child.kill()
            for pipe in (self._feeding, *self._reading):
                pipe.close()
            self._on_stdout(b"\n")  # the last line may have no newline

    def _on_stdout(self, data: bytes) -> None:
        more = True
        while more:
            try:
                lines, more = self._framer.feed(data), False
            except LineTooLong as error:
                lines, data = error.lines, b""
            for line in lines:
                self._on_line(line.decode(errors="replace"))


_LARGEST_TEXT_BYTES: Final = 16 << 20


def write_plan(plan: LaunchPlan, run: Path) -> None:
    """Write a plan's files (0600), folders (0700) and links, all below `run`. Raises OSError."""
    for name in plan.folders:
        make_private_folder(_path_in(run, name))
    for name, text in plan.files.items():
        path = _path_in(run, name)
        make_private_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    for name, target in plan.links.items():
        link = _path_in(run, name)
        make_private_folder(link.parent)
        link.symlink_to(target)


def read_texts(files: Mapping[str, Path]) -> dict[str, str]:
    """The texts of the user's files. Those that do not exist or are not text are left out."""
    found = ((name, _read(path)) for name, path in files.items())
    return {name: text for name, text in found if text is not None}


def existing(paths: Iterable[Path]) -> frozenset[Path]:
    return frozenset(path for path in paths if os.path.exists(path))  # noqa: PTH110  (never raises)


def entries(folders: Iterable[Path]) -> dict[Path, tuple[str, ...]]:
    """The names in each of these folders. Folders that cannot be read are left out."""
    found: dict[Path, tuple[str, ...]] = {}
    for folder in folders:
        with suppress(OSError):
            found[folder] = tuple(sorted(os.listdir(folder)))  # noqa: PTH208  (names, not paths)
    return found


def _path_in(run: Path, name: str) -> Path:
    path = run / name
    assert not Path(name).is_absolute(), name
    assert ".." not in path.parts, name
    return path


def _read(path: Path) -> str | None:
    try:
        # a named pipe would wait for a writer
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            data = file.read(_LARGEST_TEXT_BYTES + 1) or b""  # None if a pipe has nothing yet
    except (OSError, ValueError):
        return None
    try:
        return data.decode() if len(data) <= _LARGEST_TEXT_BYTES else None
    except UnicodeDecodeError:
        return None
