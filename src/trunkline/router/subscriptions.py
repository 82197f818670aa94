"""Resources that clients watch: each at the server that has it, under the URI that the client knows.

A server that is replaced is watched anew in its successor; one that is removed ends what was watched there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from trunkline.core.call import Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import INVALID_PARAMS, SOURCE_DOWN, UNKNOWN_METHOD, UNKNOWN_RESOURCE, Problem
from trunkline.core.source import ResourceWatch, TaskWatch
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of, text_member
from trunkline.router.admission import Admission
from trunkline.router.pending_calls import PendingCalls
from trunkline.router.registry import SourceRegistry
from trunkline.router.request_router import unknown_resource
from trunkline.router.resources import ResourceLocation
from trunkline.router.result_rewriting import UriRewriter
from trunkline.router.task_ids import TaskIds, TaskLocation, map_task_ids
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_calls import bug_problem, contained

_AGAIN_S: Final = 5.0
_FOR_GOOD: Final = (INVALID_PARAMS, UNKNOWN_METHOD, UNKNOWN_RESOURCE)
"""Why a server will not tell of a resource, however often it is asked."""


class ResourceSubscription:
    """One client's wish to hear of one resource, by the URI that it uses. Whoever opened it closes it."""

    def __init__(
        self,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], None],
        on_settled: Callable[[Outcome], None],
        on_closed: Callable[[ResourceSubscription], None],
        on_lost: Callable[[ResourceSubscription], None],
    ) -> None:
        self.caller = caller
        self.uri = uri
        self.closed = False
        self.admission: Admission | None = None
        self.location: ResourceLocation | None = None
        self.timer: Deadline | asyncio.TimerHandle | None = None
        self._on_updated = on_updated
        self._on_settled = on_settled
        self._on_closed = on_closed
        self._on_lost = on_lost
        self._settled = False
        self._watch: ResourceWatch | None = None

    def begin(self, admission: Admission, location: ResourceLocation, uri_rewriter: UriRewriter) -> None:
        """Watch it at this server, and no longer at another."""
        self._let_go()

        def updated(params: Json) -> None:
            if not self.closed:
                self._on_updated(self._as_known(params, location, uri_rewriter))

        self.admission, self.location = admission, location
        told = partial(contained, "news of a resource", updated)
        settled = partial(contained, "how a subscription went", self.settle)
        self._watch = ResourceWatch(self.caller, location.uri, told, settled)
        admission.source.watch_resource(self._watch)

    def _as_known(self, params: Json, location: ResourceLocation, uri_rewriter: UriRewriter) -> Json:
        """The notification with the URI that this client uses for it, or can use."""
        try:
            members = members_of(bytes(params), "params")
            uri = text_member(members, "uri")
        except BadMessage:
            return params
        if uri is None:
            return params
        shown = self.uri if uri == location.uri else uri_rewriter.public_uri(self.caller, location.source, uri)
        return params if shown == uri else encode_members({**members, "uri": encode(shown)})

    def settle(self, outcome: Outcome) -> None:
        """How it went. A watch that never held is over; one that held before is tried again, if it may hold."""
        if self._settled:
            if not isinstance(outcome, Result) and not self.closed:
                self._lost(outcome)
            return
        self._settled = True
        if not isinstance(outcome, Result):
            self.close()
        self._on_settled(outcome)

    def _lost(self, outcome: Outcome) -> None:
        self._let_go()
        if isinstance(outcome, Failure) and outcome.problem.code not in _FOR_GOOD:
            self._on_lost(self)
        else:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._let_go()
            self._on_closed(self)

    def _let_go(self) -> None:
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class ResourceSubscriptions:
    def __init__(
        self,
        registry: SourceRegistry,
        uri_rewriter: UriRewriter,
        waiting: PendingCalls,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._registry = registry
        self._uri_rewriter = uri_rewriter
        self._pending_calls = waiting
        self._loop = loop
        self._open: dict[ResourceSubscription, None] = {}
        self._unresolved: dict[ResourceSubscription, None] = {}
        registry.on_source_retired.append(self._source_left)

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], None],
        on_settled: Callable[[Outcome], None],
    ) -> ResourceSubscription:
        watch = ResourceSubscription(caller, uri, on_updated, on_settled, self._closed, self._lost)
        self._open[watch] = None
        self._begin(watch)
        return watch

    def settle(self) -> None:
        """Something became known: see which resources it was waited for."""
        if self._unresolved:
            waiting, self._unresolved = self._unresolved, {}
            for watch in waiting:
                if not contained("a resource that was waited for", self._begin, watch):
                    contained("its answer", watch.settle, Failure(bug_problem()))

    def _begin(self, watch: ResourceSubscription) -> None:
        location = self._uri_rewriter.resolve_or_guess(watch.caller, watch.uri)
        if location is None:
            if self._waits(watch):
                return
            watch.settle(Failure(unknown_resource(watch.uri)))
            return
        admission = self._registry.admissions[location.source]
        refusal = admission.refusal()
        if refusal is not None:
            watch.settle(Failure(refusal))
        else:
            watch.begin(admission, location, self._uri_rewriter)

    def _waits(self, watch: ResourceSubscription) -> bool:
        """Whether a server is still starting that may have it; not for longer than a call would wait for that."""
        admissions = [
            self._registry.admissions[source]
            for source in self._pending_calls.unpublished(self._registry.catalog.sources)
        ]
        starting = [admission for admission in admissions if admission.health.state == "starting"]
        if not starting or self._pending_calls.draining:
            return False
        if watch.timer is None:
            wait_s = max(admission.options.timeout_s for admission in starting)
            watch.timer = Deadline(wait_s, partial(self._waited_enough, watch))
        self._unresolved[watch] = None
        return True

    def _waited_enough(self, watch: ResourceSubscription) -> None:
        if watch in self._unresolved:
            watch.settle(Failure(unknown_resource(watch.uri)))

    def _source_left(self, admission: Admission) -> None:
        successor = self._registry.admissions.get(admission.name)
        for watch in [watch for watch in self._open if watch.admission is admission]:
            contained("a watched resource", self._move, watch, admission.name, successor)

    def _move(self, watch: ResourceSubscription, left: str, successor: Admission | None) -> None:
        if successor is None or watch.location is None:
            problem = Problem(code=SOURCE_DOWN, message=f"Server {left} was removed", source=left)
            watch.settle(Failure(problem))
            watch.close()
        else:
            watch.begin(successor, watch.location, self._uri_rewriter)

    def _lost(self, watch: ResourceSubscription) -> None:
        """Its server took over from another and was not well, or was lost at a bad moment."""
        watch.admission = None
        watch.timer = self._loop.call_later(_AGAIN_S, self._begin_again, watch)

    def _begin_again(self, watch: ResourceSubscription) -> None:
        watch.timer = None
        self._begin(watch)

    def _closed(self, watch: ResourceSubscription) -> None:
        self._open.pop(watch, None)
        self._unresolved.pop(watch, None)


