"""The call log: every event becomes one structured line, human on a terminal and JSON anywhere else.

A call's line is made from two parts that are kept (what was called, who called) and two numbers, so that names are
redacted and escaped once and not once per call. Arguments, results and servers' error texts are never looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from time import time
from typing import Final, Literal

from trunkline.core.call import Call, Failure, Result
from trunkline.core.errors import INTERNAL
from trunkline.core.events import Events, Level, Note
from trunkline.core.source import Health
from trunkline.telemetry.log_format import TEXT_LIMIT, Client, HumanFormat, JsonFormat, LineFormat, Redact, Target
from trunkline.telemetry.outcome import outcome_word
from trunkline.telemetry.redact import Redactor
from trunkline.telemetry.writer import LineWriter

LogFormat = Literal["auto", "human", "json"]

_RANK: Final[dict[Level, int]] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_FINE_OUTCOMES: Final = frozenset({"ok", "cached", "input_required"})
_FINE_STATES: Final = frozenset({"starting", "ready", "disabled"})
_KEPT_PARTS: Final = 4096
_LONGEST_KEPT_NAME: Final = 256
"""Longer names come from broken or hostile clients; they are formatted each time, so that nobody fills our memory."""

IdsOf = Callable[[Call], tuple[str, str] | None]
_What = tuple[str, str, str, str] | tuple[str, str, str, str, str]
_Who = tuple[str, str | None, str]


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
        self._heads: dict[_What, str] = {}
        self._tails: dict[_Who, str] = {}
        self._stamp = ""
        self._stamp_from = self._stamp_until = 0.0

    @property
    def dropped(self) -> int:
        """Lines that could not be written."""
        return self._writer.dropped

    def attach(self, events: Events, ids_of: IdsOf | None = None) -> None:
        """`ids_of` tells the trace and the span of a call, where calls are traced."""
        events.call_done.append(self._call_done if ids_of is None else partial(self._traced_call_done, ids_of))
        events.health.append(self._health_changed)
        events.noted.append(self._noted)

    def close(self) -> None:
        self._writer.close()

    def _traced_call_done(self, ids_of: IdsOf, call: Call, seconds: float) -> None:
        self._call_done(call, seconds, ids_of(call))

    def _call_done(self, call: Call, seconds: float, ids: tuple[str, str] | None = None) -> None:
        outcome = call.outcome
        if type(outcome) is Result:
            what = (call.source, call.tool, call.method, "ok")
        elif type(outcome) is Failure:
            problem = outcome.problem
            what = (call.source, call.tool, call.method, problem.code.id, problem.executed)
        else:
            what = (call.source, call.tool, call.method, outcome_word(outcome))
        head = self._heads.get(what)
        if head is None:
            head = self._make_head(what)
        if not head:
            return  # below the level that is logged
        caller = call.caller
        who = (caller.principal, caller.session, caller.client)
        tail = self._tails.get(who)
        if tail is None:
            tail = self._make_tail(who)
        if ids is not None:
            tail = self._format.traced(tail, *ids)
        now = time()
        if not self._stamp_from <= now < self._stamp_until:
            self._renew_stamp(now)
        self._put(f"{self._stamp}{head}{seconds * 1000:.3f}{tail}")

    def _make_head(self, what: _What) -> str:
        target = Target(*what)
        level = _call_level(target.outcome)
        head = self._format.head(level, target) if self._logs(level) else ""
        if max(map(len, what)) <= _LONGEST_KEPT_NAME:
            if len(self._heads) >= _KEPT_PARTS:
                self._heads.clear()
            self._heads[what] = head
        return head

    def _make_tail(self, who: _Who) -> str:
        client = Client(*who)
        tail = self._format.tail(client)
        if len(client.principal) + len(client.session or "") + len(client.name) <= _LONGEST_KEPT_NAME:
            if len(self._tails) >= _KEPT_PARTS:
                self._tails.clear()
            self._tails[who] = tail
        return tail

    def _renew_stamp(self, now: float) -> None:
        """One stamp serves all calls of its millisecond: making it takes longer than all the rest of a line."""
        milliseconds = int(now * 1000)
        self._stamp = self._format.stamp(milliseconds)
        self._stamp_from = milliseconds / 1000
        self._stamp_until = (milliseconds + 1) / 1000

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
        self._noted(Note(level, "health", f"{source} is {health.state}{reason}", tuple(fields)))

    def _noted(self, note: Note) -> None:
        if self._logs(note.level):
            self._put(self._note_line(note))

    def _note_line(self, note: Note) -> str:
        return self._format.stamp(int(time() * 1000)) + self._format.note(note)

    def _loss_line(self, lines: int) -> str:
        return self._note_line(Note("warning", "log_dropped", f"{lines} log lines could not be written"))

    def _logs(self, level: Level) -> bool:
        return _RANK[level] >= self._lowest_rank


def _call_level(outcome: str) -> Level:
    if outcome in _FINE_OUTCOMES:
        return "info"
    return "error" if outcome == INTERNAL.id else "warning"


def choose_format(wanted: LogFormat, fd: int, redact: Redact) -> LineFormat:
    if wanted == "human" or (wanted == "auto" and _is_terminal(fd)):
        return HumanFormat(redact)
    return JsonFormat(redact)


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
