"""The one path of a call: find whom it is for, pass its source's gate, watch the deadline, answer once, tell everyone.

`tools/call` is routed here; `requests` routes the methods that come less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final, cast

from trunkline.core.call import Call, Caller, Failure, Json, Outcome, Request
from trunkline.core.errors import UNKNOWN_TOOL, Problem
from trunkline.core.events import Events
from trunkline.core.names import names_source, split_address, without_own_prefix
from trunkline.core.server_request import ServerRequest
from trunkline.core.tool import ListName
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, single_line
from trunkline.protocol.mcp.capabilities import NOTHING
from trunkline.protocol.mcp.param_headers import param_headers
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.admission import Admission, Deadlines
from trunkline.router.aggregation import refresh_lists
from trunkline.router.catalog import ToolEntry
from trunkline.router.definitions import DefinitionStore
from trunkline.router.options import Redirect, RouterOptions
from trunkline.router.path_guard import PathGuard
from trunkline.router.pending_calls import PendingCalls
from trunkline.router.registry import SourceRegistry
from trunkline.router.request_router import RequestRouter
from trunkline.router.result_cache import ResultCache
from trunkline.router.result_rewriting import ResultRewriter, UriRewriter
from trunkline.router.subscriptions import (
    OnTasksSettled,
    OnTaskUpdate,
    ResourceSubscription,
    ResourceSubscriptions,
    TaskSubscription,
    TaskSubscriptions,
)
from trunkline.router.task_ids import declares_tasks
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_calls import contained

TOOLS_CALL: Final = "tools/call"
_MAX_REPORTED: Final = 1000
_NOT_PASSED_ON: Final = ("name", "_meta")
_ROUTED_BY: Final = frozenset({"name", "arguments", "_meta"})
OnNotification = Callable[[str, Json], None]
OnServerRequest = Callable[[ServerRequest], None]


class Router:
    def __init__(self, options: RouterOptions, events: Events, definitions: DefinitionStore) -> None:
        self.events = events
        self.on_call: Callable[[Call], None] | None = None
        """Told of every call before it is routed; may add to what travels on in its `meta`."""
        self.registry = SourceRegistry(options, events, definitions)
        self.registry.on_source_changed.append(self._settle)
        self._call_memory = self.registry.call_memory
        self.admissions = self.registry.admissions
        self.catalog = self.registry.catalog
        self.views = self.registry.views
        self.clients = self.registry.clients
        self._options = options
        self._list_waiters: list[Callable[[], None]] = []
        self._reported: set[str] = set()
        self._draining = False
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self.cache = ResultCache(self.registry, options.cache_bytes, self._loop.time)
        self.uri_rewriter = UriRewriter(self.views)
        self.task_ids = self.registry.task_ids
        self._result_rewriter = ResultRewriter(self.uri_rewriter, self.task_ids)
        self._deadlines = Deadlines(self._loop, options.call_s)
        self._pending_calls = PendingCalls(self.registry, self._deadlines)
        self._path_guard = PathGuard(self._loop, self._deadlines)
        self._requests = RequestRouter(
            self.registry,
            self._deadlines,
            self._path_guard,
            self._pending_calls,
            self.uri_rewriter,
            self.task_ids,
            self._result_rewriter,
        )
        self._watches = ResourceSubscriptions(self.registry, self.uri_rewriter, self._pending_calls, self._loop)
        self._task_watches = TaskSubscriptions(self.registry, self.task_ids, self.uri_rewriter)

    def drain(self) -> None:
        """Take no new calls; those that still wait for a server are refused now."""
        self._draining = self._pending_calls.draining = True
        self.registry.drain()
        self._path_guard.drain()

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def in_flight(self) -> int:
        return self.registry.in_flight + self._path_guard.pending

    @property
    def large_call_bytes(self) -> int:
        return self._call_memory.total_bytes

    # -- what is there, for those who tell of it --------------------------------------------------------------------

    @property
    def names_version(self) -> int:
        """Goes up whenever tools may have other names."""
        return self.catalog.version

    def kind_of(self, source: str) -> str:
        admission = self.admissions.get(source)
        return "" if admission is None else admission.options.kind

    def shown_name(self, source: str, tool: str) -> str:
        """What callers call a source's tool; its own name where it is no longer there."""
        entry = self.catalog.find(f"{source}.{tool}")
        return tool if entry is None or entry.source != source else entry.public_name

    # -- lists ----------------------------------------------------------------------------------------------------

    def when_listed(self, then: Callable[[], None]) -> None:
        """Run `then` once every server has been heard of, or the start-up wait is over; usually that is now."""
        wait_s = self._started_at + self._options.start_wait_s - self._loop.time()
        if wait_s <= 0 or not self._unheard():
            then()
            return
        if not self._list_waiters:
            Deadline(wait_s, self._release_list_waiters)
        self._list_waiters.append(then)

    def _unheard(self) -> bool:
        return any(
            admission.health.state == "starting" and self.catalog.snapshot(name) is None
            for name, admission in self.admissions.items()
        )

    def _release_list_waiters(self) -> None:
        waiters, self._list_waiters = self._list_waiters, []
        for then in waiters:
            contained("a list that was waited for", then)

    def listed(self, kind: ListName) -> None:
        """Somebody lists this: servers whose last word on it is old are asked again, for the next one who does."""
        refresh_lists(self.registry, kind)

    def report_collisions(self) -> None:
        """Whatever lost its name or URI to another: each is worth one line, once."""
        catalog = self.catalog
        for problem in (*catalog.collisions, *catalog.prompts.collisions, *catalog.resources.collisions):
            if problem.message not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(problem.message)
                self.events.note("warning", "names", problem.message, code=problem.code.id, hint=problem.hint)

    def _settle(self) -> None:
        """Something became known: see who waited for it."""
        if self._list_waiters and not self._unheard():
            self._release_list_waiters()
        self._pending_calls.retry()
        self._watches.settle()

    # -- calls ----------------------------------------------------------------------------------------------------

    def call_tool(
        self,
        caller: Caller,
        name: str,
        members: Members,
        reply: Callable[[Call], None],
        *,
        meta: Mapping[str, Json] | None = None,
        on_notification: OnNotification | None = None,
        progress: bool = False,
        on_server_request: OnServerRequest | None = None,
    ) -> Call:
        """Route one `tools/call`. `reply` is called exactly once, maybe before this returns.

        `on_notification` takes notifications that belong to the call, those of its progress only when `progress` is asked for;
        `on_server_request` takes questions to the client.
        """
        call = Call(TOOLS_CALL, b"", self._ended, caller=caller, reply=reply, meta=meta)
        call.started_at = monotonic()
        call.on_notification = on_notification
        call.on_server_request = on_server_request
        call.wants_progress = progress
        if self.on_call is not None:
            self.on_call(call)
        self._route(call, name, members)
        return call

    def request(
        self,
        caller: Caller,
        method: str,
        members: Members,
        reply: Callable[[Call], None],
        *,
        meta: Mapping[str, Json] | None = None,
        on_notification: OnNotification | None = None,
        progress: bool = False,
        on_server_request: OnServerRequest | None = None,
    ) -> Call:
        """Route one request other than `tools/call`: `prompts/get`, `resources/read`, `completion/complete`, `tasks/*`.

        `members` are those of `params`, with the names and URIs that the caller knows. All else is as for `call_tool`.
        """
        call = Call(method, b"", self._ended, caller=caller, reply=reply, meta=meta)
        call.started_at = monotonic()
        call.on_notification = on_notification
        call.on_server_request = on_server_request
        call.wants_progress = progress
        if self.on_call is not None:
            self.on_call(call)
        self._requests.route(call, members)
        return call

    def subscribe(
        self,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], None],
        on_settled: Callable[[Outcome], None],
    ) -> ResourceSubscription:
        """Tell `on_updated` whenever a resource changes, with the parameters of the notification and the URI as this
        caller knows it, until the handle is closed. `on_settled` is called once, maybe before this returns."""
        return self._watches.open(caller, uri, on_updated, on_settled)

    def subscribe_tasks(
        self, caller: Caller, task_ids: Sequence[str], on_updated: OnTaskUpdate, on_settled: OnTasksSettled
    ) -> TaskSubscription:
        """Tell `on_updated` how these tasks get on, until the handle is closed. `on_settled` is called for every id once,
        maybe before this returns; ids that are not this caller's are just not told of."""
        return self._task_watches.open(caller, task_ids, on_updated, on_settled)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """A notification of a client, for every server that works for it."""
        for admission in list(self.admissions.values()):
            contained("a client's notification", admission.source.notify, caller, method, params)

    def _route(self, call: Call, name: str, members: Members, *, checked: bool = False) -> None:
        entry = self.views.of(call.caller).find(name)
        if entry is None:
            self._route_unknown(call, name, members)
            return
        tool = entry.tool
        call.source, call.tool = tool.source, tool.name
        admission = self.admissions[tool.source]
        options = admission.options
        if options.redirect is not None and self._redirects(call, options.redirect, members):
            return
        try:
            call.params = tool_params(entry, members)
        except BadMessage as error:
            call.finish(Failure(error.problem))
            return
        timeout_s = options.timeouts_s.get(tool.name, options.timeout_s)
        if options.guards_paths and not checked:
            again = partial(self._route, call, name, members, checked=True)
            if self._path_guard.stops(call, len(entry.params_head), timeout_s, again):
                return
        if entry.header_parameters is not None:
            call.headers = param_headers(entry.header_parameters, members.get("arguments", b"{}"))
        if entry.rewrites_uris or call.caller.capabilities != NOTHING or "task" in members:
            self._adapt(call, entry, members)
        if options.cache is not None and self.cache.answers(call, tool, admission, options.cache, members):
            return
        self._deadlines.set(call, timeout_s)
        if not call.done:
            admission.admit(call)

    def _redirects(self, call: Call, redirect: Redirect, members: Members) -> bool:
        """Whether the call went on as one of another tool: the same call, so that no rule is passed by or met twice."""
        target = redirect(call, call.tool, members)
        if target is not None:
            call.source = call.tool = ""  # whoever it is for is found out anew
            self._route(call, *target)
        return target is not None or call.done

    def _adapt(self, call: Call, entry: ToolEntry, members: Members) -> None:
        if "task" in members and call.caller.version in MODERN:
            # It is a word of 2025-11-25: a server of then would answer in a way that this client cannot read.
            call.params = tool_params(entry, {name: value for name, value in members.items() if name != "task"})
        tasks = "task" in members or declares_tasks(call.caller)
        if tasks or entry.rewrites_uris:
            self._result_rewriter.adapt(call, uris=entry.rewrites_uris, tasks=tasks)

    def _route_unknown(self, call: Call, name: str, members: Members) -> None:
        """No such tool, or a server that has not said yet what it offers."""
        call.tool = name
        candidates = self.catalog.sources_that_may_have(name)
        again = partial(self._route, call, name, members)
        if self._pending_calls.takes(call, members, candidates, again, partial(_is_named, name)):
            return
        address = split_address(without_own_prefix(name))
        if address is not None and address[0] not in self.admissions:
            call.finish(Failure(_unknown(f"Unknown tool: {name} (no server `{address[0]}`)", name)))
        else:
            addresses = self.views.of(call.caller).addresses_of(without_own_prefix(name))
            which = f" (which one: {', '.join(addresses)}?)" if addresses else ""
            call.finish(Failure(_unknown(f"Unknown tool: {name}{which}", name)))

    def _ended(self, request: Request) -> None:
        """Every call comes through here once, whatever became of it."""
        call = cast(Call, request)
        if call.timer is not None:
            call.timer.cancel()
        if self._pending_calls.calls:
            self._pending_calls.calls.pop(call, None)
        if self._call_memory.total_bytes:
            self._call_memory.release(call)
        if call.admission is not None:
            call.admission.release(call)
        if call.keeper is not None:
            contained("a result that is kept", call.keeper.ended, call)
        try:
            call.reply(call)
        except Exception as error:  # a bug on the caller's side must not reach the source's other calls
            self.events.note("error", "internal", f"{type(error).__name__}: {error}", source=call.source)
        self.events.call_ended(call, monotonic() - call.started_at)
        # Whoever listens to a call holds it as well: such a circle would keep its megabytes until the collector runs.
        call.reply = _nobody
        call.on_notification = call.on_server_request = None


def _nobody(call: Call) -> None:
    """A call that has ended owes nobody anything."""


def tool_params(entry: ToolEntry, members: Members) -> bytes:
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


def _is_named(name: str, admission: Admission) -> bool:
    return names_source(name, admission.name, admission.options.rules.prefix)


def _unknown(message: str, name: str) -> Problem:
    return Problem(code=UNKNOWN_TOOL, message=message, tool=name, hint="`tools/list` shows the tools there are")
