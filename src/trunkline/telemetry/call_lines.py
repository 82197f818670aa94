"""The lines of calls in the log.

A line is made from two parts that are kept (what was called, who called) and two numbers, so that names are redacted
and escaped once and not once per call. Arguments, results and servers' error texts are not looked at, but for whether a
result says that its tool failed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Final

from trunkline.core.call import Call, Result
from trunkline.core.errors import INTERNAL
from trunkline.core.events import Level
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.telemetry.call_end import tool_failed, what_of
from trunkline.telemetry.log_format import Client, LineFormat, Target
from trunkline.telemetry.tool_names import NamingRouter, ToolNames

_FINE_OUTCOMES: Final = frozenset({"ok", "cached", "input_required"})
_KEPT_PARTS: Final = 4096
_LONGEST_KEPT_NAME: Final = 256
"""Longer names come from broken or hostile clients; they are formatted each time, so that nobody fills our memory."""

IdsOf = Callable[[Call], tuple[str, str] | None]
_What = tuple[str, ...]
"""Source, tool and method; of all that is not just `ok` also the outcome, `executed` and the kind of error."""
_Who = tuple[str, str | None, str]


class CallLines:
    """Those of one stream of events. Which names callers know is known as soon as it follows a router."""

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
        self._heads: dict[_What, str] = {}
        self._tails: dict[_Who, str] = {}
        self._stamp = ""
        self._stamp_from = self._stamp_until = 0.0

    def follow(self, router: NamingRouter, command_of: Callable[[Call], str] | None = None) -> None:
        """From now on lines have the names that spans have. `command_of` gives the command that a call ran, to be shown
        as it is, or nothing."""
        self._router = router
        self._names = ToolNames(router)
        self._command_of = command_of

    def call_done(self, call: Call, seconds: float) -> None:
        if self._router is not None and self._router.names_version != self._names_version:
            self._heads.clear()
            self._names_version = self._router.names_version
        outcome = call.outcome
        if type(outcome) is Result and not (call.method == TOOLS_CALL and tool_failed(outcome)):
            what = (call.source, call.tool, call.method)
        else:
            what = _ending_of(call)
        head = self._heads.get(what)
        if head is None:
            head = self._make_head(call, what)
        if not head:
            return  # below the level that is logged
        caller = call.caller
        who = (caller.principal, caller.session, caller.client)
        tail = self._tails.get(who)
        if tail is None:
            tail = self._make_tail(who)
        if self._ids_of is not None or self._command_of is not None:
            tail = self._with_more(tail, call)
        now = time()
        if not self._stamp_from <= now < self._stamp_until:
            self._renew_stamp(now)
        self._put(f"{self._stamp}{head}{seconds * 1000:.3f}{tail}")

    def _with_more(self, tail: str, call: Call) -> str:
        if self._ids_of is not None and (ids := self._ids_of(call)) is not None:
            tail = self._format.traced(tail, *ids)
        if self._command_of is not None and (command := self._command_of(call)):
            tail = self._format.with_command(tail, command)
        return tail

    def _make_head(self, call: Call, what: _What) -> str:
        source, tool, method, outcome, executed, error = what if len(what) > 3 else (*what, "ok", "", "")
        name = origin = ""
        if self._names is not None and method == TOOLS_CALL:
            name, origin = self._names.tool(call), self._names.source(source)
        level = _level_of(outcome)
        target = Target(source, tool, method, outcome, executed, name, origin, error)
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


def _ending_of(call: Call) -> _What:
    method, source, _, word, executed, _, error = what_of(call, "")
    return (source, call.tool, method, word, executed, error)


def _level_of(outcome: str) -> Level:
    if outcome in _FINE_OUTCOMES:
        return "info"
    return "error" if outcome == INTERNAL.id else "warning"
