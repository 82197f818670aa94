"""`subscriptions/listen` at a modern server, kept open: for its lists and watched resources, or for tasks.

Whenever what is wanted changes, a new request is opened before the old one is closed, so that nothing is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import Failure, Json, Outcome, RemoteError, Request
from trunkline.core.errors import CANCELLED, INVALID_PARAMS, SOURCE_LOST, Problem
from trunkline.protocol.jsonrpc import encode
from trunkline.protocol.mcp.methods import SUBSCRIPTIONS_LISTEN
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp.server_listing import announced_kinds
from trunkline.sources.mcp.server_requests import CancelledParams
from trunkline.sources.mcp.session import UpstreamSession

_ACKNOWLEDGED_S: Final = 10.0

Uris = frozenset[str]
"""URIs of resources, or ids of tasks."""


class _Attempt:
    """One open request. `uris` are those requested, and once it is acknowledged those honoured."""

    __slots__ = ("request", "timer", "uris")

    def __init__(self, request: Request, uris: Uris) -> None:
        self.request = request
        self.uris = uris
        self.timer: asyncio.TimerHandle | None = None


class ListenRequest:
    """Keeps one subscription open, with `tasks` for tasks alone.

    `on_held` gets the URIs that the server now notifies of, `on_refused` the others, with the reason; `on_missed` is
    called when list changes may have been missed.
    """

    def __init__(
        self,
        session: UpstreamSession,
        on_held: Callable[[Uris], None],
        on_refused: Callable[[Uris, Outcome], None],
        on_missed: Callable[[], None],
        *,
        tasks: bool = False,
    ) -> None:
        self._session = session
        self._on_held = on_held
        self._on_refused = on_refused
        self._on_missed = on_missed
        self._tasks = tasks
        self._kinds = {} if tasks else announced_kinds(session.server)
        self._wanted: Uris = frozenset()
        self._active: _Attempt | None = None
        self._attempt: _Attempt | None = None
        self._refusal: RemoteError | None = None
        self._backoff = RetryBackoff()
        self._next: asyncio.Handle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def want(self, uris: Uris) -> None:
        """Listen for these from now on, and for the lists."""
        self._wanted = uris
        self._renew_soon()

    def has_subscription(self, subscription_id: int | str) -> bool:
        """Whether this id is of one of its requests."""
        attempts = (self._active, self._attempt)
        return any(attempt is not None and attempt.request.upstream_id == subscription_id for attempt in attempts)

    def close(self) -> None:
        self._closed = True
        if self._next is not None:
            self._next.cancel()
        for attempt in (self._active, self._attempt):
            if attempt is not None:
                self._end(attempt)

    # -- requesting ---------------------------------------------------------------------------------------------------

    def _renew_soon(self, delay_s: float = 0.0) -> None:
        if self._next is None and not self._closed:
            self._next = self._loop.call_later(delay_s, self._renew) if delay_s else self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._next = None
        has: Uris = frozenset() if self._active is None else self._active.uris
        if self._closed or self._attempt is not None or not self._session.usable:
            return
        if self._refusal is not None:
            if self._wanted:
                self._on_refused(self._wanted, self._refusal)
        elif self._active is None and (self._kinds or self._wanted):
            self._ask()
        elif self._active is not None and has != self._wanted:
            if self._kinds or self._wanted:
                self._ask()
            else:
                unneeded, self._active = self._active, None
                self._end(unneeded)

    def _ask(self) -> None:
        wanted: dict[str, object] = dict(self._kinds)
        if self._wanted:
            wanted["taskIds" if self._tasks else "resourceSubscriptions"] = sorted(self._wanted)
        request = Request(SUBSCRIPTIONS_LISTEN, encode({"notifications": wanted}), self._ended)
        self._attempt = attempt = _Attempt(request, self._wanted)
        attempt.timer = self._loop.call_later(_ACKNOWLEDGED_S, partial(self._unacknowledged, attempt))
        self._session.send(request)

    def _end(self, attempt: _Attempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        problem = Problem(code=CANCELLED, message="A later subscription has replaced it")
        attempt.request.give_up(Failure(problem))

    # -- received -----------------------------------------------------------------------------------------------------

    def acknowledged(self, params: Json) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        try:
            received = msgspec.json.decode(params, type=_Acknowledged)
        except (msgspec.MsgspecError, RecursionError):
            received = _Acknowledged()
        own = attempt.request.upstream_id
        if received.meta.subscription_id != own and (received.meta.subscription_id is not None or self._tasks):
            return
        honoured = received.notifications
        self._hold(attempt, frozenset(honoured.task_ids if self._tasks else honoured.resource_subscriptions))

    def _unacknowledged(self, attempt: _Attempt) -> None:
        """Some servers never acknowledge; the request stays open for their lists."""
        if attempt is self._attempt:
            self._hold(attempt, frozenset())

    def _hold(self, attempt: _Attempt, honoured: Uris) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        before, self._active, self._attempt = self._active, attempt, None
        self._backoff.up()
        if before is not None:
            self._end(before)
        elif self._kinds:
            self._on_missed()  # lists may have changed after they were fetched
        requested, attempt.uris = attempt.uris, attempt.uris & honoured
        self._on_held(attempt.uris)
        if requested != attempt.uris:
            source = self._session.source
            what = "this task" if self._tasks else "this resource"
            reason = f"Server {source} sends no notifications about {what}"
            problem = Problem(code=INVALID_PARAMS, message=reason, source=source)
            self._on_refused(requested - attempt.uris, Failure(problem))
        self._renew_soon()

    def cancelled(self, params: Json) -> None:
        """End a subscription that a server over stdio cancels."""
        try:
            request_id = msgspec.json.decode(params, type=CancelledParams).requestId
        except (msgspec.MsgspecError, RecursionError):
            return
        request = self._session.pending.get(request_id) if isinstance(request_id, int) else None
        if request is not None and request.method == SUBSCRIPTIONS_LISTEN:
            del self._session.pending[request.upstream_id]
            request.finish(Failure(self._session.problem(SOURCE_LOST, "ended the subscription")))

    def _ended(self, request: Request) -> None:
        if self._closed or request.outcome is None:
            return
        if self._attempt is not None and request is self._attempt.request:
            self._refused(self._attempt, request.outcome)
        elif self._active is not None and request is self._active.request:
            self._active = None
            self._try_later(missed=True)

    def _refused(self, attempt: _Attempt, outcome: Outcome) -> None:
        self._attempt = None
        if attempt.timer is not None:
            attempt.timer.cancel()
        new = attempt.uris if self._active is None else attempt.uris - self._active.uris
        if not isinstance(outcome, RemoteError):
            self._try_later(missed=False)
        elif new:
            self._on_refused(new, outcome)
            self._renew_soon()
        elif self._active is None:
            self._refusal = outcome

    def _try_later(self, *, missed: bool) -> None:
        if self._session.usable:
            self._renew_soon(self._backoff.next_delay_s())
            if missed:
                self._on_missed()


class _AcknowledgedFilter(msgspec.Struct, rename="camel"):
    resource_subscriptions: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


class SubscriptionMeta(msgspec.Struct):
    """The `_meta` of a notification that belongs to a subscription."""

    subscription_id: int | str | None = msgspec.field(default=None, name=SUBSCRIPTION_ID)


class _Acknowledged(msgspec.Struct):
    notifications: _AcknowledgedFilter = msgspec.field(default_factory=_AcknowledgedFilter)
    meta: SubscriptionMeta = msgspec.field(default_factory=SubscriptionMeta, name="_meta")
