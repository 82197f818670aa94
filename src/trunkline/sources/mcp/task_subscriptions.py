"""Task notifications of one modern server: a subscription for each set of tasks, so that they cannot mix.

A subscription that is lost is renewed, and what was missed is fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from trunkline.core.call import Json, Outcome, Request, Result
from trunkline.core.source import TaskWatch
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of
from trunkline.protocol.mcp.methods import NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED, NOTIFICATIONS_TASKS, TASKS_GET
from trunkline.runtime.safe_callbacks import call_safely
from trunkline.sources.mcp.listen_request import ListenRequest, SubscriptionMeta, Uris
from trunkline.sources.mcp.session import UpstreamSession

MAX_WATCHES: Final = 256
"""Each is an open request, and over HTTP a connection."""
_FINAL_STATES: Final = frozenset({"completed", "failed", "cancelled"})
_GET_S: Final = 10.0


class UpstreamTaskSubscriptions:
    """All task subscriptions of one server."""

    def __init__(self) -> None:
        self._subscriptions: dict[TaskWatch, _Subscription] = {}
        self._session: UpstreamSession | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(self, watch: TaskWatch) -> None:
        """Subscribe, once the server is up; the caller knows how long it makes sense to wait."""
        if self._closed or len(self._subscriptions) >= MAX_WATCHES:
            watch.settle(frozenset())
            return
        watch.when_closed(self._drop)
        self._subscriptions[watch] = subscription = _Subscription(watch, self._drop)
        if self._session is not None:
            self._begin(subscription, self._session)

    def _begin(self, subscription: _Subscription, session: UpstreamSession) -> None:
        if session.has_tasks:
            subscription.begin(session)
        else:
            self._drop(subscription.watch)
            subscription.watch.settle(frozenset())

    def up(self, session: UpstreamSession) -> None:
        self._session = session
        for subscription in list(self._subscriptions.values()):
            call_safely("a renewed task subscription", self._begin, subscription, session)

    def down(self) -> None:
        self._session = None
        for subscription in self._subscriptions.values():
            subscription.stop()

    def close(self) -> None:
        self._closed = True
        for watch in list(self._subscriptions):
            self._drop(watch)
            watch.settle(frozenset())

    def _drop(self, watch: TaskWatch) -> None:
        subscription = self._subscriptions.pop(watch, None)
        if subscription is not None:
            subscription.stop()

    def on_notification(self, method: str, params: Json) -> None:
        """Handle a notification about subscriptions or tasks; ignore others."""
        if method == NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED:
            for subscription in list(self._subscriptions.values()):
                subscription.acknowledged(params)
        elif method == NOTIFICATIONS_TASKS:
            task = _read_task(raw := bytes(params))
            for subscription in list(self._subscriptions.values()):
                if task is not None and subscription.matches(task.meta.subscription_id):
                    subscription.update(task, raw)


class _Subscription:
    """One watch and its request at the server. `_unfinished` are the tasks that may still change."""

    def __init__(self, watch: TaskWatch, on_over: Callable[[TaskWatch], None]) -> None:
        self.watch = watch
        self._on_over = on_over
        self._unfinished = set(watch.task_ids)
        self._session: UpstreamSession | None = None
        self._listen: ListenRequest | None = None
        self._was_held = False
        self._to_fetch: list[str] = []
        self._fetching = False

    def begin(self, session: UpstreamSession) -> None:
        self._session = session
        # missed changes are fetched once the subscription is renewed
        self._listen = ListenRequest(session, self._held, self._refused, lambda: None, tasks=True)
        self._listen.want(frozenset(self._unfinished))

    def stop(self) -> None:
        self._to_fetch.clear()
        listen, self._listen = self._listen, None
        if listen is not None:
            listen.close()

    def acknowledged(self, params: Json) -> None:
        if self._listen is not None:
            self._listen.acknowledged(params)

    def matches(self, subscription_id: int | str | None) -> bool:
        return self._listen is not None and (subscription_id is None or self._listen.has_subscription(subscription_id))

    def update(self, task: _Task, params: bytes) -> None:
        if task.task_id not in self._unfinished or self.watch.closed:
            return
        if task.status in _FINAL_STATES:
            self._unfinished.discard(task.task_id)
        self.watch.on_updated(task.task_id, params)
        if not self._unfinished:
            self._on_over(self.watch)

    # -- the request at the server ------------------------------------------------------------------------------------

    def _held(self, task_ids: Uris) -> None:
        again, self._was_held = self._was_held, True
        self.watch.settle(task_ids)
        if again:
            self._to_fetch = sorted(task_ids & self._unfinished)
            self._fetch_next()

    def _refused(self, task_ids: Uris, outcome: Outcome) -> None:
        """Give up tasks that the server refuses; it may refuse all of them because of one."""
        self._unfinished -= task_ids
        if self._unfinished and self._listen is not None:
            self._listen.want(frozenset(self._unfinished))
        else:
            self._on_over(self.watch)
        self.watch.settle(frozenset())

    # -- fetching what was missed -------------------------------------------------------------------------------------

    def _fetch_next(self) -> None:
        session = self._session
        if self._fetching or not self._to_fetch or session is None or not session.usable:
            return
        task_id = self._to_fetch.pop(0)
        self._fetching = True
        session.start_request(TASKS_GET, b'{"taskId":%b}' % encode(task_id), _GET_S, self._fetched)

    def _fetched(self, request: Request) -> None:
        self._fetching = False
        outcome = request.outcome
        if isinstance(outcome, Result) and self._listen is not None:
            params = _as_notification(outcome.raw)
            task = None if params is None else _read_task(params)
            if task is not None and params is not None:
                self.update(task, params)
        self._fetch_next()


class _Task(msgspec.Struct, rename="camel"):
    task_id: str
    status: str = ""
    meta: SubscriptionMeta = msgspec.field(default_factory=SubscriptionMeta, name="_meta")


def _read_task(params: bytes) -> _Task | None:
    try:
        return msgspec.json.decode(params, type=_Task)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _as_notification(result: Json) -> bytes | None:
    """The result of `tasks/get` in the form of a task notification."""
    try:
        members = members_of(bytes(result), "the result")
    except BadMessage:
        return None
    return encode_members({name: value for name, value in members.items() if name != "resultType"})
