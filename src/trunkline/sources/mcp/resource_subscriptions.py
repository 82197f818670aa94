"""Resources that callers watch, each on the session that its caller's calls use: asked for once, however many watch it.

A subscription that is lost with its session is made anew, which opens the session again; nobody need know.
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
from trunkline.protocol.mcp.methods import NOTIFICATIONS_CANCELLED as TOLD_CANCELLED
from trunkline.protocol.mcp.methods import (
    NOTIFICATIONS_RESOURCES_UPDATED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    RESOURCES_SUBSCRIBE,
    RESOURCES_UNSUBSCRIBE,
)
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_calls import call_safely
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp.listen_request import ListenRequest, Uris
from trunkline.sources.mcp.session import UpstreamSession

# One watched resource at its server: who watches it, on which session, and what an update says.

_MOST_PARENTS: Final = 64

SessionName = Hashable
"""Which session a caller's calls use: the same for callers that share one. None is the one that is always there."""


class UpstreamSubscription:
    """One resource on one session. `session` is set while the server tells of it."""

    __slots__ = (
        "asking",
        "backoff",
        "caller",
        "on_lost",
        "session",
        "session_name",
        "timer",
        "uri",
        "was_held",
        "watches",
    )

    def __init__(self, session_name: SessionName, caller: Caller, uri: str) -> None:
        self.session_name = session_name
        self.caller = caller
        self.uri = uri
        self.watches: list[ResourceWatch] = []
        self.session: UpstreamSession | None = None
        self.asking: Call | None = None
        self.was_held = False
        self.timer: Deadline | asyncio.TimerHandle | None = None
        self.on_lost: Callable[[asyncio.Future[Problem]], None] | None = None
        self.backoff = RetryBackoff()

    @property
    def wanted(self) -> bool:
        return bool(self.watches)

    @property
    def waits_for_control(self) -> bool:
        """Whether nobody else will see to it that it is asked for."""
        if self.asking is not None:
            return False
        return self.session_name is None if self.session is None else not self.session.usable

    def settle(self, outcome: Outcome) -> None:
        for watch in list(self.watches):
            watch.settle(outcome)

    def is_on(self, session: UpstreamSession) -> bool:
        return self.session is session or (self.asking is not None and self.asking.upstream is session)

    def quiet(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Updated(msgspec.Struct):
    uri: str


def and_parents(uri: str) -> Iterator[str]:
    """A resource, and those that it may be a part of."""
    yield uri
    ends = [index for index, letter in enumerate(uri) if letter in "/?#"][-_MOST_PARENTS:]
    for end in ends:
        yield uri[:end]
        if end + 1 < len(uri):
            yield uri[: end + 1]


def without_subscription_id(params: bytes) -> bytes:
    """Which subscription it came by is between that server and us."""
    if SUBSCRIPTION_ID.encode() not in params:
        return params
    try:
        members = members_of(params, "`params`")
        meta = members_of(members.get("_meta", msgspec.Raw(_NOTHING)), "`_meta`")
        meta.pop(SUBSCRIPTION_ID, None)
        members.pop("_meta", None)
        if meta:
            members["_meta"] = msgspec.Raw(encode_members(meta))
        return encode_members(members)
    except BadMessage:
        return params


MAX_PER_SESSION: Final = 1000
_ASKED_S: Final = 30.0
_FAREWELL_S: Final = 10.0
_NOTHING: Final = b"{}"


class UpstreamSubscriptions:
    """`submit` carries a call as any other of its caller; `session_name_of` says which session that will be."""

    def __init__(
        self,
        source: str,
        submit: Callable[[Call], None],
        session_name_of: Callable[[Caller], SessionName],
        on_missed: Callable[[], None],
    ) -> None:
        self._source = source
        self._submit = submit
        self._session_name_of = session_name_of
        self._on_missed = on_missed
        self._subscriptions: dict[tuple[SessionName, str], UpstreamSubscription] = {}
        self._by_uri: dict[str, set[UpstreamSubscription]] = {}
        self._per_session: dict[SessionName, int] = {}
        self._leaving: dict[tuple[SessionName, str], Request] = {}
        self._early: dict[ResourceWatch, Deadline] = {}
        self._session: UpstreamSession | None = None
        self._is_up = False
        self._listen: ListenRequest | None = None
        self._news: dict[tuple[UpstreamSession, str], bytes] = {}
        self._closed = False

    # -- who watches ----------------------------------------------------------------------------------------------

    def add(self, watch: ResourceWatch) -> None:
        watch.when_closed(self._unwatched)
        if self._session is None and not self._closed:
            self._early[watch] = Deadline(_ASKED_S, partial(self._too_early, watch))
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
            return self._problem(UNKNOWN_METHOD, "does not tell when resources change")
        if self._per_session.get(self._session_name_of(watch.caller), 0) >= MAX_PER_SESSION:
            return self._problem(QUEUE_FULL, f"{MAX_PER_SESSION} of its resources are watched already")
        return None

    def _problem(self, code: Code, reason: str) -> Problem:
        return Problem(code=code, message=f"Server {self._source}: {reason}", source=self._source)

    def _join(self, watch: ResourceWatch) -> None:
        key = (self._session_name_of(watch.caller), watch.uri)
        subscription = self._subscriptions.get(key)
        if subscription is not None:
            subscription.watches.append(watch)
            if subscription.session is not None:
                watch.settle(Result(_NOTHING))
            return
        subscription = self._subscriptions[key] = UpstreamSubscription(key[0], watch.caller, watch.uri)
        self._by_uri.setdefault(watch.uri, set()).add(subscription)
        self._per_session[subscription.session_name] = self._per_session.get(subscription.session_name, 0) + 1
        subscription.watches.append(watch)
        self._ask(subscription)

    def _too_early(self, watch: ResourceWatch) -> None:
        if self._early.pop(watch, None) is not None:
            watch.settle(Failure(self._problem(SOURCE_DOWN, "is not connected")))

    def _unwatched(self, watch: ResourceWatch) -> None:
        early = self._early.pop(watch, None)
        if early is not None:
            early.cancel()
        for subscription in list(self._by_uri.get(watch.uri, ())):
            if watch in subscription.watches:
                subscription.watches.remove(watch)
                if not subscription.wanted:
                    self._drop(subscription)

    def forget(self, session: str) -> None:
        """A client is gone: its session is not opened again for what it watched."""
        for subscription in list(self._subscriptions.values()):
            if subscription.caller.session == session and subscription.session_name is not None:
                subscription.watches.clear()
                self._drop(subscription)

    def move(self) -> None:
        """Callers that had a session of their own, or should have had one, now share the one that is always there."""
        for subscription in list(self._subscriptions.values()):
            if subscription.session_name != self._session_name_of(subscription.caller):
                watches, subscription.watches = subscription.watches, []
                asking, subscription.asking = subscription.asking, None
                self._drop(subscription)
                if asking is not None:
                    asking.finish(Failure(self._problem(CANCELLED, "is asked in another way")))
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

    # -- the server comes and goes --------------------------------------------------------------------------------

    def up(self, session: UpstreamSession) -> None:
        """The session that is always there is there."""
        self._session = session
        self._is_up = True
        if session.modern:
            self._listen = ListenRequest(session, self._held, self._refused, self._on_missed)
            self._listen_anew()
        else:
            for subscription in list(self._subscriptions.values()):
                if subscription.waits_for_control:
                    subscription.session = None
                    call_safely("a subscription that is asked for again", self._ask, subscription)
        early, self._early = self._early, {}
        for watch, timer in early.items():
            timer.cancel()
            call_safely("a watch that came early", self.add, watch)

    def down(self) -> None:
        self._is_up = False
        if self._listen is not None:
            self._listen.close()
            self._listen = None

    # -- legacy: a request for each resource ----------------------------------------------------------------------

    def _ask(self, subscription: UpstreamSubscription) -> None:
        subscription.quiet()
        key = (subscription.session_name, subscription.uri)
        if subscription.session_name is None and (self._listen is not None or not self._is_up):
            subscription.timer = Deadline(_ASKED_S, partial(self._never_held, subscription))
            self._listen_anew()
            return
        if key in self._leaving:  # over HTTP the later request might arrive first
            return
        params = b'{"uri":%b}' % encode(subscription.uri)
        answered = partial(self._answered, subscription)
        call = Call(RESOURCES_SUBSCRIBE, params, answered, caller=subscription.caller, reply=_nobody)
        call.source = self._source
        subscription.asking = call
        subscription.timer = Deadline(_ASKED_S, partial(self._answer_is_late, call))
        self._submit(call)

    def _answer_is_late(self, call: Call) -> None:
        problem = self._problem(DEADLINE, f"did not accept the subscription within {_ASKED_S:g} seconds")
        call.give_up(Failure(problem))

    def _answered(self, subscription: UpstreamSubscription, call: Request) -> None:
        subscription.quiet()
        if subscription.asking is not call or call.outcome is None:
            return
        subscription.asking = None
        session = call.upstream
        if isinstance(call.outcome, Result) and isinstance(session, UpstreamSession):
            self._hold(subscription, session)
            if not subscription.wanted:  # they left meanwhile
                self._release(subscription)
        elif subscription.wanted:
            self._failed(subscription, call.outcome)

    def _failed(self, subscription: UpstreamSubscription, outcome: Outcome) -> None:
        """What never held is over; what held before is tried again, unless the server does not want to."""
        if not subscription.was_held or isinstance(outcome, RemoteError):
            self._remove(subscription)
            subscription.settle(outcome)
        elif not self._closed:
            self._ask_later(subscription)

    def _hold(self, subscription: UpstreamSubscription, session: UpstreamSession) -> None:
        subscription.session = session
        subscription.was_held = True
        subscription.backoff.up()
        session.subscription_count += 1
        subscription.on_lost = partial(self._lost, subscription, session)
        session.lost.add_done_callback(subscription.on_lost)
        subscription.settle(Result(_NOTHING))

    def _lost(self, subscription: UpstreamSubscription, session: UpstreamSession, _: asyncio.Future[Problem]) -> None:
        if subscription.session is session:
            subscription.session = None
            if subscription.wanted and not self._closed:
                self._ask_later(subscription)

    def _ask_later(self, subscription: UpstreamSubscription) -> None:
        """The server may be of another era by then, which is told of all its resources at once."""
        subscription.quiet()
        delay_s = subscription.backoff.next_delay_s()
        subscription.timer = asyncio.get_running_loop().call_later(delay_s, self._ask, subscription)

    def _drop(self, subscription: UpstreamSubscription) -> None:
        """Nobody watches it any more."""
        self._remove(subscription)
        if self._listen is not None and subscription.session_name is None:
            subscription.session = None
            self._listen_anew()
        elif subscription.session is not None:
            self._release(subscription)

    def _remove(self, subscription: UpstreamSubscription) -> None:
        if subscription.asking is None:  # else its deadline still counts
            subscription.quiet()
        key = (subscription.session_name, subscription.uri)
        if self._subscriptions.get(key) is not subscription:
            return
        del self._subscriptions[key]
        same = self._by_uri[subscription.uri]
        same.discard(subscription)
        if not same:
            del self._by_uri[subscription.uri]
        self._per_session[subscription.session_name] -= 1
        if not self._per_session[subscription.session_name]:
            del self._per_session[subscription.session_name]

    def _release(self, subscription: UpstreamSubscription) -> None:
        session, subscription.session = subscription.session, None
        if session is None:
            return
        session.subscription_count -= 1
        if subscription.on_lost is not None:
            session.lost.remove_done_callback(subscription.on_lost)
        key = (subscription.session_name, subscription.uri)
        if not session.usable or key in self._subscriptions or key in self._leaving:
            return
        request = Request(RESOURCES_UNSUBSCRIBE, b'{"uri":%b}' % encode(subscription.uri), partial(self._left, key))
        self._leaving[key] = request
        problem = self._problem(CANCELLED, "did not answer")
        asyncio.get_running_loop().call_later(_FAREWELL_S, request.give_up, Failure(problem))
        session.send(request)

    def _left(self, key: tuple[SessionName, str], request: Request) -> None:
        del self._leaving[key]
        subscription = self._subscriptions.get(key)
        if subscription is not None and subscription.session is None and subscription.asking is None:
            self._ask(subscription)

    # -- modern: one subscription for all -------------------------------------------------------------------------

    def _never_held(self, subscription: UpstreamSubscription) -> None:
        if subscription.session is None and not subscription.was_held:
            self._remove(subscription)
            subscription.settle(Failure(self._problem(SOURCE_DOWN, "cannot be asked now")))
            self._listen_anew()

    def _listen_anew(self) -> None:
        if self._listen is not None:
            subscriptions = self._subscriptions.values()
            self._listen.want(
                frozenset(subscription.uri for subscription in subscriptions if subscription.session_name is None)
            )

    def _held(self, uris: Uris) -> None:
        session = self._session
        if session is None:
            return
        for subscription in self._all_of(uris):
            subscription.quiet()
            subscription.session = session
            subscription.was_held = True
            subscription.settle(Result(_NOTHING))

    def _refused(self, uris: Uris, outcome: Outcome) -> None:
        for subscription in self._all_of(uris):
            self._remove(subscription)
            subscription.settle(outcome)
        self._listen_anew()

    def _all_of(self, uris: Uris) -> list[UpstreamSubscription]:
        found = (self._subscriptions.get((None, uri)) for uri in uris)
        return [subscription for subscription in found if subscription is not None]

    # -- news -----------------------------------------------------------------------------------------------------

    def heard(self, session: UpstreamSession, method: str, params: Json) -> None:
        """What a server says of subscriptions; anything else is none of our business."""
        if method == NOTIFICATIONS_RESOURCES_UPDATED:
            self._updated(session, bytes(params))
        elif self._listen is not None and method == NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED:
            self._listen.acknowledged(params)
        elif self._listen is not None and method == TOLD_CANCELLED:
            self._listen.cancelled(params)

    def _updated(self, session: UpstreamSession, params: bytes) -> None:
        """Many at once are told once: whoever watches reads the resource afterwards anyway."""
        try:
            uri = msgspec.json.decode(params, type=Updated).uri
        except (msgspec.MsgspecError, RecursionError):
            return
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell)
        self._news[session, uri] = params

    def _tell(self) -> None:
        news, self._news = self._news, {}
        for (session, uri), params in news.items():
            told = without_subscription_id(params)
            for watched in and_parents(uri):
                for subscription in list(self._by_uri.get(watched, ())):
                    if subscription.is_on(session):
                        for watch in list(subscription.watches):
                            watch.on_updated(told)


def _nobody(request: Request) -> None:
    """Nobody waits for how it ended."""
