"""Where a run is shown: progress and a summary on stderr for people, or an event a line on stdout for programs.

Both write to streams that take everything at once (`aside.py`), and whose failures are told at the end of the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

import click

from trunkline.agents.runs.progress import RunProgress, RunSummary
from trunkline.agents.runs.run_events import RunEnded, RunEvent, StepEnded, ToolCallEnded, Warned, as_json
from trunkline.cli.ask.waiting import Waiting
from trunkline.cli.terminal import echo_data

_COLOURS: Final = {"success": "green", "failure": "red", "interrupted": "yellow"}


class Screen(Protocol):
    waiting: Waiting

    def hear(self, event: RunEvent, /) -> None: ...
    def close(self, ended: RunEnded, /) -> None: ...


class JsonScreen:
    """One JSON object a line, at once. Nothing that happens to stdout ends the run."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.waiting = Waiting("")
        self._redact = redact

    def hear(self, event: RunEvent) -> None:
        members = as_json(event, self._redact)
        members["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps(members)  # ASCII: nothing in it reaches a terminal as a control character
        with suppress(OSError):
            sys.stdout.write(f"{line}\n")

    def close(self, ended: RunEnded) -> None:
        """Everything has been said."""


class PeopleScreen:
    """Lines as things happen, below them what is waited for; at the end a table, and on stdout the last output."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.waiting = Waiting("")
        self._progress = RunProgress(redact)
        self._summary = RunSummary(redact)

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
            with suppress(OSError):
                echo_data(ended.output)

    def _show(self, line: str) -> None:
        self.waiting.clear()
        click.echo(line, err=True)


def _styled(line: str, event: RunEvent) -> str:
    if isinstance(event, Warned):
        return click.style(line, fg="yellow")
    if isinstance(event, StepEnded | RunEnded):
        return click.style(line, fg=_COLOURS[event.status], bold=isinstance(event, RunEnded))
    return click.style(line, dim=True) if isinstance(event, ToolCallEnded) else line
