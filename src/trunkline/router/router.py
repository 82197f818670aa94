"""The one path of a call: find the tool, pass its source's gate, watch the deadline, answer once, tell everyone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final, cast

from trunkline.core.call import Call, Caller, Failure, Json, Request
from trunkline.core.errors import DEADLINE, UNKNOWN_TOOL, Problem
from trunkline.core.events import Events
from trunkline.core.names import split_address, without_own_prefix
from trunkline.core.question import Question
from trunkline.router.catalog import Entry
from trunkline.router.definitions import Definitions
from trunkline.router.gate import Gate
from trunkline.router.options import RouterOptions
from trunkline.router.result_cache import ResultCache
from trunkline.router.roster import Roster
from trunkline.wire.jsonrpc import BadMessage, Members, encode, single_line

TOOLS_CALL: Final = "tools/call"
_MAX_REPORTED: Final = 1000
_NOT_PASSED_ON: Final = ("name", "_meta")
_ROUTED_BY: Final = frozenset({"name", "arguments", "_meta"})
Notice = Callable[[str, Json], None]
Ask = Callable[[Question], None]


@dataclass(slots=True)
class _Waiting:
    """What a call asks for while no server has that name yet and one that may have it is still starting."""

    name: str
    members: Members


class Router:
    def __init__(self, options: RouterOptions, events: Events, definitions: Definitions) -> None:
        self.events = events
        self.roster = Roster(options, events, definitions)
        self.roster.on_news.append(self._settle)
        self.gates = self.roster.gates
        self.catalog = self.roster.catalog
        self.views = self.roster.views
        self.clients = self.roster.clients
        self._options = options
        self._unresolved: dict[Call, _Waiting] = {}
        self._list_waiters: list[Callable[[], None]] = []
        self._reported: set[str] = set()
        self._draining = False
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self.cache = ResultCache(self.roster, options.cache_bytes, self._loop.time)

    def drain(self) -> None:
        """Take no new calls; those that still wait for a server are refused now."""
        self._draining = True
        self.roster.drain()

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def in_flight(self) -> int:
        return self.roster.in_flight

    # -- lists ----------------------------------------------------------------------------------------------------

    def when_listed(self, then: Callable[[], None]) -> None:
        """Run `then` once every server has been heard of, or the start-up wait is over; usually that is now."""
        wait_s = self._started_at + self._options.start_wait_s - self._loop.time()
        if wait_s <= 0 or not self._unheard():
            then()
            return
        if not self._list_waiters:
            self._loop.call_later(wait_s, self._release_list_waiters)
        self._list_waiters.append(then)

    def _unheard(self) -> bool:
        return any(
            gate.health.state == "starting" and self.catalog.snapshot(name) is None for name, gate in self.gates.items()
        )

    def _release_list_waiters(self) -> None:
        waiters, self._list_waiters = self._list_waiters, []
        for then in waiters:
            then()

    def report_collisions(self) -> None:
        """Tools that lost their name to another: each is worth one line, once."""
        for problem in self.catalog.collisions:
            if problem.message not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(problem.message)
                self.events.note("warning", "names", problem.message, code=problem.code.id, hint=problem.hint)

    def _settle(self) -> None:
        """Something became known: see who waited for it."""
        if self._list_waiters and not self._unheard():
            self._release_list_waiters()
        if self._unresolved:
            waiting, self._unresolved = self._unresolved, {}
            for call, asked in waiting.items():
                if not call.done:
                    self._route(call, asked.name, asked.members)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call_tool(
        self,
        caller: Caller,
        name: str,
        members: Members,
        reply: Callable[[Call], None],
        *,
        meta: Mapping[str, Json] | None = None,
        notice: Notice | None = None,
        progress: bool = False,
        ask: Ask | None = None,
    ) -> Call:
        """Route one `tools/call`. `reply` is called exactly once, maybe before this returns.

        `notice` takes notifications that belong to the call, those of its progress only when `progress` is asked for;
        `ask` takes questions to the client.
        """
        call = Call(TOOLS_CALL, b"", self._ended, caller=caller, reply=reply, meta=meta)
        call.started_at = monotonic()
        call.on_notice = notice
        call.on_question = ask
        call.wants_progress = progress
        self._route(call, name, members)
        return call

    def _route(self, call: Call, name: str, members: Members) -> None:
        entry = self.views.of(call.caller).find(name)
        if entry is None:
            self._route_unknown(call, name, members)
            return
        tool = entry.tool
        call.source, call.tool = tool.source, tool.name
        try:
            call.params = tool_params(entry, members)
        except BadMessage as error:
            call.finish(Failure(error.problem))
            return
        gate = self.gates[tool.source]
        options = gate.options
        if options.cache is not None and self.cache.answers(call, tool, gate, options.cache, members):
            return
        self._set_deadline(call, options.timeouts_s.get(tool.name, options.timeout_s))
        if not call.done:
            gate.admit(call)

    def _route_unknown(self, call: Call, name: str, members: Members) -> None:
        """No such tool, or a server that has not said yet what it offers."""
        call.tool = name
        silent = [s for s in self.catalog.sources_that_may_have(name) if self.catalog.snapshot(s) is None]
        starting = [s for s in silent if self.gates[s].health.state == "starting"]
        if starting and not self._draining:
            if call.timer is None:
                self._set_deadline(call, max(self.gates[s].options.timeout_s for s in starting))
            self._unresolved[call] = _Waiting(name, members)
            return
        address = split_address(without_own_prefix(name))
        refusing = starting or [s for s in silent if self.gates[s].refuses and _is_named(name, self.gates[s])]
        if refusing:
            call.source, call.tool = refusing[0], ""  # a name that nobody has confirmed is no label for anything
            self.gates[refusing[0]].admit(call)
        elif address is not None and address[0] not in self.gates:
            call.finish(Failure(_unknown(f"Unknown tool: {name} (no server `{address[0]}`)", name)))
        else:
            addresses = self.views.of(call.caller).addresses_of(without_own_prefix(name))
            which = f" (which one: {', '.join(addresses)}?)" if addresses else ""
            call.finish(Failure(_unknown(f"Unknown tool: {name}{which}", name)))

    def _set_deadline(self, call: Call, timeout_s: float) -> None:
        call.timeout = left_s = timeout_s
        if call.timer is not None:  # it waited until its server told what it offers, and that time counts
            call.timer.cancel()
            left_s -= monotonic() - call.started_at
            if left_s <= 0:
                self._expired(call)
                return
        call.timer = self._loop.call_later(left_s, self._expired, call)

    def _expired(self, call: Call) -> None:
        """Progress buys more time, up to the absolute maximum of a call; a question to the client stops the clock."""
        now = monotonic()
        if call.questions:  # each has a deadline of its own
            call.timer = self._loop.call_later(call.timeout, self._expired, call)
            return
        end = min(call.progressed_at + call.timeout, call.started_at + self._options.call_s)
        if call.progressed_at and end > now:
            call.timer = self._loop.call_later(end - now, self._expired, call)
            return
        seconds = round(now - call.started_at) if call.progressed_at else call.timeout
        phase = call.phase
        problem = Problem(
            code=DEADLINE,
            message=f"Tool execution timed out after {seconds:g} seconds",
            source=call.source,
            tool=call.tool,
            phase=phase,
            executed="no" if phase == "queued" else "unknown",
            retryable=phase == "queued",
            hint="raise `timeout` of the server, or `tools.timeouts` of the tool, if it needs longer",
        )
        call.give_up(Failure(problem))

    def _ended(self, request: Request) -> None:
        """Every call comes through here once, whatever became of it."""
        call = cast(Call, request)
        if call.timer is not None:
            call.timer.cancel()
        if self._unresolved:
            self._unresolved.pop(call, None)
        if call.gate is not None:
            call.gate.release(call)
        if call.keeper is not None:
            call.keeper.ended(call)
        try:
            call.reply(call)
        except Exception as error:  # a bug on the caller's side must not reach the source's other calls
            self.events.note("error", "internal", f"{type(error).__name__}: {error}", source=call.source)
        self.events.call_ended(call, monotonic() - call.started_at)


def tool_params(entry: Entry, members: Members) -> bytes:
    """The parameters for the source: its own name for the tool, everything else as the caller wrote it, on one line."""
    parts = [entry.params_head]
    for name, value in members.items():
        if name == "arguments":
            parts.append(b',"arguments":')
            parts.append(single_line(value))
        elif name not in _NOT_PASSED_ON and name.casefold() not in _ROUTED_BY:
            # `Name` beside `name` would be a second name to a server that ignores case.
            parts.append(b",%b:" % encode(name))
            parts.append(single_line(value))
    parts.append(b"}")
    return b"".join(parts)


def _is_named(name: str, gate: Gate) -> bool:
    """Whether a tool of this name would be this server's, however the caller writes it."""
    source, prefix = gate.name, gate.options.rules.prefix or gate.name
    return without_own_prefix(name).startswith((f"{source}.", f"{source}_", f"{source}:", f"{prefix}_"))


def _unknown(message: str, name: str) -> Problem:
    return Problem(code=UNKNOWN_TOOL, message=message, tool=name, hint="`tools/list` shows the tools there are")
