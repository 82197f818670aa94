"""`subscriptions/listen` of modern clients: what each wants to be notified of, and its stream of notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from trunkline.core.call import Caller, Json, Outcome, Result
from trunkline.core.errors import CAPABILITY_MISSING, CLIENT_LIMIT, INVALID_PARAMS, INVALID_REQUEST, Problem
from trunkline.frontends.mcp.requests import RequestContext, Responder, own_result, refuse
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, encode_notification, members_of
from trunkline.protocol.mcp.capabilities import TASKS, extensions
from trunkline.protocol.mcp.methods import (
    NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    NOTIFICATIONS_RESOURCES_LIST_CHANGED,
    NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED,
    NOTIFICATIONS_TOOLS_LIST_CHANGED,
)
from trunkline.protocol.mcp.modern import SUBSCRIPTION_ID, RequestRefused
from trunkline.protocol.mcp.notifications import modern_task, modern_update
from trunkline.protocol.mcp.server_requests import labelled_result
from trunkline.router.router import Router
from trunkline.router.subscriptions import ResourceSubscription, TaskSubscription

MAX_WATCHED: Final = 1000
MAX_CHARACTERS: Final = 8192
"""Of one URI or id: all are kept while the stream is open."""
_SETTLE_S: Final = 3.0
"""How long servers may take to accept the subscriptions."""
_MAX_HELD: Final = 1000
_MAX_HELD_BYTES: Final = 1024 * 1024
_LISTS: Final = {
    "toolsListChanged": NOTIFICATIONS_TOOLS_LIST_CHANGED,
    "promptsListChanged": NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    "resourcesListChanged": NOTIFICATIONS_RESOURCES_LIST_CHANGED,
}


@dataclass(frozen=True, slots=True)
class ListenFilter:
    """What a client subscribes to: lists by the member that asks for them, resources by URI, tasks by id."""

    lists: tuple[str, ...]
    uris: tuple[str, ...]
    task_ids: tuple[str, ...]

    @property
    def watched(self) -> int:
        return len(self.uris) + len(self.task_ids)


def read_filter(members: Members, capabilities: bytes) -> ListenFilter:
    """Parse the filter; only clients with the tasks extension may name tasks. Raises BadMessage or RequestRefused."""
    task_ids = _distinct(members, "taskIds")
    if task_ids and TASKS not in extensions(capabilities):
        problem = Problem(code=CAPABILITY_MISSING, message=f"`taskIds` needs the extension `{TASKS}`")
        raise RequestRefused(problem, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
    lists: list[str] = []
    for name in _LISTS:
        value = bytes(members.get(name, b"false"))
        if value not in (b"true", b"false", b"null"):
            raise BadMessage(INVALID_PARAMS, f"`{name}` must be a boolean")
        if value == b"true":
            lists.append(name)
    return ListenFilter(tuple(lists), _distinct(members, "resourceSubscriptions"), task_ids)


def _distinct(members: Members, name: str) -> tuple[str, ...]:
    try:
        texts: list[str] = msgspec.json.decode(members.get(name, b"[]"), type=list[str] | None) or []
    except msgspec.ValidationError:
        raise BadMessage(INVALID_PARAMS, f"`{name}` must be a list of strings") from None
    distinct = tuple(dict.fromkeys(texts))
    if len(distinct) > MAX_WATCHED:
        raise BadMessage(INVALID_PARAMS, f"`{name}` has more than {MAX_WATCHED} entries")
    if any(len(text) > MAX_CHARACTERS for text in distinct):
        raise BadMessage(INVALID_PARAMS, f"`{name}` has an entry of more than {MAX_CHARACTERS} characters")
    return distinct


class ListenStream:
    """One open `subscriptions/listen`.

    The first message acknowledges what the client will be notified of: notifications are held back until every server
    has answered, or some took too long.
    """

    def __init__(
        self,
        responder: Responder,
        id_json: bytes,
        caller: Caller,
        listen_filter: ListenFilter,
        names_servers: Callable[[], bool],
    ) -> None:
        self.responder = responder
        self.caller = caller
        self.last_sent: dict[bytes, bytes] = {}
        """The lists as this client was notified of them last, by name."""
        self.listen_filter = listen_filter
        self._id_json = id_json
        self._methods = frozenset(_LISTS[name] for name in listen_filter.lists)
        self._names_servers = names_servers
        self._watches: dict[str, ResourceSubscription] = {}
        self._accepted: dict[str, bool] = {}
        self._tasks: TaskSubscription | None = None
        self._unsettled_tasks = set(listen_filter.task_ids)
        self._task_ids: set[str] = set()
        self._held: dict[bytes, None] | None = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def begin(self, router: Router) -> None:
        """Subscribe to everything at the servers."""
        for uri in self.listen_filter.uris:
            self._watches[uri] = router.subscribe(self.caller, uri, self._updated, partial(self._settled, uri))
        if self.listen_filter.task_ids:
            self._tasks = router.subscribe_tasks(
                self.caller, self.listen_filter.task_ids, self._task_updated, self._tasks_settled
            )
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_S, self._acknowledge)
            self._acknowledge_if_settled()

    def _settled(self, uri: str, outcome: Outcome) -> None:
        self._accepted[uri] = isinstance(outcome, Result)
        self._acknowledge_if_settled()

    def _tasks_settled(self, answered: frozenset[str], honoured: frozenset[str]) -> None:
        self._unsettled_tasks -= answered
        if self._held is not None:  # what is accepted after the acknowledgement was not promised
            self._task_ids |= honoured
        self._acknowledge_if_settled()

    def _acknowledge_if_settled(self) -> None:
        settled = len(self._accepted) == len(self.listen_filter.uris) and not self._unsettled_tasks
        if self._timer is not None and settled:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Send what is honoured, and stop watching the rest."""
        held, self._held = self._held, None
        if self._closed or held is None:
            return
        self._stop_timer()
        for uri in self.listen_filter.uris:
            if not self._accepted.get(uri):
                self._watches.pop(uri).close()
        if self._tasks is not None:
            self._tasks.keep(self._task_ids)
        honoured: dict[str, object] = dict.fromkeys(self.listen_filter.lists, True)
        if self._watches:
            honoured["resourceSubscriptions"] = list(self._watches)
        if self._task_ids:
            honoured["taskIds"] = [task_id for task_id in self.listen_filter.task_ids if task_id in self._task_ids]
        body = b'{"notifications":%b,%b}' % (encode(honoured), self._meta())
        self.responder.notify(encode_notification(NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED, body))
        for message in held:
            self.responder.notify(message)

    # -- notifications --------------------------------------------------------------------------------------------

    def list_changed(self, method: str) -> None:
        if method in self._methods:
            self._send(encode_notification(method, b"{%b}" % self._meta()))

    def _updated(self, params: Json) -> None:
        try:
            self._send(modern_update(params, self._id_json))
        except (BadMessage, RecursionError):
            return

    def _task_updated(self, source: str, task_id: str, params: Json) -> None:
        if self._held is None and task_id not in self._task_ids:
            return
        try:
            shown = labelled_result(source, params, in_text=self._names_servers())
            self._send(modern_task(shown, self._id_json))
        except (BadMessage, RecursionError):
            return

    def _send(self, message: bytes) -> None:
        if self._closed:
            return
        if self._held is None:
            self.responder.notify(message)
        elif len(self._held) < _MAX_HELD and sum(map(len, self._held)) + len(message) <= _MAX_HELD_BYTES:
            self._held[message] = None

    # -- ending ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._closed = True
        self._stop_timer()
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.close()
        if self._tasks is not None:
            self._tasks.close()

    def end(self) -> None:
        """Close the stream with the result of its request, which tells the client that nothing was lost."""
        self.close()
        self.responder.result(own_result(b'{"resultType":"complete",%b}' % self._meta()))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _meta(self) -> bytes:
        return b'"_meta":{"%b":%b}' % (SUBSCRIPTION_ID.encode(), self._id_json)


