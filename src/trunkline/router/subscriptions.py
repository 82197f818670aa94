"""Clients' subscriptions to resources and tasks, each served by a watch at the source that has the resource or task.

Clients see URIs and task ids of ours, sources their own. If a source is replaced, the watch moves to its successor; if
it is removed, its resource subscriptions end and its tasks are not reported any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from trunkline.core.call import Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import INVALID_PARAMS, SOURCE_DOWN, UNKNOWN_METHOD, UNKNOWN_RESOURCE, Problem
from trunkline.core.source import ResourceWatch, TaskWatch
from trunkline.protocol.jsonrpc import BadMessage, encode, encode_members, members_of, text_member
from trunkline.router.admission import Admission
from trunkline.router.registry import SourceRegistry
from trunkline.router.request_router import PendingCalls, unknown_resource
from trunkline.router.resources import ResourceLocation
from trunkline.router.rewriting import TaskIds, TaskLocation, UriRewriter, map_task_ids
from trunkline.runtime.deadlines import Deadline
from trunkline.runtime.safe_callbacks import call_safely, internal_problem

_RETRY_S: Final = 5.0
_PERMANENT: Final = (INVALID_PARAMS, UNKNOWN_METHOD, UNKNOWN_RESOURCE)
"""Errors after which subscribing again is pointless."""


class ResourceSubscription:
    """One client's subscription to one resource, by the URI that the client uses. Whoever opened it closes it."""

    def __init__(
        self,
        router: ResourceSubscriptionRouter,
        caller: Caller,
        uri: str,
        on_updated: Callable[[Json], None],
        on_settled: Callable[[Outcome], None],
    ) -> None:
        self.caller = caller
        self.uri = uri
        self.closed = False
        self.admission: Admission | None = None
        self.location: ResourceLocation | None = None
        self.timer: Deadline | None = None
        self._router = router
        self._on_updated = on_updated
        self._on_settled = on_settled
        self._settled = False
        self._watch: ResourceWatch | None = None

    def begin(self, admission: Admission, location: ResourceLocation) -> None:
        """Watch the resource at this source, and no longer at another."""
        self._let_go()
        self.admission, self.location = admission, location

        def updated(params: Json) -> None:
            if not self.closed:
                self._on_updated(self._rewritten(params, location))

        on_updated = partial(call_safely, "the update of a resource", updated)
        on_settled = partial(call_safely, "the outcome of a subscription", self.settle)
        self._watch = ResourceWatch(self.caller, location.uri, on_updated, on_settled)
        admission.source.watch_resource(self._watch)

    def _rewritten(self, params: Json, location: ResourceLocation) -> Json:
        """The parameters of an update with the URI that this client uses."""
        try:
            members = members_of(bytes(params), "params")
            uri = text_member(members, "uri")
        except BadMessage:
            return params
        if uri is None:
            return params
        rewriter = self._router.uri_rewriter
        shown = self.uri if uri == location.uri else rewriter.public_uri(self.caller, location.source, uri)
        return params if shown == uri else encode_members({**members, "uri": encode(shown)})

    def settle(self, outcome: Outcome) -> None:
        """Report the first outcome. A subscription that fails is closed; one that is lost later is retried."""
        if self._settled:
            if not isinstance(outcome, Result) and not self.closed:
                self._let_go()
                if isinstance(outcome, Failure) and outcome.problem.code not in _PERMANENT:
                    self._router.lost(self)
                else:
                    self.close()
            return
        self._settled = True
        if not isinstance(outcome, Result):
            self.close()
        self._on_settled(outcome)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._let_go()
            self._router.closed(self)

    def _let_go(self) -> None:
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class ResourceSubscriptionRouter:
    """All resource subscriptions. Finds the source of each, and follows sources that are replaced."""

    def __init__(
        self,
        registry: SourceRegistry,
        uri_rewriter: UriRewriter,
        pending_calls: PendingCalls,
    ) -> None:
        self.uri_rewriter = uri_rewriter
        self._registry = registry
        self._pending_calls = pending_calls
        self._open: dict[ResourceSubscription, None] = {}
        self._unresolved: dict[ResourceSubscription, None] = {}
        registry.on_source_retired.append(self._source_retired)

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, caller: Caller, uri: str, on_updated: Callable[[Json], None], on_settled: Callable[[Outcome], None]
    ) -> ResourceSubscription:
        subscription = ResourceSubscription(self, caller, uri, on_updated, on_settled)
        self._open[subscription] = None
        self._begin(subscription)
        return subscription

    def retry(self) -> None:
        """Resolve again what could not be resolved: a source has changed."""
        if self._unresolved:
            unresolved, self._unresolved = self._unresolved, {}
            for subscription in unresolved:
                if not call_safely("a subscription that waited", self._begin, subscription):
                    call_safely("its failure", subscription.settle, Failure(internal_problem()))

    def _begin(self, subscription: ResourceSubscription) -> None:
        location = self.uri_rewriter.resolve_or_guess(subscription.caller, subscription.uri)
        if location is None:
            if not self._waits(subscription):
                subscription.settle(Failure(unknown_resource(subscription.uri)))
            return
        admission = self._registry.admissions[location.source]
        refusal = admission.refusal()
        if refusal is not None:
            subscription.settle(Failure(refusal))
        else:
            subscription.begin(admission, location)

    def _waits(self, subscription: ResourceSubscription) -> bool:
        """Wait, for as long as a call would, if a source is starting that may have the resource."""
        unpublished = self._pending_calls.unpublished(self._registry.catalog.sources)
        admissions = [self._registry.admissions[source] for source in unpublished]
        starting = [admission for admission in admissions if admission.health.state == "starting"]
        if not starting or self._pending_calls.draining:
            return False
        if subscription.timer is None:
            wait_s = max(admission.options.timeout_s for admission in starting)
            subscription.timer = Deadline(wait_s, partial(self._timed_out, subscription))
        self._unresolved[subscription] = None
        return True

    def _timed_out(self, subscription: ResourceSubscription) -> None:
        if subscription in self._unresolved:
            subscription.settle(Failure(unknown_resource(subscription.uri)))

    def _source_retired(self, admission: Admission) -> None:
        successor = self._registry.admissions.get(admission.name)
        for subscription in [subscription for subscription in self._open if subscription.admission is admission]:
            call_safely("a resource subscription", self._move, subscription, admission.name, successor)

    def _move(self, subscription: ResourceSubscription, name: str, successor: Admission | None) -> None:
        if successor is None or subscription.location is None:
            problem = Problem(code=SOURCE_DOWN, message=f"Server {name} was removed", source=name)
            subscription.settle(Failure(problem))
            subscription.close()
        else:
            subscription.begin(successor, subscription.location)

    def lost(self, subscription: ResourceSubscription) -> None:
        """Try again later: the successor of its source was not up, or the source was lost while subscribing."""
        subscription.admission = None
        subscription.timer = Deadline(_RETRY_S, partial(self._begin_again, subscription))

    def _begin_again(self, subscription: ResourceSubscription) -> None:
        subscription.timer = None
        self._begin(subscription)

    def closed(self, subscription: ResourceSubscription) -> None:
        self._open.pop(subscription, None)
        self._unresolved.pop(subscription, None)


