"""Subscriptions to resources, each on the session that its caller's calls use, and one for all who watch a resource.

A subscription that is lost with its session is renewed, which opens the session again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import Call, Caller, Failure, Json, Outcome, RemoteError, Request, Result
from trunkline.core.errors import CANCELLED, DEADLINE, QUEUE_FULL, SOURCE_DOWN, UNKNOWN_METHOD, Code, Problem
from trunkline.core.source import ResourceWatch
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of
from trunkline.protocol.mcp.methods import (
    NOTIFICATIONS_CANCELLED,
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
)
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_callbacks import call_safely
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp.listen_request import ListenRequest, Uris
from trunkline.sources.mcp.session import UpstreamSession

MAX_PER_SESSION: Final = 1000
_MAX_PARENTS: Final = 64
_SUBSCRIBE_S: Final = 30.0
_UNSUBSCRIBE_S: Final = 10.0
_EMPTY: Final = b"{}"

UpstreamKey = Hashable
"""Identifies the session that a caller's calls use; None is the control session."""


class _Subscription:
    """One resource on one session. `session` is set while the server sends updates of it."""

    def __init__(self, upstream_key: UpstreamKey, caller: Caller, uri: str) -> None:
        self.upstream_key = upstream_key
        self.caller = caller
        self.uri = uri
        self.watches: list[ResourceWatch] = []
        self.session: UpstreamSession | None = None
        self.request: Call | None = None
        self.was_active = False
        self.timer: Deadline | asyncio.TimerHandle | None = None
        self.on_lost: Callable[[asyncio.Future[Problem]], None] | None = None
        self.backoff = RetryBackoff()

    @property
    def waits_for_control(self) -> bool:
        """Whether it has to be requested again when the control session is up."""
        if self.request is not None:
            return False
        return self.upstream_key is None if self.session is None else not self.session.usable

    def settle(self, outcome: Outcome) -> None:
        for watch in list(self.watches):
            watch.settle(outcome)

    def is_on(self, session: UpstreamSession) -> bool:
        return self.session is session or (self.request is not None and self.request.upstream is session)

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class _Updated(msgspec.Struct):
    uri: str


def _with_parents(uri: str) -> Iterator[str]:
    """A resource, and the resources that it may be a part of."""
    yield uri
    ends = [index for index, letter in enumerate(uri) if letter in "/?#"][-_MAX_PARENTS:]
    for end in ends:
        yield uri[:end]
        if end + 1 < len(uri):
            yield uri[: end + 1]


def _without_subscription_id(params: bytes) -> bytes:
    """Remove our own subscription id from the `params` of an update."""
    if SUBSCRIPTION_ID.encode() not in params:
        return params
    try:
        members = members_of(params, "`params`")
        meta = members_of(members.get("_meta", msgspec.Raw(_EMPTY)), "`_meta`")
        meta.pop(SUBSCRIPTION_ID, None)
        members.pop("_meta", None)
        if meta:
            members["_meta"] = msgspec.Raw(encode_members(meta))
        return encode_members(members)
    except BadMessage:
        return params