# -- all streams ------------------------------------------------------------------------------------------------------

MAX_LISTENS: Final = 4096
MAX_LISTENS_PER_PRINCIPAL: Final = 1024
MAX_WATCHED_PER_PRINCIPAL: Final = 10_000


class ListenStreams:
    """Every open `subscriptions/listen`, by the key of its request."""

    def __init__(self, router: Router, names_servers: Callable[[], bool]) -> None:
        self._router = router
        self._names_servers = names_servers
        self.on_open: Callable[[ListenStream], None] | None = None
        self._open: dict[Hashable, ListenStream] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._open

    def open(self, context: RequestContext) -> None:
        if len(context.message.id_json) > MAX_CHARACTERS:  # every notification repeats it
            raise BadMessage(INVALID_REQUEST, f"`id` has more than {MAX_CHARACTERS} characters")
        notifications = context.params.get("notifications")
        members = {} if notifications is None else members_of(notifications, "`notifications`")
        listen_filter = read_filter(members, context.caller.capabilities)
        principal = context.caller.principal
        refusal = self._refusal(context.key, principal, listen_filter.watched)
        if refusal is not None:
            refuse(context.responder, refusal)
            return
        listen = ListenStream(
            context.responder, context.message.id_json, context.caller, listen_filter, self._names_servers
        )
        self._open[context.key] = listen
        if self.on_open is not None:
            self.on_open(listen)
        listen.begin(self._router)

    def _refusal(self, key: Hashable, principal: str, watched: int) -> Problem | None:
        if key in self._open:
            return Problem(code=INVALID_REQUEST, message="A request with this `id` is still in flight")
        theirs = [listen for listen in self._open.values() if listen.caller.principal == principal]
        if len(self._open) >= MAX_LISTENS or len(theirs) >= MAX_LISTENS_PER_PRINCIPAL:
            return _too_many(f"Too many subscriptions are open: {len(theirs)} of yours, {len(self._open)} in all")
        if watched and sum(listen.listen_filter.watched for listen in theirs) + watched > MAX_WATCHED_PER_PRINCIPAL:
            return _too_many(f"More than {MAX_WATCHED_PER_PRINCIPAL} resources and tasks are subscribed to")
        return None

    def all(self) -> list[ListenStream]:
        return list(self._open.values())

    def close(self, key: Hashable, problem: Problem) -> bool:
        """Close a stream that the client cancelled; False when there is none with this key."""
        listen = self._open.pop(key, None)
        if listen is not None:
            listen.close()
            listen.responder.cancelled(problem)
        return listen is not None

    def end_all(self) -> None:
        listen_streams, self._open = self._open, {}
        for listen in listen_streams.values():
            listen.end()


def _too_many(message: str) -> Problem:
    return Problem(code=CLIENT_LIMIT, message=message, retryable=True, retry_after_ms=1000)
