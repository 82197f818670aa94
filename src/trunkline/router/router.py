"""Routes every call: finds its tool and source, applies the rules of that source, admits it, and replies once.

A `tools/call` goes through `Router._route` from top to bottom; `request_router` routes the less frequent methods. Every
call comes back through `Router._ended`. Both are on the path of each call, so neither does what only few calls need.
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
from trunkline.core.names import split_address, without_own_prefix
from trunkline.core.server_request import ServerRequest
from trunkline.core.tool import ListName
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, single_line
from trunkline.protocol.mcp.capabilities import NO_CAPABILITIES
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.protocol.mcp.param_headers import param_headers
from trunkline.protocol.mcp.versions import MODERN
from trunkline.router.admission import Deadlines
from trunkline.router.aggregation import refresh_lists
from trunkline.router.catalog import ToolEntry
from trunkline.router.definitions import DefinitionStore
from trunkline.router.options import Redirect, RouterOptions
from trunkline.router.path_guard import PathGuard
from trunkline.router.registry import SourceRegistry
from trunkline.router.request_router import PendingCalls, RequestRouter
from trunkline.router.result_cache import ResultCache
from trunkline.router.rewriting import ResultRewriter, UriRewriter, declares_tasks
from trunkline.router.subscriptions import (
    OnTasksSettled,
    OnTaskUpdate,
    ResourceSubscription,
    ResourceSubscriptionRouter,
    TaskSubscription,
    TaskSubscriptionRouter,
)
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_callbacks import call_safely

_MAX_REPORTED: Final = 1000
_ROUTED_BY: Final = frozenset({"name", "arguments", "_meta"})
_NOT_PASSED_ON: Final = ("name", "_meta")
"""`_ROUTED_BY` covers them as well; these spare every call a `casefold`."""
OnNotification = Callable[[str, Json], None]
OnServerRequest = Callable[[ServerRequest], None]


class Router:
    """The entry point for frontends: calls, requests, subscriptions and lists."""

    def __init__(self, options: RouterOptions, events: Events, definitions: DefinitionStore) -> None:
        self.events = events
        self.on_call: Callable[[Call], None] | None = None
        """Called with every call before it is routed; may add to its `meta`."""
        self.registry = SourceRegistry(options, events, definitions)
        self.registry.on_source_changed.append(self._source_changed)
        self._call_memory = self.registry.call_memory
        self.admissions = self.registry.admissions
        self.catalog = self.registry.catalog
        self.views = self.registry.views
        self.clients = self.registry.clients
        self._options = options
        self._list_waiters: list[Callable[[], None]] = []
        self._reported: set[str] = set()
        self.draining = False
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
        self._resource_subscriptions = ResourceSubscriptionRouter(self.registry, self.uri_rewriter, self._pending_calls)
        self._task_subscriptions = TaskSubscriptionRouter(self.registry, self.task_ids, self.uri_rewriter)

    def drain(self) -> None:
        """Refuse new calls and those that wait for a server. Calls in flight may end."""
        self.draining = self._pending_calls.draining = True
        self.registry.drain()
        self._path_guard.drain()

    @property
    def in_flight(self) -> int:
        return self.registry.in_flight + self._path_guard.pending

    @property
    def large_call_bytes(self) -> int:
        return self._call_memory.total_bytes

    # -- names --------------------------------------------------------------------------------------------------------

    @property
    def names_version(self) -> int:
        """A number that increases whenever names of tools may have changed."""
        return self.catalog.version

    def kind_of(self, source: str) -> str:
        admission = self.admissions.get(source)
        return "" if admission is None else admission.options.kind

    def shown_name(self, source: str, tool: str) -> str:
        """The name by which callers see a source's tool; its own name if the tool is gone."""
        entry = self.catalog.find(f"{source}.{tool}")
        return tool if entry is None or entry.source != source else entry.public_name

    # -- lists --------------------------------------------------------------------------------------------------------

    def when_published(self, then: Callable[[], None]) -> None:
        """Call `then` when all sources have published their lists or the start-up wait is over; usually at once."""
        wait_s = self._started_at + self._options.start_wait_s - self._loop.time()
        if wait_s <= 0 or not self._any_unpublished():
            then()
            return
        if not self._list_waiters:
            Deadline(wait_s, self._release_list_waiters)
        self._list_waiters.append(then)

    def _any_unpublished(self) -> bool:
        return any(
            admission.health.state == "starting" and self.catalog.snapshot(name) is None
            for name, admission in self.admissions.items()
        )

    def _release_list_waiters(self) -> None:
        waiters, self._list_waiters = self._list_waiters, []
        for then in waiters:
            call_safely("a list that waited for servers", then)

    def note_listing(self, kind: ListName) -> None:
        """Note that a client lists this: lists that are out of date are fetched again, for the next client."""
        refresh_lists(self.registry, kind)

    def report_collisions(self) -> None:
        """Log each tool, prompt or resource whose name or URI belongs to another, once."""
        catalog = self.catalog
        for problem in (*catalog.collisions, *catalog.prompts.collisions, *catalog.resources.collisions):
            if problem.message not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(problem.message)
                self.events.note("warning", "names", problem.message, code=problem.code.id, hint=problem.hint)

    def _source_changed(self) -> None:
        """Serve whatever waited for a source: it may have come up."""
        if self._list_waiters and not self._any_unpublished():
            self._release_list_waiters()
        self._pending_calls.retry()
        self._resource_subscriptions.retry()

    # -- calls --------------------------------------------------------------------------------------------------------

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
        """Route one `tools/call`. `reply` is called exactly once, maybe before this returns. `on_notification` takes
        notifications that belong to the call; those of progress come only if `progress` is set. `on_server_request`
        takes the server's requests to the client."""
        # The same lines as in `request`: a shared function would cost each call one more.
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
        `members` are those of `params`, as the caller wrote them. Everything else is as for `call_tool`."""
        # The same lines as in `call_tool`.
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
        self, caller: Caller, uri: str, on_updated: Callable[[Json], None], on_settled: Callable[[Outcome], None]
    ) -> ResourceSubscription:
        """Subscribe to a resource until the handle is closed. `on_updated` takes the parameters of each update, with
        the URI as this caller knows it. `on_settled` is called once, maybe before this returns."""
        return self._resource_subscriptions.open(caller, uri, on_updated, on_settled)

    def subscribe_tasks(
        self, caller: Caller, task_ids: Sequence[str], on_updated: OnTaskUpdate, on_settled: OnTasksSettled
    ) -> TaskSubscription:
        """Subscribe to tasks until the handle is closed. `on_settled` is called once for each id, maybe before this
        returns; ids of other callers get no updates."""
        return self._task_subscriptions.open(caller, task_ids, on_updated, on_settled)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """Pass on a client's notification to every source."""
        for admission in list(self.admissions.values()):
            call_safely("a client's notification", admission.source.notify, caller, method, params)

    def _route(self, call: Call, name: str, members: Members, *, checked: bool = False) -> None:
        """Find the tool and apply the rules of its source. A rule that returns True has taken the call: it has finished
        it, or holds it. The order matters:

        1. Redirect: all other rules are those of the tool that is really meant.
        2. Encode the parameters for the source.
        3. Path guard, unless it has `checked` the call: before anything is answered or sent.
        4. Header parameters.
        5. Rewriting: it may change the parameters, which are part of the cache's key.
        6. Cache: a hit needs neither a deadline nor a place at the source.
        7. Deadline, then admission: the wait in the queue of the source counts.
        """
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
            route_again = partial(self._route, call, name, members, checked=True)
            if self._path_guard.stops(call, len(entry.params_head), timeout_s, route_again):
                return
        if entry.header_parameters is not None:
            call.headers = param_headers(entry.header_parameters, members.get("arguments", b"{}"))
        # A client without capabilities declares no tasks: the comparison saves most calls the look into them.
        if entry.rewrites_uris or call.caller.capabilities != NO_CAPABILITIES or "task" in members:
            self._adapt(call, entry, members)
        if options.cache is not None and self.cache.answers(call, tool, admission, options.cache, members):
            return
        self._deadlines.set(call, timeout_s)
        if not call.done:
            admission.admit(call)

    def _redirects(self, call: Call, redirect: Redirect, members: Members) -> bool:
        """Route the call to the tool it really means. Returns False if it means this one. It stays the same call, so
        that every rule applies to it, and applies once."""
        target = redirect(call, call.tool, members)
        if target is not None:
            call.source = call.tool = ""  # set again for the target
            self._route(call, *target)
        return target is not None or call.done

    def _adapt(self, call: Call, entry: ToolEntry, members: Members) -> None:
        if "task" in members and call.caller.version in MODERN:
            # The member is of MCP 2025-11-25: a server of that version would answer in a way this client cannot read.
            call.params = tool_params(entry, {name: value for name, value in members.items() if name != "task"})
        tasks = "task" in members or declares_tasks(call.caller)
        if tasks or entry.rewrites_uris:
            self._result_rewriter.adapt(call, uris=entry.rewrites_uris, tasks=tasks)

    def _route_unknown(self, call: Call, name: str, members: Members) -> None:
        """Hold a call of an unknown tool while a source is starting; otherwise fail it."""
        call.tool = name
        if self._pending_calls.takes(call, members, name, partial(self._route, call, name, members)):
            return
        address = split_address(without_own_prefix(name))
        if address is not None and address[0] not in self.admissions:
            detail = f" (no server `{address[0]}`)"
        else:
            addresses = self.views.of(call.caller).addresses_of(without_own_prefix(name))
            detail = f" (ambiguous: {', '.join(addresses)})" if addresses else ""
        message, hint = f"Unknown tool: {name}{detail}", "`tools/list` shows the tools there are"
        call.finish(Failure(Problem(code=UNKNOWN_TOOL, message=message, tool=name, hint=hint)))

    def _ended(self, request: Request) -> None:
        """The `on_done` of every call: release what it holds, then reply.

        Each step may run other calls, and may do so before this one has replied. The outcome is set by now, so none
        can end this call twice. The cache learns of a write only after its place was given to the next call, but a read
        that was routed before that is not cached. It learns of it before the reply: whoever reads after that gets
        nothing from before the write.
        """
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
            call_safely("the result cache", call.keeper.ended, call)
        try:
            call.reply(call)
        except Exception as error:  # must not reach the source, which has other calls to finish
            self.events.note("error", "internal", f"{type(error).__name__}: {error}", source=call.source)
        self.events.call_ended(call, monotonic() - call.started_at)
        # The callbacks hold the call: this cycle would keep its megabytes until the garbage collector runs.
        call.reply = _ignore
        call.on_notification = call.on_server_request = None


def _ignore(call: Call) -> None:
    """The `reply` of a call that has ended."""


def tool_params(entry: ToolEntry, members: Members) -> bytes:
    """Encode the parameters for the source on one line: its own name for the tool, the rest as the caller wrote it."""
    parts = [entry.params_head]
    for name, value in members.items():
        if name == "arguments":
            parts.append(b',"arguments":')
            parts.append(single_line(value))
        elif name not in _NOT_PASSED_ON and name.casefold() not in _ROUTED_BY:
            # without `Name`, which would be a second name to a server that ignores case
            parts.append(b",%b:" % encode(name))
            parts.append(single_line(value))
    parts.append(b"}")
    return b"".join(parts)