# News of tasks: each is listened for at the server that has it, and told under the id that its client knows.
#
# A server that is replaced is listened to anew in its successor, once that is up; of one that is removed nothing more is
# heard.

OnTaskUpdate = Callable[[str, str, Json], None]
"""Gets the server, the task's id as the client knows it, and how the task is."""
OnTasksSettled = Callable[[frozenset[str], frozenset[str]], None]
"""Gets ids whose server has answered, and those of them that it will tell of."""


class TaskSubscription:
    """One client's wish to hear of some of its tasks. Whoever opened it closes it."""

    def __init__(
        self,
        caller: Caller,
        on_updated: OnTaskUpdate,
        on_settled: OnTasksSettled,
        on_closed: Callable[[TaskSubscription], None],
    ) -> None:
        self.caller = caller
        self.closed = False
        self.on_updated = on_updated
        self.on_settled = on_settled
        self.at: dict[str, _TasksAtSource] = {}
        self._on_closed = on_closed

    def keep(self, task_ids: Iterable[str]) -> None:
        """Nothing of the others was promised: servers that have none of these need not go on."""
        kept = frozenset(task_ids)
        for name, at_server in list(self.at.items()):
            if kept.isdisjoint(at_server.shown.values()):
                at_server.close()
                del self.at[name]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.keep(())
            self._on_closed(self)