# -- tasks ------------------------------------------------------------------------------------------------------------

OnTaskUpdate = Callable[[str, str, Json], None]
"""Takes the source, the task's id as the client knows it, and the parameters of the notification."""
OnTasksSettled = Callable[[frozenset[str], frozenset[str]], None]
"""Takes the ids whose source has answered, and those of them that it will report on."""


class TaskSubscription:
    """One client's subscription to some of its tasks. Whoever opened it closes it."""

    def __init__(
        self, router: TaskSubscriptionRouter, caller: Caller, on_updated: OnTaskUpdate, on_settled: OnTasksSettled
    ) -> None:
        self.router = router
        self.caller = caller
        self.closed = False
        self.on_updated = on_updated
        self.on_settled = on_settled
        self.at: dict[str, _TasksAtSource] = {}

    def keep(self, task_ids: Iterable[str]) -> None:
        """Drop the tasks that are not among these, as far as no other task of the same source is."""
        kept = frozenset(task_ids)
        for name, part in list(self.at.items()):
            if kept.isdisjoint(part.shown.values()):
                part.close()
                del self.at[name]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.keep(())
            self.router.closed(self)


class _TasksAtSource:
    """The tasks of a subscription at one source. `shown` maps the source's own ids to those of the client."""

    def __init__(self, subscription: TaskSubscription, source: str, shown: dict[str, str]) -> None:
        self.shown = shown
        self.admission: Admission | None = None
        self._subscription = subscription
        self._source = source
        self._watch: TaskWatch | None = None
        self._settled = False

    def begin(self, admission: Admission) -> None:
        """Watch the tasks at this source, and no longer at another. If the source refuses now, the subscription is
        settled without its tasks. One that was settled before is handed to the source all the same: it waits there
        until the source is up."""
        self.close()
        self.admission = admission
        if not self._settled and admission.refusal() is not None:
            self.settle(frozenset())
            return
        on_updated = partial(call_safely, "the update of a task", self._updated)
        on_settled = partial(call_safely, "the outcome of a task subscription", self.settle)
        self._watch = TaskWatch(self._subscription.caller, frozenset(self.shown), on_updated, on_settled)
        admission.source.watch_tasks(self._watch)

    def settle(self, honoured: frozenset[str]) -> None:
        if not self._settled:
            self._settled = True
            shown = frozenset(self.shown.values())
            self._subscription.on_settled(shown, frozenset(self.shown[own] for own in honoured if own in self.shown))

    def _updated(self, own_id: str, params: Json) -> None:
        if self._subscription.closed or own_id not in self.shown:
            return
        caller, source, router = self._subscription.caller, self._source, self._subscription.router

        def id_for_caller(own: str) -> str:
            return self.shown.get(own) or router.task_ids.public_id(caller, TaskLocation(source, own))

        rewritten = map_task_ids(bytes(params), id_for_caller)
        self._subscription.on_updated(
            source, self.shown[own_id], router.uri_rewriter.rewrite(caller, source, rewritten)
        )

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class TaskSubscriptionRouter:
    """All task subscriptions. Splits each by source, and follows sources that are replaced."""

    def __init__(self, registry: SourceRegistry, task_ids: TaskIds, uri_rewriter: UriRewriter) -> None:
        self.task_ids = task_ids
        self.uri_rewriter = uri_rewriter
        self._registry = registry
        self._open: dict[TaskSubscription, None] = {}
        registry.on_source_retired.append(self._source_retired)

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, caller: Caller, task_ids: Iterable[str], on_updated: OnTaskUpdate, on_settled: OnTasksSettled
    ) -> TaskSubscription:
        subscription = TaskSubscription(self, caller, on_updated, on_settled)
        self._open[subscription] = None
        shown, unknown = self._by_source(caller, task_ids)
        for source, ids in shown.items():
            subscription.at[source] = _TasksAtSource(subscription, source, ids)
        if unknown:
            on_settled(frozenset(unknown), frozenset())
        for source, part in list(subscription.at.items()):
            part.begin(self._registry.admissions[source])
        return subscription

    def _by_source(self, caller: Caller, task_ids: Iterable[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
        """The client's ids by source and the source's own id; and the ids that name no task, or one a second time."""
        shown: dict[str, dict[str, str]] = {}
        unknown: list[str] = []
        for task_id in task_ids:
            location = self.task_ids.locate(caller, task_id)
            ids = {} if location is None else shown.get(location.source, {})
            if location is None or location.source not in self._registry.admissions or location.task_id in ids:
                unknown.append(task_id)
            else:
                shown.setdefault(location.source, ids)[location.task_id] = task_id
        return shown, unknown

    def _source_retired(self, admission: Admission) -> None:
        for subscription in list(self._open):
            call_safely("a task subscription", self._move, subscription, admission)

    def _move(self, subscription: TaskSubscription, left: Admission) -> None:
        part, successor = subscription.at.get(left.name), self._registry.admissions.get(left.name)
        if part is None or part.admission is not left:
            return
        if successor is None:
            part.close()
            del subscription.at[left.name]
            part.settle(frozenset())
        else:
            part.begin(successor)

    def closed(self, subscription: TaskSubscription) -> None:
        self._open.pop(subscription, None)
