"""An MCP server as a source: a scout session that is always kept up, client sessions beside it, and who gets which.

The kinds (stdio, HTTP) differ only in how a session is opened; all that happens to it afterwards is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from trunkline.core.call import Call, Caller, Failure, Json, Request, Result
from trunkline.core.errors import SOURCE_DOWN, SOURCE_LOST, SOURCE_PROTOCOL, GatewayError, Problem
from trunkline.core.source import Health, ResourceWatch, Sink, TaskWatch
from trunkline.core.tool import Snapshot
from trunkline.protocol.mcp.capabilities import NO_CAPABILITIES, askable
from trunkline.protocol.mcp.methods import LOGGING_SET_LEVEL, PING, SERVER_DISCOVER
from trunkline.protocol.mcp.versions import Era
from trunkline.runtime.safe_calls import resume_safely
from trunkline.runtime.server_lifecycle import HealthTracker, RetryBackoff, warn_if_over_limits
from trunkline.sources.mcp.client_sessions import ClientSessions, NoClientSessions, SessionKey, session_key
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.initialize import SessionLogLevel, level_in
from trunkline.sources.mcp.resource_subscriptions import SessionName, UpstreamSubscriptions
from trunkline.sources.mcp.server_listing import ClientListings, ServerListing, resend_with_headers
from trunkline.sources.mcp.server_requests import refuse_without_client
from trunkline.sources.mcp.session import LISTS_CHANGED, SESSION_NOTIFICATIONS, UpstreamSession, close_session
from trunkline.sources.mcp.session_pool import SessionPool, needs_pool
from trunkline.sources.mcp.task_subscriptions import UpstreamTaskSubscriptions

PROBE_EVERY_S: Final = 30.0
PROBE_TIMEOUT_S: Final = 10.0
_FAILED_PROBES: Final = 3
_STOP_WAIT_S: Final = 10.0

Opener = Callable[[Era | None, bytes, Callable[[str], None]], Awaitable[UpstreamSession]]
"""Open a session and shake hands: (era if known, capabilities to declare, counter) → session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    shared: bool
    max_sessions: int
    session_idle_s: float
    probe_every_s: float = PROBE_EVERY_S


