"""An MCP server as a source: a control session that is always kept up, and sessions of single clients beside it.

The kinds (stdio, HTTP) differ only in how a session is opened; everything afterwards is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from trunkline.core.call import Call, Caller, Failure, Json, Request, Result
from trunkline.core.errors import SOURCE_DOWN, SOURCE_LOST, SOURCE_PROTOCOL, GatewayError, Problem
from trunkline.core.source import Health, ResourceWatch, Sink, TaskWatch
from trunkline.protocol.mcp.capabilities import NO_CAPABILITIES, askable
from trunkline.protocol.mcp.methods import LOGGING_SET_LEVEL, PING, SERVER_DISCOVER
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.queued_calls import QueuedCalls
from trunkline.runtime.server_lifecycle import HealthTracker, RetryBackoff, warn_if_over_limits
from trunkline.sources.mcp.client_sessions import ClientSessions, NoClientSessions, SessionKey, session_key
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.initialize import SessionLogLevel
from trunkline.sources.mcp.resource_subscriptions import UpstreamKey, UpstreamSubscriptions
from trunkline.sources.mcp.server_listing import ClientListings, ServerListing, resend_with_headers
from trunkline.sources.mcp.server_requests import refuse_without_client
from trunkline.sources.mcp.session import LISTS_CHANGED, SESSION_NOTIFICATIONS, Count, UpstreamSession, close_session
from trunkline.sources.mcp.session_pool import SessionPool, needs_pool
from trunkline.sources.mcp.task_subscriptions import UpstreamTaskSubscriptions

PROBE_EVERY_S: Final = 30.0
PROBE_TIMEOUT_S: Final = 10.0
_FAILED_PROBES: Final = 3
_STOP_WAIT_S: Final = 10.0

Opener = Callable[[Era | None, bytes, Count], Awaitable[UpstreamSession]]
"""Opens and initializes a session: (era if known, capabilities to declare, counter) → session."""


class McpSource:
    def __init__(
        self,
        name: str,
        opener: Opener,
        *,
        shared: bool,
        max_sessions: int,
        session_idle_s: float,
        probe_every_s: float = PROBE_EVERY_S,
    ) -> None:
        self.name = name
        self._opener = opener
        self._shared = shared
        self._max_sessions = max_sessions
        self._session_idle_s = session_idle_s
        self._probe_every_s = probe_every_s
        self._era: Era | None = None
        self._also_legacy: bool | None = None  # whether a modern server is also legacy, if known
        self._skip_probe = False
        self._control: UpstreamSession | None = None
        self._sessions: ClientSessions | None = None
        self._pool: SessionPool | None = None
        self._sink: Sink  # set by `run`
        self._queued = QueuedCalls()
        self._listing: ServerListing | None = None
        self._resource_subscriptions = UpstreamSubscriptions(
            name, self.submit, self._upstream_key_of, self._on_missed_changes
        )
        self._task_subscriptions = UpstreamTaskSubscriptions()
        self._client_listings: ClientListings  # set by `run`
        self._closing: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._backoff = RetryBackoff()
        self._health_tracker = HealthTracker(name, self._health_changed, self._serves_some)

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if self._stopped:  # it was resubmitted at the last moment
            message = f"Server {self.name} was stopped"
            call.finish(Failure(Problem(code=SOURCE_DOWN, message=message, source=self.name, tool=call.tool)))
            return
        if self._shares(call.caller) or self._sessions is None or self._pool is None:
            self._submit_to_control(call)
            return
        key = session_key(call.caller)
        if key is not None:
            self._sessions.submit(call, key)
        elif needs_pool(call.caller):
            self._pool.submit(call)
        else:
            self._submit_to_control(call)

    def _shares(self, caller: Caller) -> bool:
        """Whether a caller uses the session that all share.

        Modern servers keep no state between calls. Most speak the older versions too, and many ask their clients things
        only there: so a client that can be asked gets a session of its own.
        """
        if self._shared or self._era != "modern":
            return self._shared
        return caller.session is None or self._also_legacy is False or askable(caller.capabilities) == NO_CAPABILITIES

    def _submit_to_control(self, call: Call) -> None:
        if self._control is not None and self._control.usable:
            self._control.send_shared(call)
        elif self._health_tracker.refuses:
            self._refuse(call)
        else:
            self._queued.add(call)

    def watch_resource(self, watch: ResourceWatch) -> None:
        self._resource_subscriptions.add(watch)

    def watch_tasks(self, watch: TaskWatch) -> None:
        self._task_subscriptions.add(watch)

    def _upstream_key_of(self, caller: Caller) -> UpstreamKey:
        """Identifies the session that a caller's calls use; None is the control session."""
        if self._shares(caller):
            return None
        return (caller.principal, caller.capabilities) if needs_pool(caller) else session_key(caller)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """Forward a client's notification, unless the session is shared: then the server could not tell whose it is."""
        session = None if self._shares(caller) or self._sessions is None else self._sessions.session_of(caller)
        if session is None or not session.usable:
            return
        if method != LOGGING_SET_LEVEL:
            session.notify(method, params)
        elif isinstance(session.meta_for, SessionLogLevel):
            session.meta_for.want(caller.log_level)

    def refresh(self) -> None:
        if self._listing is not None:
            self._listing.refresh()

    def forget(self, session: str) -> None:
        self._resource_subscriptions.forget(session)
        if self._sessions is not None:
            self._sessions.forget(session)

    def _resubmit(self, request: Request) -> bool:
        """Submit a call once more, on a new session, that a server refused before running it."""
        if not isinstance(request, Call) or request.retried or request.done:
            return False
        request.retried = True
        asyncio.get_running_loop().call_soon(self._submit_again, request)
        return True

    def _resend_with_headers(self, call: Call) -> bool:
        return self._listing is not None and resend_with_headers(self._listing, self._submit_again, call)

    def _submit_again(self, call: Call) -> None:
        if not call.done:
            self.submit(call)

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        self._client_listings = ClientListings(sink.publish_for)
        self._sessions = sessions = ClientSessions(
            self.name,
            self._open_for_client,
            max_sessions=self._max_sessions,
            idle_s=self._session_idle_s,
            on_opened=self._client_session_opened,
            on_closed=self._client_session_closed,
            on_change=self._health_tracker.refresh,
            fallback=self.submit,
        )
        self._pool = SessionPool(sessions)
        try:
            while True:
                await self._run_once(sink)
                await self._wait_before_retry()
        finally:
            self._stopped = True
            self._resource_subscriptions.close()
            self._task_subscriptions.close()
            self._queued.release(self._refuse)
            await sessions.close()
            await self._client_listings.close()
            if self._closing:
                await asyncio.wait(self._closing, timeout=_STOP_WAIT_S)
            if self._listing is not None:
                self._listing.forget()

    async def _run_once(self, sink: Sink) -> None:
        """Connect once and serve until the loss. Whatever goes wrong ends as a health state with a reason."""
        session: UpstreamSession | None = None
        try:
            session = await self._open(b"{}")
            self._also_legacy = self._also_legacy or None  # it may have been replaced
            self._listing = listing = ServerListing(session, sink.publish, self._on_listed, before=self._listing)
            try:
                await listing.fetch_first()
                self._on_up(session)
                problem = await self._watch(session)
            finally:
                self._resource_subscriptions.down()
                self._task_subscriptions.down()
                await listing.close()
            self._health_tracker.lost(problem, session.stderr_tail())
        except GatewayError as error:
            self._health_tracker.failed(error.problem, "" if session is None else session.stderr_tail())
        finally:
            self._control = None
            if session is not None:
                closing = asyncio.get_running_loop().create_task(close_session(session))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
                if not (session.pending and isinstance(session, HttpUpstreamSession)):
                    await asyncio.wait([closing])
                # else its calls are answered while the next session is being opened

    async def _open(self, capabilities: bytes) -> UpstreamSession:
        era: Era | None = "legacy" if self._skip_probe and self._era is None else self._era
        try:
            session = await self._opener(era, capabilities, self._sink.count)
        except GatewayError as error:
            # Some servers exit on an unknown request: the next try sends nothing but `initialize`.
            self._skip_probe = self._era is None and not self._skip_probe
            if error.problem.code is SOURCE_PROTOCOL:
                self._era = None  # it may have been replaced by one of the other era
            raise
        self._era = "modern" if session.modern else "legacy"
        await self._attach(session)
        return session

    async def _open_for_client(self, capabilities: bytes) -> UpstreamSession:
        """Open a session for one client; a modern server may speak a legacy version as well."""
        if self._era != "modern":
            return await self._open(capabilities)
        try:
            session = await self._opener("legacy", capabilities, self._sink.count)
        except GatewayError as error:
            if error.problem.code is not SOURCE_PROTOCOL and not await self._is_healthy_modern():
                raise
            self._also_legacy = False
            self._resource_subscriptions.move()
            raise NoClientSessions from None
        self._also_legacy = True
        await self._attach(session)
        return session

    async def _is_healthy_modern(self) -> bool:
        """Whether a server that failed over `initialize` (some exit, some never answer) serves others all the same."""
        session = self._control
        if self._also_legacy is not None or session is None:
            return False
        outcome = await session.request(SERVER_DISCOVER, b"{}", PROBE_TIMEOUT_S)
        return isinstance(outcome, Result) and session.usable

    async def _attach(self, session: UpstreamSession) -> None:
        session.on_notification = partial(self._on_notification, session)
        session.lost.add_done_callback(partial(warn_if_over_limits, self._sink))
        if isinstance(session, HttpUpstreamSession):
            session.resubmit = self._resubmit
            session.resend_with_headers = self._resend_with_headers
            if session.modern:
                return
            try:  # before the first call, as requests of the server would be lost until then
                session.open_stream()
                await session.wait_for_stream()
            except BaseException:
                await session.close()
                raise

    def _on_up(self, session: UpstreamSession) -> None:
        self._control = session
        self._backoff.up()
        self._health_tracker.ready()
        self._queued.release(self.submit)
        self._resource_subscriptions.up(session)
        self._task_subscriptions.up(session)

    async def _watch(self, session: UpstreamSession) -> Problem:
        """Probe the server from time to time until it is lost; returns why."""
        failed_probes = 0
        while True:
            await asyncio.wait([session.lost], timeout=self._probe_every_s)
            if session.lost.done():
                return session.lost.result()
            failed_probes = 0 if await self._probe(session) else failed_probes + 1
            if failed_probes >= _FAILED_PROBES:
                return session.problem(SOURCE_LOST, f"{failed_probes} probes in a row were not answered")

    def _on_listed(self, trouble: str | None) -> None:
        if trouble is None:
            self._health_tracker.ready()
        else:
            self._health_tracker.degraded(f"its tools could not be listed again: {trouble}")

    async def _probe(self, session: UpstreamSession) -> bool:
        method = SERVER_DISCOVER if session.modern else PING
        outcome = await session.request(method, b"{}", PROBE_TIMEOUT_S)
        if isinstance(outcome, Failure):
            self._health_tracker.degraded(f"a probe failed: {outcome.problem.message}")
            return False
        self._health_tracker.ready()
        return True

    def _on_notification(self, session: UpstreamSession, method: str, params: Json) -> None:
        if method in LISTS_CHANGED and self._listing is not None:
            self._listing.changed(method)
        else:
            self._on_session_notification(session, method, params)

    def _on_missed_changes(self) -> None:
        if self._listing is not None:
            self._listing.missed()

    # -- sessions of single clients -----------------------------------------------------------------------------------

    def _client_session_opened(self, key: SessionKey, session: UpstreamSession) -> None:
        """Route notifications and requests to that client alone; without a client session, to the calls alone."""
        client = key[1]
        if isinstance(client, str):
            session.on_notification = partial(self._on_client_notification, client, session)
            session.server_requests.set_handler(partial(self._sink.forward_request, client))
        else:
            session.on_notification = partial(self._on_session_notification, session)
            session.server_requests.set_handler(refuse_without_client)

    def _on_client_notification(self, client: str, session: UpstreamSession, method: str, params: Json) -> None:
        if method in LISTS_CHANGED:
            self._client_listings.changed(client, session, method)
        elif method in SESSION_NOTIFICATIONS:
            self._resource_subscriptions.on_notification(session, method, params)
        else:
            self._sink.forward_notification(client, method, params)

    def _on_session_notification(self, session: UpstreamSession, method: str, params: Json) -> None:
        if method in SESSION_NOTIFICATIONS:
            self._resource_subscriptions.on_notification(session, method, params)
            self._task_subscriptions.on_notification(method, params)
        else:
            self._sink.count("unattributed_notifications")

    def _client_session_closed(self, key: SessionKey) -> None:
        if isinstance(key[1], str):
            self._sink.publish_for(key[1], None)

    # -- retries ------------------------------------------------------------------------------------------------------

    async def _wait_before_retry(self) -> None:
        delay_s = self._backoff.next_delay_s()
        if not self._health_tracker.may_wait(delay_s):
            self._queued.release(self._refuse)
        await asyncio.sleep(delay_s)

    def _refuse(self, call: Call) -> None:
        call.finish(Failure(self._health_tracker.refusal(call.tool)))

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _serves_some(self) -> bool:
        """Whether clients with a process of their own are served although the control session is down."""
        return self._sessions is not None and self._sessions.processes > 0

    def _health_changed(self, health: Health) -> None:
        self._sink.health(health)