class UpstreamSubscriptions:
    """All resource subscriptions at one server. `submit` sends a call on the session that `upstream_key_of` names."""

    def __init__(
        self,
        source: str,
        submit: Callable[[Call], None],
        upstream_key_of: Callable[[Caller], UpstreamKey],
        on_missed: Callable[[], None],
    ) -> None:
        self._source = source
        self._submit = submit
        self._upstream_key_of = upstream_key_of
        self._on_missed = on_missed
        self._subscriptions: dict[tuple[UpstreamKey, str], _Subscription] = {}
        self._by_uri: dict[str, set[_Subscription]] = {}
        self._per_session: dict[UpstreamKey, int] = {}
        self._unsubscribing: set[tuple[UpstreamKey, str]] = set()
        self._early: dict[ResourceWatch, Deadline] = {}
        self._session: UpstreamSession | None = None
        self._is_up = False
        self._listen: ListenRequest | None = None
        self._updates: dict[tuple[UpstreamSession, str], bytes] = {}
        self._closed = False

    # -- watches ------------------------------------------------------------------------------------------------------

    def add(self, watch: ResourceWatch) -> None:
        watch.when_closed(self._remove_watch)
        if self._session is None and not self._closed:
            self._early[watch] = Deadline(_SUBSCRIBE_S, partial(self._expire_early, watch))
            return
        refusal = self._refusal(watch)
        if refusal is not None:
            watch.settle(Failure(refusal))
            return
        self._join(watch)

    def _refusal(self, watch: ResourceWatch) -> Problem | None:
        if self._closed or self._session is None:
            return self._problem(SOURCE_DOWN, "was stopped")
        if not self._session.server.declares("resources", "subscribe"):
            return self._problem(UNKNOWN_METHOD, "does not report changes of resources")
        if self._per_session.get(self._upstream_key_of(watch.caller), 0) >= MAX_PER_SESSION:
            return self._problem(QUEUE_FULL, f"{MAX_PER_SESSION} of its resources are watched already")
        return None

    def _problem(self, code: Code, reason: str) -> Problem:
        return Problem(code=code, message=f"Server {self._source}: {reason}", source=self._source)

    def _join(self, watch: ResourceWatch) -> None:
        key = (self._upstream_key_of(watch.caller), watch.uri)
        subscription = self._subscriptions.get(key)
        if subscription is not None:
            subscription.watches.append(watch)
            if subscription.session is not None:
                watch.settle(Result(_EMPTY))
            return
        subscription = self._subscriptions[key] = _Subscription(key[0], watch.caller, watch.uri)
        self._by_uri.setdefault(watch.uri, set()).add(subscription)
        self._per_session[subscription.upstream_key] = self._per_session.get(subscription.upstream_key, 0) + 1
        subscription.watches.append(watch)
        self._subscribe(subscription)

    def _expire_early(self, watch: ResourceWatch) -> None:
        if self._early.pop(watch, None) is not None:
            watch.settle(Failure(self._problem(SOURCE_DOWN, "is not connected")))

    def _remove_watch(self, watch: ResourceWatch) -> None:
        early = self._early.pop(watch, None)
        if early is not None:
            early.cancel()
        for subscription in list(self._by_uri.get(watch.uri, ())):
            if watch in subscription.watches:
                subscription.watches.remove(watch)
                if not subscription.watches:
                    self._drop(subscription)

    def forget(self, session: str) -> None:
        """Drop the subscriptions of a client that has left."""
        for subscription in list(self._subscriptions.values()):
            if subscription.caller.session == session and subscription.upstream_key is not None:
                subscription.watches.clear()
                self._drop(subscription)

    def move(self) -> None:
        """Move subscriptions whose callers now share the control session."""
        for subscription in list(self._subscriptions.values()):
            if subscription.upstream_key != self._upstream_key_of(subscription.caller):
                watches, subscription.watches = subscription.watches, []
                request, subscription.request = subscription.request, None
                self._drop(subscription)
                if request is not None:
                    request.finish(Failure(self._problem(CANCELLED, "moved to another session")))
                for watch in watches:
                    self._join(watch)

    def close(self) -> None:
        self._closed = True
        for watch in list(self._early):
            self._early.pop(watch).cancel()
            watch.settle(Failure(self._problem(SOURCE_DOWN, "was stopped")))
        for subscription in list(self._subscriptions.values()):
            subscription.settle(Failure(self._problem(SOURCE_DOWN, "was stopped")))
            self._remove(subscription)
        self.down()

    # -- the control session ------------------------------------------------------------------------------------------

    def up(self, session: UpstreamSession) -> None:
        self._session = session
        self._is_up = True
        if session.modern:
            self._listen = ListenRequest(session, self._listening, self._refused, self._on_missed)
            self._update_listen()
        else:
            for subscription in list(self._subscriptions.values()):
                if subscription.waits_for_control:
                    subscription.session = None
                    call_safely("a renewed subscription", self._subscribe, subscription)
        early, self._early = self._early, {}
        for watch, timer in early.items():
            timer.cancel()
            call_safely("an early watch", self.add, watch)

    def down(self) -> None:
        self._is_up = False
        if self._listen is not None:
            self._listen.close()
            self._listen = None

    # -- legacy: a request for each resource --------------------------------------------------------------------------

    def _subscribe(self, subscription: _Subscription) -> None:
        subscription.cancel_timer()
        key = (subscription.upstream_key, subscription.uri)
        if subscription.upstream_key is None and (self._listen is not None or not self._is_up):
            subscription.timer = Deadline(_SUBSCRIBE_S, partial(self._give_up, subscription))
            self._update_listen()
            return
        if key in self._unsubscribing:  # over HTTP the later request might overtake the earlier one
            return
        params = b'{"uri":%b}' % encode(subscription.uri)
        answered = partial(self._subscribed, subscription)
        call = Call(RESOURCES_SUBSCRIBE, params, answered, caller=subscription.caller, reply=lambda _: None)
        call.source = self._source
        subscription.request = call
        late = self._problem(DEADLINE, f"did not accept the subscription within {_SUBSCRIBE_S:g} seconds")
        subscription.timer = Deadline(_SUBSCRIBE_S, partial(call.give_up, Failure(late)))
        self._submit(call)

    def _subscribed(self, subscription: _Subscription, call: Request) -> None:
        subscription.cancel_timer()
        if subscription.request is not call or call.outcome is None:
            return
        subscription.request = None
        session = call.upstream
        if isinstance(call.outcome, Result) and isinstance(session, UpstreamSession):
            self._activate(subscription, session)
            if not subscription.watches:  # nobody watches it any more
                self._release(subscription)
        elif subscription.watches:
            self._failed(subscription, call.outcome)

    def _failed(self, subscription: _Subscription, outcome: Outcome) -> None:
        """Try again what was active before, unless the server refuses; fail everything else."""
        if not subscription.was_active or isinstance(outcome, RemoteError):
            self._remove(subscription)
            subscription.settle(outcome)
        elif not self._closed:
            self._subscribe_later(subscription)

    def _activate(self, subscription: _Subscription, session: UpstreamSession) -> None:
        subscription.session = session
        subscription.was_active = True
        subscription.backoff.up()
        session.subscription_count += 1
        subscription.on_lost = partial(self._lost, subscription, session)
        session.lost.add_done_callback(subscription.on_lost)
        subscription.settle(Result(_EMPTY))

    def _lost(self, subscription: _Subscription, session: UpstreamSession, _: asyncio.Future[Problem]) -> None:
        if subscription.session is session:
            subscription.session = None
            if subscription.watches and not self._closed:
                self._subscribe_later(subscription)

    def _subscribe_later(self, subscription: _Subscription) -> None:
        """Subscribe after a delay; by then the server may be of the other era."""
        subscription.cancel_timer()
        delay_s = subscription.backoff.next_delay_s()
        subscription.timer = asyncio.get_running_loop().call_later(delay_s, self._subscribe, subscription)

    def _drop(self, subscription: _Subscription) -> None:
        self._remove(subscription)
        if self._listen is not None and subscription.upstream_key is None:
            subscription.session = None
            self._update_listen()
        elif subscription.session is not None:
            self._release(subscription)

    def _remove(self, subscription: _Subscription) -> None:
        if subscription.request is None:  # else the timer is its deadline
            subscription.cancel_timer()
        key = (subscription.upstream_key, subscription.uri)
        if self._subscriptions.get(key) is not subscription:
            return
        del self._subscriptions[key]
        same = self._by_uri[subscription.uri]
        same.discard(subscription)
        if not same:
            del self._by_uri[subscription.uri]
        self._per_session[subscription.upstream_key] -= 1
        if not self._per_session[subscription.upstream_key]:
            del self._per_session[subscription.upstream_key]

    def _release(self, subscription: _Subscription) -> None:
        session, subscription.session = subscription.session, None
        if session is None:
            return
        session.subscription_count -= 1
        if subscription.on_lost is not None:
            session.lost.remove_done_callback(subscription.on_lost)
        key = (subscription.upstream_key, subscription.uri)
        if not session.usable or key in self._subscriptions or key in self._unsubscribing:
            return
        self._unsubscribing.add(key)
        params = b'{"uri":%b}' % encode(subscription.uri)
        session.start_request(RESOURCES_UNSUBSCRIBE, params, _UNSUBSCRIBE_S, partial(self._unsubscribed, key))

    def _unsubscribed(self, key: tuple[UpstreamKey, str], request: Request) -> None:
        self._unsubscribing.discard(key)
        subscription = self._subscriptions.get(key)
        if subscription is not None and subscription.session is None and subscription.request is None:
            self._subscribe(subscription)

    # -- modern: one subscription for all -----------------------------------------------------------------------------

    def _give_up(self, subscription: _Subscription) -> None:
        if subscription.session is None and not subscription.was_active:
            self._remove(subscription)
            subscription.settle(Failure(self._problem(SOURCE_DOWN, "is not reachable now")))
            self._update_listen()

    def _update_listen(self) -> None:
        if self._listen is not None:
            subscriptions = self._subscriptions.values()
            self._listen.want(
                frozenset(subscription.uri for subscription in subscriptions if subscription.upstream_key is None)
            )

    def _listening(self, uris: Uris) -> None:
        session = self._session
        if session is None:
            return
        for subscription in self._all_of(uris):
            subscription.cancel_timer()
            subscription.session = session
            subscription.was_active = True
            subscription.settle(Result(_EMPTY))

    def _refused(self, uris: Uris, outcome: Outcome) -> None:
        for subscription in self._all_of(uris):
            self._remove(subscription)
            subscription.settle(outcome)
        self._update_listen()

    def _all_of(self, uris: Uris) -> list[_Subscription]:
        found = (self._subscriptions.get((None, uri)) for uri in uris)
        return [subscription for subscription in found if subscription is not None]

    # -- updates ------------------------------------------------------------------------------------------------------

    def on_notification(self, session: UpstreamSession, method: str, params: Json) -> None:
        """Handle a notification about resources or subscriptions; ignore others."""
        if method == NOTIFICATIONS_RESOURCES_UPDATED:
            self._updated(session, bytes(params))
        elif self._listen is not None and method == NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED:
            self._listen.acknowledged(params)
        elif self._listen is not None and method == NOTIFICATIONS_CANCELLED:
            self._listen.cancelled(params)

    def _updated(self, session: UpstreamSession, params: bytes) -> None:
        """Coalesce updates of one turn of the loop: whoever watches reads the resource afterwards anyway."""
        try:
            uri = msgspec.json.decode(params, type=_Updated).uri
        except (msgspec.MsgspecError, RecursionError):
            return
        if not self._updates:
            asyncio.get_running_loop().call_soon(self._publish_updates)
        self._updates[session, uri] = params

    def _publish_updates(self) -> None:
        updates, self._updates = self._updates, {}
        for (session, uri), params in updates.items():
            update = _without_subscription_id(params)
            for watched in _with_parents(uri):
                for subscription in list(self._by_uri.get(watched, ())):
                    if subscription.is_on(session):
                        for watch in list(subscription.watches):
                            watch.on_updated(update)
