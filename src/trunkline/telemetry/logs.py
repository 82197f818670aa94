"""The call log: every event becomes one structured line, human on a terminal and JSON anywhere else."""

from __future__ import annotations

import os
from time import time
from typing import Final, Literal

from trunkline.core.events import Events, Level, LogEvent
from trunkline.core.source import Health
from trunkline.telemetry.call_lines import CallLines, IdsOf
from trunkline.telemetry.log_format import TEXT_LIMIT, HumanFormat, JsonFormat, LineFormat, Redact
from trunkline.telemetry.redact import Redactor
from trunkline.telemetry.writer import LineWriter

LogFormat = Literal["auto", "human", "json"]

_RANK: Final[dict[Level, int]] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_FINE_STATES: Final = frozenset({"starting", "ready", "disabled"})


class CallLog:
    """Subscribes to the gateway's events and logs them; `close` when nothing is left to log."""

    def __init__(
        self,
        *,
        stream_fd: int = 2,
        level: Level = "info",
        format: LogFormat = "auto",  # noqa: A002
        redactor: Redactor | None = None,
    ) -> None:
        self._redact = redactor or Redactor()
        self._format = choose_format(format, stream_fd, self._redact)
        self._lowest_rank = _RANK[level]
        self._writer = LineWriter(stream_fd, loss_line=self._loss_line)
        self._put = self._writer.put

    @property
    def dropped(self) -> int:
        """Lines that could not be written."""
        return self._writer.dropped

    def attach(self, events: Events, ids_of: IdsOf | None = None) -> CallLines:
        """`ids_of` tells the trace and the span of a call, where calls are traced. What is returned writes the lines of
        calls: it can be told which router's they are."""
        lines = CallLines(self._format, self._put, self._logs, ids_of)
        events.call_done.append(lines.call_done)
        events.health.append(self._health_changed)
        events.noted.append(self._noted)
        return lines

    def close(self) -> None:
        self._writer.close()

    def _health_changed(self, source: str, health: Health) -> None:
        to_do = health.state == "ready" and health.hint  # it works, and not as somebody may believe
        level: Level = "info" if health.state in _FINE_STATES and not to_do else "warning"
        reason = f": {health.reason}" if health.reason else ""
        fields: list[tuple[str, object]] = [("source", source), ("state", health.state), ("restarts", health.restarts)]
        if health.last_error and health.last_error != health.reason:
            fields.append(("last_error", health.last_error))
        if health.hint and not (health.stderr_tail and health.hint.endswith(health.stderr_tail)):
            fields.append(("hint", health.hint))
        if health.stderr_tail and level == "warning":
            # Redacted before it is cut: half a secret would not be recognised. The end is what explains a failure.
            fields.append(("stderr", self._redact(health.stderr_tail)[-TEXT_LIMIT:]))
        self._noted(LogEvent(level, "health", f"{source} is {health.state}{reason}", tuple(fields)))

    def _noted(self, note: LogEvent) -> None:
        if self._logs(note.level):
            self._put(self._note_line(note))

    def _note_line(self, note: LogEvent) -> str:
        return self._format.stamp(int(time() * 1000)) + self._format.note(note)

    def _loss_line(self, lines: int) -> str:
        return self._note_line(LogEvent("warning", "log_dropped", f"{lines} log lines could not be written"))

    def _logs(self, level: Level) -> bool:
        return _RANK[level] >= self._lowest_rank


def choose_format(wanted: LogFormat, fd: int, redact: Redact) -> LineFormat:
    if wanted == "human" or (wanted == "auto" and _is_terminal(fd)):
        return HumanFormat(redact)
    return JsonFormat(redact)


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
