"""Where a run is shown: progress and a summary on stderr for people, or an event a line on stdout for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

import click

from trunkline.cli.ask.waiting import Waiting
from trunkline.cli.terminal import echo_data
from trunkline.runs.progress import Progress
from trunkline.runs.run_events import RunEnded, RunEvent, StepEnded, ToolCallEnded, Warned, as_json
from trunkline.runs.summary import Summary

_COLOURS: Final = {"success": "green", "failure": "red", "interrupted": "yellow"}


class Screen(Protocol):
    waiting: Waiting

    def hear(self, event: RunEvent, /) -> None: ...
    def close(self, ended: RunEnded, /) -> None: ...


class JsonScreen:
    """One JSON object a line, at once. Nothing that happens to stdout ends the run; a full disk is told at its end."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.waiting = Waiting("")
        self._redact = redact
        self._gone = False
        self._lost: OSError | None = None

    def hear(self, event: RunEvent) -> None:
        if self._gone:
            return
        members = as_json(event, self._redact)
        members["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            sys.stdout.write(
                json.dumps(members) + "\n"
            )  # ASCII: nothing in it reaches a terminal as a control character
            sys.stdout.flush()
        except BrokenPipeError:
            self._gone = True  # whoever read has enough
        except OSError as error:
            self._gone, self._lost = True, error

    def close(self, ended: RunEnded) -> None:
        if self._lost is not None:
            raise self._lost


class PeopleScreen:
    """Lines as things happen, below them what is waited for; at the end a table, and on stdout the last output."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.waiting = Waiting("")
        self._progress = Progress(redact)
        self._summary = Summary(redact)

    def hear(self, event: RunEvent) -> None:
        self._summary.hear(event)
        activity = self._progress.activity(event)
        if activity:
            self.waiting.begin(activity)
        for line in self._progress.lines(event):
            self._show(_styled(line, event))

    def close(self, ended: RunEnded) -> None:
        for line in self._summary.lines():
            self._show(line)
        if ended.output:
            with suppress(BrokenPipeError):
                echo_data(ended.output)

    def _show(self, line: str) -> None:
        self.waiting.clear()
        with suppress(OSError):  # a full disk or a closed terminal behind stderr is no reason to stop
            click.echo(line, err=True)


def _styled(line: str, event: RunEvent) -> str:
    if isinstance(event, Warned):
        return click.style(line, fg="yellow")
    if isinstance(event, StepEnded | RunEnded):
        return click.style(line, fg=_COLOURS[event.status], bold=isinstance(event, RunEnded))
    return click.style(line, dim=True) if isinstance(event, ToolCallEnded) else line
