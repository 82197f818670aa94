"""News of tasks of one modern server: a subscription there for each wish to hear of some, so that they cannot mix.

A subscription that is lost is made anew, and what was missed is asked for: whoever listens need not ask as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import Failure, Json, Outcome, Request, Result
from trunkline.core.errors import DEADLINE
from trunkline.core.source import TaskWatch
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of
from trunkline.protocol.mcp.methods import NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED, NOTIFICATIONS_TASKS, TASKS_GET
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_calls import call_safely
from trunkline.sources.mcp.listen_request import ListenRequest, Uris
from trunkline.sources.mcp.session import UpstreamSession

MAX_WATCHES: Final = 256
"""Each is a request that stays open, over HTTP a connection."""
_OVER: Final = frozenset({"completed", "failed", "cancelled"})
_ASKED_S: Final = 10.0


class UpstreamTaskSubscriptions:
    def __init__(self) -> None:
        self._subscriptions: dict[TaskWatch, _Subscription] = {}
        self._session: UpstreamSession | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(self, watch: TaskWatch) -> None:
        """Before the server is up it waits for that; whoever made it knows how long that makes sense."""
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
            call_safely("tasks that are listened for again", self._begin, subscription, session)

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

    def heard(self, method: str, params: Json) -> None:
        """What the server says of subscriptions and tasks; anything else is none of our business."""
        if method == NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED:
            for subscription in list(self._subscriptions.values()):
                subscription.acknowledged(params)
        elif method == NOTIFICATIONS_TASKS:
            self._told(bytes(params))

    def _told(self, params: bytes) -> None:
        task = _read_task(params)
        if task is None:
            return
        for subscription in list(self._subscriptions.values()):
            if subscription.is_meant(task.meta.subscription_id):
                subscription.told(task, params)


class _Subscription:
    """One wish, and what is open at the server for it. `left` are the tasks of which more may come."""

    def __init__(self, watch: TaskWatch, on_over: Callable[[TaskWatch], None]) -> None:
        self.watch = watch
        self._on_over = on_over
        self._left = set(watch.task_ids)
        self._session: UpstreamSession | None = None
        self._listen: ListenRequest | None = None
        self._was_held = False
        self._to_ask: list[str] = []
        self._asking: Request | None = None

    def begin(self, session: UpstreamSession) -> None:
        self._session = session
        self._listen = ListenRequest(session, self._held, self._refused, _not_about_lists, tasks=True)
        self._listen.want(frozenset(self._left))

    def stop(self) -> None:
        self._to_ask.clear()
        listen, self._listen = self._listen, None
        if listen is not None:
            listen.close()

    def acknowledged(self, params: Json) -> None:
        if self._listen is not None:
            self._listen.acknowledged(params)

    def is_meant(self, subscription_id: int | str | None) -> bool:
        return self._listen is not None and (subscription_id is None or self._listen.is_under(subscription_id))

    def told(self, task: _Task, params: bytes) -> None:
        if task.task_id not in self._left or self.watch.closed:
            return
        if task.status in _OVER:
            self._left.discard(task.task_id)
        self.watch.on_updated(task.task_id, params)
        if not self._left:
            self._on_over(self.watch)

    # -- what becomes of the subscription -------------------------------------------------------------------------

    def _held(self, task_ids: Uris) -> None:
        again, self._was_held = self._was_held, True
        self.watch.settle(task_ids)
        if again:
            self._to_ask = sorted(task_ids & self._left)
            self._ask_next()

    def _refused(self, task_ids: Uris, outcome: Outcome) -> None:
        """A server may refuse all for the sake of one. It is this client's loss alone."""
        self._left -= task_ids
        if self._left and self._listen is not None:
            self._listen.want(frozenset(self._left))
        else:
            self._on_over(self.watch)
        self.watch.settle(frozenset())

    # -- what was missed ------------------------------------------------------------------------------------------

    def _ask_next(self) -> None:
        session = self._session
        if self._asking is not None or not self._to_ask or session is None or not session.usable:
            return
        task_id = self._to_ask.pop(0)
        request = Request(TASKS_GET, b'{"taskId":%b}' % encode(task_id), lambda one: self._answered(one, timer))
        late = Failure(session.problem(DEADLINE, f"no answer to `tasks/get` within {_ASKED_S:g} seconds"))
        timer = Deadline(_ASKED_S, partial(request.give_up, late))
        self._asking = request
        session.send(request)

    def _answered(self, request: Request, timer: Deadline) -> None:
        timer.cancel()
        self._asking = None
        outcome = request.outcome
        if isinstance(outcome, Result) and self._listen is not None:
            params = _as_notification(outcome.raw)
            task = None if params is None else _read_task(params)
            if task is not None and params is not None:
                self.told(task, params)
        self._ask_next()


class _Meta(msgspec.Struct):
    subscription_id: int | str | None = msgspec.field(default=None, name=SUBSCRIPTION_ID)


class _Task(msgspec.Struct, rename="camel"):
    task_id: str
    status: str = ""
    meta: _Meta = msgspec.field(default_factory=_Meta, name="_meta")


def _read_task(params: bytes) -> _Task | None:
    try:
        return msgspec.json.decode(params, type=_Task)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _as_notification(result: Json) -> bytes | None:
    """What `tasks/get` says, as the server would have told it by itself."""
    try:
        members = members_of(bytes(result), "the result")
    except BadMessage:
        return None
    return encode_members({name: value for name, value in members.items() if name != "resultType"})


def _not_about_lists() -> None:
    """What was missed is asked for once the server is told of the tasks again."""
