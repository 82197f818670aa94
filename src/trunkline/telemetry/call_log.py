"""The call log: every event becomes one structured line, human on a terminal and JSON anywhere else.

The line of a call is made of two parts that are kept (what was called, who called) and two numbers, so that names are
redacted and escaped once and not once per call. Arguments, results and servers' error texts are not read, except to
find out whether a result says that its tool failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import time
from typing import Final, Literal

from trunkline.core.call import Call, Result
from trunkline.core.errors import INTERNAL
from trunkline.core.events import Events, Level, LogEvent
from trunkline.core.source import Health
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.telemetry.call_summary import NamingRouter, ToolNames, summarize, tool_failed
from trunkline.telemetry.log_format import (
    TEXT_LIMIT,
    CallFields,
    HumanFormat,
    JsonFormat,
    LineFormat,
    Redact,
    caller_fields,
)
from trunkline.telemetry.log_writer import LineWriter
from trunkline.telemetry.redaction import Redactor

_FINE_OUTCOMES: Final = frozenset({"ok", "cached", "input_required"})
_MAX_CACHED: Final = 4096
_LONGEST_CACHED_NAME: Final = 256
"""Longer names come from broken or hostile clients; they are formatted each time, so that they cannot fill memory."""

IdsOf = Callable[[Call], tuple[str, str] | None]
_HeadKey = tuple[str, ...]
"""Source, tool and method; unless the outcome is plainly `ok`, also the outcome, `executed` and the kind of error."""
_TailKey = tuple[str, str | None, str]


class CallLines:
    """Writes the lines of calls of one stream of events. They have callers' names of tools once it follows a router."""

    def __init__(
        self, form: LineFormat, put: Callable[[str], None], logs: Callable[[Level], bool], ids_of: IdsOf | None = None
    ) -> None:
        self._format = form
        self._put = put
        self._logs = logs
        self._ids_of = ids_of
        self._router: NamingRouter | None = None
        self._names: ToolNames | None = None
        self._names_version = -1
        self._command_of: Callable[[Call], str] | None = None
        self._heads: dict[_HeadKey, str] = {}
        self._tails: dict[_TailKey, str] = {}
        self._stamp = ""
        self._stamp_from = self._stamp_until = 0.0

    def follow(self, router: NamingRouter, command_of: Callable[[Call], str] | None = None) -> None:
        """Write the names that spans have. `command_of` returns the command that a call ran, to be shown as it is, or
        an empty text."""
        self._router = router
        self._names = ToolNames(router)
        self._command_of = command_of

    def call_done(self, call: Call, seconds: float) -> None:
        if self._router is not None and self._router.names_version != self._names_version:
            self._heads.clear()
            self._names_version = self._router.names_version
        outcome = call.outcome
        if type(outcome) is Result and not (call.method == TOOLS_CALL and tool_failed(outcome)):
            head_key = (call.source, call.tool, call.method)
        else:
            method, source, _, word, executed, _, error = summarize(call, "")
            head_key = (source, call.tool, method, word, executed, error)
        head = self._heads.get(head_key)
        if head is None:
            head = self._make_head(call, head_key)
        if not head:
            return  # below the level that is logged
        caller = call.caller
        tail_key = (caller.principal, caller.session, caller.client)
        tail = self._tails.get(tail_key)
        if tail is None:
            tail = self._make_tail(tail_key)
        if self._ids_of is not None and (ids := self._ids_of(call)) is not None:
            tail = self._format.traced(tail, *ids)
        if self._command_of is not None and (command := self._command_of(call)):
            tail = self._format.with_command(tail, command)
        now = time()
        if not self._stamp_from <= now < self._stamp_until:
            # One stamp serves all calls of its millisecond: making it takes longer than all the rest of a line.
            milliseconds = int(now * 1000)
            self._stamp = self._format.stamp(milliseconds)
            self._stamp_from = milliseconds / 1000
            self._stamp_until = (milliseconds + 1) / 1000
        self._put(f"{self._stamp}{head}{seconds * 1000:.3f}{tail}")

    def _make_head(self, call: Call, head_key: _HeadKey) -> str:
        source, tool, method, outcome, executed, error = head_key if len(head_key) > 3 else (*head_key, "ok", "", "")
        name = origin = ""
        if self._names is not None and method == TOOLS_CALL:
            name, origin = self._names.tool(call), self._names.source(source)
        level: Level = "info" if outcome in _FINE_OUTCOMES else "error" if outcome == INTERNAL.id else "warning"
        target = CallFields(source, tool, method, outcome, executed, name, origin, error)
        head = self._format.head(level, target) if self._logs(level) else ""
        if max(map(len, head_key)) <= _LONGEST_CACHED_NAME:
            if len(self._heads) >= _MAX_CACHED:
                self._heads.clear()
            self._heads[head_key] = head
        return head

    def _make_tail(self, tail_key: _TailKey) -> str:
        tail = self._format.tail(caller_fields(*tail_key))
        if sum(len(part or "") for part in tail_key) <= _LONGEST_CACHED_NAME:
            if len(self._tails) >= _MAX_CACHED:
                self._tails.clear()
            self._tails[tail_key] = tail
        return tail


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
        """Log these events. `ids_of` returns the trace and the span of a call, where calls are traced. The returned
        object writes the lines of calls; it can be given the router they belong to."""
        lines = CallLines(self._format, self._put, self._logs, ids_of)
        events.call_done.append(lines.call_done)
        events.health.append(self._health_changed)
        events.noted.append(self._noted)
        return lines

    def close(self) -> None:
        self._writer.close()

    def _health_changed(self, source: str, health: Health) -> None:
        to_do = health.state == "ready" and health.hint  # it works, but not as somebody may believe
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
    human = wanted == "human" or (wanted == "auto" and os.isatty(fd))
    return HumanFormat(redact) if human else JsonFormat(redact)