class _TasksAtSource:
    """The part of it at one server. `shown` has the client's id for each of the server's own."""

    def __init__(
        self, news: TaskSubscription, source: str, shown: dict[str, str], tasks: TaskIds, uri_rewriter: UriRewriter
    ) -> None:
        self.shown = shown
        self.admission: Admission | None = None
        self._news = news
        self._source = source
        self._task_ids = tasks
        self._uri_rewriter = uri_rewriter
        self._watch: TaskWatch | None = None
        self._settled = False

    def begin(self, admission: Admission) -> None:
        """Of a server that refuses now nothing is promised. What was promised before is left with it all the same: it
        waits there until the server is up, the client has enough, or yet another server takes over."""
        self.close()
        self.admission = admission
        if not self._settled and admission.refusal() is not None:
            self.settle(frozenset())
            return
        told = partial(contained, "news of a task", self._told)
        settled = partial(contained, "what is told of tasks", self.settle)
        self._watch = TaskWatch(self._news.caller, frozenset(self.shown), told, settled)
        admission.source.watch_tasks(self._watch)

    def settle(self, honoured: frozenset[str]) -> None:
        if not self._settled:
            self._settled = True
            shown = frozenset(self.shown.values())
            self._news.on_settled(shown, frozenset(self.shown[own] for own in honoured if own in self.shown))

    def _told(self, own_id: str, params: Json) -> None:
        if self._news.closed or own_id not in self.shown:
            return
        caller, source = self._news.caller, self._source

        def id_for_caller(own: str) -> str:
            return self.shown.get(own) or self._task_ids.public_id(caller, TaskLocation(source, own))

        known = map_task_ids(bytes(params), id_for_caller)
        self._news.on_updated(source, self.shown[own_id], self._uri_rewriter.rewrite(caller, source, known))

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class TaskSubscriptions:
    def __init__(self, registry: SourceRegistry, tasks: TaskIds, uri_rewriter: UriRewriter) -> None:
        self._registry = registry
        self._task_ids = tasks
        self._uri_rewriter = uri_rewriter
        self._open: dict[TaskSubscription, None] = {}
        registry.on_source_retired.append(self._source_left)

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, caller: Caller, task_ids: Iterable[str], on_updated: OnTaskUpdate, on_settled: OnTasksSettled
    ) -> TaskSubscription:
        news = TaskSubscription(caller, on_updated, on_settled, self._closed)
        self._open[news] = None
        shown, unknown = self._by_source(caller, task_ids)
        for source, ids in shown.items():
            news.at[source] = _TasksAtSource(news, source, ids, self._task_ids, self._uri_rewriter)
        if unknown:
            on_settled(frozenset(unknown), frozenset())
        for source, at_server in list(news.at.items()):
            at_server.begin(self._registry.admissions[source])
        return news

    def _by_source(self, caller: Caller, task_ids: Iterable[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
        """For each server its own ids and what the client calls them; and the ids that name no task, or one twice."""
        shown: dict[str, dict[str, str]] = {}
        unknown: list[str] = []
        for task_id in task_ids:
            location = self._task_ids.locate(caller, task_id)
            ids = {} if location is None else shown.get(location.source, {})
            if location is None or location.source not in self._registry.admissions or location.task_id in ids:
                unknown.append(task_id)
            else:
                shown.setdefault(location.source, ids)[location.task_id] = task_id
        return shown, unknown

    def _source_left(self, admission: Admission) -> None:
        for news in list(self._open):
            contained("tasks that are watched", self._move, news, admission)

    def _move(self, news: TaskSubscription, left: Admission) -> None:
        at_server, successor = news.at.get(left.name), self._registry.admissions.get(left.name)
        if at_server is None or at_server.admission is not left:
            return
        if successor is None:
            at_server.close()
            del news.at[left.name]
            at_server.settle(frozenset())
        else:
            at_server.begin(successor)

    def _closed(self, news: TaskSubscription) -> None:
        self._open.pop(news, None)