class McpSource:
    def __init__(self, name: str, opener: Opener, tuning: Tuning) -> None:
        self.name = name
        self._opener = opener
        self._tuning = tuning
        self._era: Era | None = None
        self._talks: bool | None = None  # whether one of 2026-07-28 speaks an older version too, if that is known
        self._probe_may_hurt = False
        self._control: UpstreamSession | None = None
        self._sessions: ClientSessions | None = None
        self._pool: SessionPool | None = None
        self._sink: Sink | None = None
        self._parked: list[Call] = []
        self._listing: ServerListing | None = None
        self._resource_subscriptions = UpstreamSubscriptions(
            name, self.submit, self._session_name_of, self._missed_news
        )
        self._task_subscriptions = UpstreamTaskSubscriptions()
        self._lists = ClientListings(name, self._publish_for)
        self._leaving: set[asyncio.Task[None]] = set()
        self._over = False
        self._backoff = RetryBackoff()
        self._health_tracker = HealthTracker(name, self._health_changed, self._serves_some)

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if self._over:  # it was taken back from a server at the last moment
            problem = Problem(
                code=SOURCE_DOWN, message=f"Server {self.name} was stopped", source=self.name, tool=call.tool
            )
            call.finish(Failure(problem))
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
        """Whether a caller meets the same server as everybody.

        A server of 2026-07-28 keeps nothing between calls, so all may share it. Most speak the older versions too, and
        many ask their clients things only there: so a client of those that can be asked gets one of its own.
        """
        if self._tuning.shared or self._era != "modern":
            return self._tuning.shared
        return caller.session is None or self._talks is False or askable(caller.capabilities) == NO_CAPABILITIES

    def _submit_to_control(self, call: Call) -> None:
        if self._control is not None and self._control.usable:
            self._control.send_shared(call)
        elif self._health_tracker.refuses:
            call.finish(Failure(self._health_tracker.refusal(call.tool)))
        else:
            self._parked.append(call)

    def watch_resource(self, watch: ResourceWatch) -> None:
        self._resource_subscriptions.add(watch)

    def watch_tasks(self, watch: TaskWatch) -> None:
        self._task_subscriptions.add(watch)

    def _session_name_of(self, caller: Caller) -> SessionName:
        """Which session the calls of a caller use, by name; None for the scout."""
        if self._shares(caller):
            return None
        return (caller.principal, caller.capabilities) if needs_pool(caller) else session_key(caller)

    def notify(self, caller: Caller, method: str, params: Json) -> None:
        """A modern server knows no news of clients, and one that all share could not tell whose it is."""
        session = None if self._shares(caller) or self._sessions is None else self._sessions.session_of(caller)
        if session is None or not session.usable:
            return
        if method != LOGGING_SET_LEVEL:
            session.notify(method, params)
        elif isinstance(session.meta_for, SessionLogLevel):
            session.meta_for.want(level_in(params) or caller.log_level)

    def refresh(self) -> None:
        if self._listing is not None:
            self._listing.refresh()

    def forget(self, session: str) -> None:
        self._resource_subscriptions.forget(session)
        if self._sessions is not None:
            self._sessions.forget(session)

    def _take_back(self, request: Request) -> bool:
        """A call that a server refused before running it goes once more, on a new session."""
        if not isinstance(request, Call) or request.retried or request.done:
            return False
        request.retried = True
        asyncio.get_running_loop().call_soon(self._submit_again, request)
        return True

    def _mirror_again(self, call: Call) -> bool:
        return self._listing is not None and resend_with_headers(self._listing, self._submit_again, call)

    def _submit_again(self, call: Call) -> None:
        if not call.done:
            self.submit(call)

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        self._sessions = sessions = ClientSessions(
            self.name,
            self._open_for_client,
            max_sessions=self._tuning.max_sessions,
            idle_s=self._tuning.session_idle_s,
            on_opened=self._client_session_opened,
            on_closed=self._client_session_closed,
            on_change=self._health_tracker.refresh,
            elsewhere=self.submit,
        )
        self._pool = SessionPool(sessions)
        try:
            while True:
                await self._live_once(sink)
                await self._wait_before_retry()
        finally:
            self._over = True
            self._resource_subscriptions.close()
            self._task_subscriptions.close()
            self._release_parked(up=False)
            await sessions.close()
            await self._lists.close()
            if self._leaving:
                await asyncio.wait(self._leaving, timeout=_STOP_WAIT_S)
            if self._listing is not None:
                self._listing.forget()

    async def _live_once(self, sink: Sink) -> None:
        """From one connection to its loss. Whatever goes wrong ends as a state with a reason."""
        session: UpstreamSession | None = None
        try:
            session = await self._open(b"{}")
            self._talks = self._talks or None  # it may have been replaced by one that does
            self._listing = listing = ServerListing(
                session, self.name, sink.publish, self._listed, before=self._listing
            )
            try:
                await listing.fetch_first()
                self._went_up(session)
                problem = await self._tend(session)
            finally:
                self._resource_subscriptions.down()
                self._task_subscriptions.down()
                await listing.close()
            self._health_tracker.lost(problem, _tail(session))
        except GatewayError as error:
            self._health_tracker.failed(error.problem, _tail(session))
        finally:
            self._control = None
            if session is not None:
                await self._leave(session)

    async def _leave(self, session: UpstreamSession) -> None:
        """What a retired session still carries gets its answers while the next one is being opened."""
        leaving = asyncio.get_running_loop().create_task(close_session(session))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        if not (session.pending and isinstance(session, HttpUpstreamSession)):
            await asyncio.wait([leaving])

    async def _open(self, capabilities: bytes) -> UpstreamSession:
        era: Era | None = "legacy" if self._probe_may_hurt and self._era is None else self._era
        try:
            session = await self._opener(era, capabilities, self._count)
        except GatewayError as error:
            # Some servers die of a request they do not know: the next try says nothing but `initialize`.
            self._probe_may_hurt = self._era is None and not self._probe_may_hurt
            if error.problem.code is SOURCE_PROTOCOL:
                self._era = None  # it may have been replaced by one of the other era
            raise
        self._era = "modern" if session.modern else "legacy"
        await self._furnish(session)
        return session

    async def _open_for_client(self, capabilities: bytes) -> UpstreamSession:
        """A server of 2026-07-28 is asked whether it can hold a conversation as well."""
        if self._era != "modern":
            return await self._open(capabilities)
        try:
            session = await self._opener("legacy", capabilities, self._count)
        except GatewayError as error:
            if error.problem.code is not SOURCE_PROTOCOL and not await self._only_talk_hurts():
                raise
            self._talks = False
            self._resource_subscriptions.move()
            raise NoClientSessions from None
        self._talks = True
        await self._furnish(session)
        return session

    async def _only_talk_hurts(self) -> bool:
        """Not all refuse `initialize`: some die of it, some never answer. Others are served all the same."""
        if self._talks is not None or self._control is None:
            return False
        session = self._control
        outcome = await session.request(SERVER_DISCOVER, b"{}", PROBE_TIMEOUT_S)
        return isinstance(outcome, Result) and session.usable

    async def _furnish(self, session: UpstreamSession) -> None:
        session.on_notification = partial(self._heard, session)
        session.lost.add_done_callback(partial(warn_if_over_limits, self._sink))
        if isinstance(session, HttpUpstreamSession):
            session.resubmit = self._take_back
            session.resend_with_headers = self._mirror_again
            if not session.modern:
                await self._open_stream(session)

    async def _open_stream(self, session: HttpUpstreamSession) -> None:
        """The server's own stream, before the first call: what happens meanwhile is told there."""
        try:
            session.open_stream()
            await session.wait_for_stream()
        except BaseException:
            await session.close()
            raise

    def _went_up(self, session: UpstreamSession) -> None:
        self._control = session
        self._backoff.up()
        self._health_tracker.ready()
        self._release_parked(up=True)
        self._resource_subscriptions.up(session)
        self._task_subscriptions.up(session)

    async def _tend(self, session: UpstreamSession) -> Problem:
        """Follow the server until it is lost, and ask it for signs of life."""
        failed_probes = 0
        while True:
            await asyncio.wait([session.lost], timeout=self._tuning.probe_every_s)
            if session.lost.done():
                return session.lost.result()
            failed_probes = 0 if await self._probe(session) else failed_probes + 1
            if failed_probes >= _FAILED_PROBES:
                return session.problem(SOURCE_LOST, f"{failed_probes} probes in a row went unanswered")

    def _listed(self, trouble: str | None) -> None:
        """How listing it once more went."""
        if trouble is None:
            self._health_tracker.ready()
        else:
            self._health_tracker.degraded(f"its tools could not be listed again: {trouble}")

    async def _probe(self, session: UpstreamSession) -> bool:
        method = PING if not session.modern else SERVER_DISCOVER
        outcome = await session.request(method, b"{}", PROBE_TIMEOUT_S)
        if isinstance(outcome, Failure):
            self._health_tracker.degraded(f"a probe failed: {outcome.problem.message}")
            return False
        self._health_tracker.ready()
        return True

    def _heard(self, session: UpstreamSession, method: str, params: Json) -> None:
        if method in LISTS_CHANGED and self._listing is not None:
            self._listing.changed(method)
        else:
            self._nobody_heard(session, method, params)

    def _missed_news(self) -> None:
        if self._listing is not None:
            self._listing.missed()

    # -- servers that work for one client -------------------------------------------------------------------------

    def _client_session_opened(self, key: SessionKey, session: UpstreamSession) -> None:
        """Its news and its questions are for that client alone. Where there is no session, only calls can be asked."""
        client = key[1]
        if isinstance(client, str) and self._sink is not None:
            session.on_notification = partial(self._client_heard, client, session)
            session.server_requests.set_handler(partial(self._sink.forward_request, client))
        else:
            session.on_notification = partial(self._nobody_heard, session)
            session.server_requests.set_handler(refuse_without_client)

    def _client_heard(self, client: str, session: UpstreamSession, method: str, params: Json) -> None:
        if method in LISTS_CHANGED:
            self._lists.changed(client, session, method)
        elif method in SESSION_NOTIFICATIONS:
            self._resource_subscriptions.on_notification(session, method, params)
        elif self._sink is not None:
            self._sink.forward_notification(client, method, params)

    def _nobody_heard(self, session: UpstreamSession, method: str, params: Json) -> None:
        if method in SESSION_NOTIFICATIONS:
            self._resource_subscriptions.on_notification(session, method, params)
            self._task_subscriptions.on_notification(method, params)
        else:
            self._count("unattributed_notifications")

    def _client_session_closed(self, key: SessionKey) -> None:
        if isinstance(key[1], str):
            self._publish_for(key[1], None)

    def _publish_for(self, client: str, snapshot: Snapshot | None) -> None:
        if self._sink is not None:
            self._sink.publish_for(client, snapshot)

    # -- retries --------------------------------------------------------------------------------------------------

    async def _wait_before_retry(self) -> None:
        delay_s = self._backoff.next_delay_s()
        if not self._health_tracker.may_wait(delay_s):
            self._release_parked(up=False)
        await asyncio.sleep(delay_s)

    def _release_parked(self, *, up: bool) -> None:
        parked, self._parked = self._parked, []
        for call in parked:
            if call.done:
                continue
            if up:
                resume_safely(call, self.submit, call)
            else:
                call.finish(Failure(self._health_tracker.refusal(call.tool)))

    # -- what others hear of it -----------------------------------------------------------------------------------

    def _serves_some(self) -> bool:
        """Clients with a process of their own are served whatever becomes of the one that all share."""
        return self._sessions is not None and self._sessions.processes > 0

    def _health_changed(self, health: Health) -> None:
        if self._sink is not None:
            self._sink.health(health)

    def _count(self, counter: str) -> None:
        if self._sink is not None:
            self._sink.count(counter)


def _tail(session: UpstreamSession | None) -> str:
    return "" if session is None else session.stderr_tail()
