"""What is recorded of a run besides what people see: the log of calls, spans, and the secrets that are in neither.

People see progress on stderr, one line for each call, so the structured log is not mixed into it: its JSON lines go to
the file of `--log`, and nowhere without one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

from trunkline.agents.runs.run_events import RunEnded, RunEvent, StepEnded, StepStarted, Tell, Warned
from trunkline.config.report import FileProblem
from trunkline.config.settings import Settings
from trunkline.core.call import Call
from trunkline.core.errors import BAD_VALUE, GatewayError, Problem
from trunkline.core.events import Events, Level, Note
from trunkline.core.source import Health
from trunkline.router.router import Router
from trunkline.telemetry.call_lines import CallLines
from trunkline.telemetry.logs import CallLog
from trunkline.telemetry.redact import Redactor
from trunkline.telemetry.tracing import make_tracer


class RunTelemetry:
    """`tell` hears of warnings; everything else that happens in the run is to be told to `hear`."""

    def __init__(
        self, settings: Settings, tell: Tell, *, redact: Redactor, log_file: Path | None, environ: Mapping[str, str]
    ) -> None:
        self.redact = redact
        self.events = Events()
        self._tell = tell
        self._log_fd = -1 if log_file is None else _opened(log_file)
        level = cast(Level, settings.gateway.log.level)
        self._log = (
            None if log_file is None else CallLog(stream_fd=self._log_fd, level=level, format="json", redactor=redact)
        )
        self.tracer = make_tracer(
            settings.gateway.telemetry, environ=environ, redact=redact, events=self.events, folder=settings.path.parent
        )
        self._lines: dict[str, CallLines] = {}
        self._journal = Events()
        if self._log is not None:
            self._log.attach(self._journal)
        self._attach(self.events, "")

    def events_of(self, step: str) -> Events:
        """For the gateway of one step: what happens there is logged, and what is wrong there is told."""
        events = Events()
        self._attach(events, step)
        return events

    def follow(self, step: str, router: Router, command_of: Callable[[Call], str] | None) -> None:
        """The calls of a step's router are logged with the names that callers know.

        `command_of` gives the commands to show beside them."""
        if self._log is not None:
            self._lines[step].follow(router, command_of)

    def warn(self, step: str, problem: Problem) -> None:
        """Something that somebody should know, and that does not end the step."""
        self._tell(Warned(step=step, code=problem.code.id, message=problem.message, hint=problem.hint))
        self._write("warning", "run", problem.message, step=step, code=problem.code.id, hint=problem.hint)

    def record(self, told: Iterable[FileProblem]) -> None:
        """Problems of the file that its reader was told of."""
        for problem in told:
            where, code = problem.where, problem.code.id
            self._write("warning", "workflow", problem.message, step=problem.step, code=code, where=where)

    def hear(self, event: RunEvent) -> None:
        """The beginnings and ends of a run, for the log."""
        match event:
            case StepStarted():
                self._write(
                    "info", "step_started", event.step, step=event.step, provider=event.provider, mode=event.mode
                )
            case StepEnded():
                code = "" if event.problem is None else event.problem.code.id
                level: Level = "info" if event.problem is None else "warning"
                self._write(
                    level, "step_ended", event.status, step=event.step, code=code, seconds=round(event.seconds, 3)
                )
            case RunEnded():
                self._write("info", "run_ended", event.status, steps=event.steps, seconds=round(event.seconds, 3))
            case _:
                pass

    async def close(self) -> None:
        try:
            if self.tracer is not None:
                await self.tracer.close()
        finally:
            if self._log is not None:
                self._log.close()
                os.close(self._log_fd)

    def _attach(self, events: Events, step: str) -> None:
        if self._log is not None:
            self._lines[step] = self._log.attach(events, None if self.tracer is None else self.tracer.ids_of)
        events.noted.append(lambda note: self._noted(step, note))
        events.health.append(lambda source, health: self._health(step, source, health))

    def _noted(self, step: str, note: Note) -> None:
        if note.level in ("warning", "error"):
            fields = {name: str(value) for name, value in note.fields}
            self._tell(
                Warned(step=step, code=fields.get("code", ""), message=note.message, hint=fields.get("hint", ""))
            )

    def _health(self, step: str, source: str, health: Health) -> None:
        if health.state in ("down", "auth_required"):
            message = f"{source} is {health.state}: {health.reason}"
            self._tell(Warned(step=step, code="", message=message, hint=health.hint))

    def _write(self, level: Level, event: str, message: str, **fields: object) -> None:
        """Into the log alone: whoever watches is told otherwise."""
        self._journal.note(level, event, message, **{name: value for name, value in fields.items() if value})


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"The log file cannot be written: {error.strerror}"
        raise GatewayError(Problem(code=BAD_VALUE, message=message, where=str(path))) from error
