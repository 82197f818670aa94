"""News of tasks: each is listened for at the server that has it, and told under the id that its client knows.

A server that is replaced is listened to anew in its successor, once that is up; of one that is removed nothing more is
heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from trunkline.core.call import Caller, Json
from trunkline.core.watch import TaskWatch
from trunkline.router.gate import Gate
from trunkline.router.links import Links
from trunkline.router.roster import Roster
from trunkline.router.tasks import TaskPlace, Tasks, map_task_ids
from trunkline.runtime.contained import contained

Told = Callable[[str, str, Json], None]
"""Gets the server, the task's id as the client knows it, and how the task is."""
Settled = Callable[[frozenset[str], frozenset[str]], None]
"""Gets ids whose server has answered, and those of them that it will tell of."""


class TaskNews:
    """One client's wish to hear of some of its tasks. Whoever opened it closes it."""

    def __init__(
        self, caller: Caller, on_told: Told, on_settled: Settled, on_closed: Callable[[TaskNews], None]
    ) -> None:
        self.caller = caller
        self.closed = False
        self.on_told = on_told
        self.on_settled = on_settled
        self.at: dict[str, _AtServer] = {}
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


class _AtServer:
    """The part of it at one server. `shown` has the client's id for each of the server's own."""

    def __init__(self, news: TaskNews, source: str, shown: dict[str, str], tasks: Tasks, links: Links) -> None:
        self.shown = shown
        self.gate: Gate | None = None
        self._news = news
        self._source = source
        self._tasks = tasks
        self._links = links
        self._watch: TaskWatch | None = None
        self._settled = False

    def begin(self, gate: Gate) -> None:
        """Of a server that refuses now nothing is promised. What was promised before is left with it all the same: it
        waits there until the server is up, the client has enough, or yet another server takes over."""
        self.close()
        self.gate = gate
        if not self._settled and gate.refusal() is not None:
            self.settle(frozenset())
            return
        told = partial(contained, "news of a task", self._told)
        settled = partial(contained, "what is told of tasks", self.settle)
        self._watch = TaskWatch(self._news.caller, frozenset(self.shown), told, settled)
        gate.source.watch_tasks(self._watch)

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
            return self.shown.get(own) or self._tasks.shown(caller, TaskPlace(source, own))

        known = map_task_ids(bytes(params), id_for_caller)
        self._news.on_told(source, self.shown[own_id], self._links.learn(caller, source, known))

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class TaskWatches:
    def __init__(self, roster: Roster, tasks: Tasks, links: Links) -> None:
        self._roster = roster
        self._tasks = tasks
        self._links = links
        self._open: dict[TaskNews, None] = {}
        roster.on_left.append(self._source_left)

    def __len__(self) -> int:
        return len(self._open)

    def open(self, caller: Caller, task_ids: Iterable[str], on_told: Told, on_settled: Settled) -> TaskNews:
        news = TaskNews(caller, on_told, on_settled, self._closed)
        self._open[news] = None
        shown, unknown = self._by_source(caller, task_ids)
        for source, ids in shown.items():
            news.at[source] = _AtServer(news, source, ids, self._tasks, self._links)
        if unknown:
            on_settled(frozenset(unknown), frozenset())
        for source, at_server in list(news.at.items()):
            at_server.begin(self._roster.gates[source])
        return news

    def _by_source(self, caller: Caller, task_ids: Iterable[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
        """For each server its own ids and what the client calls them; and the ids that name no task, or one twice."""
        shown: dict[str, dict[str, str]] = {}
        unknown: list[str] = []
        for task_id in task_ids:
            place = self._tasks.place(caller, task_id)
            ids = {} if place is None else shown.get(place.source, {})
            if place is None or place.source not in self._roster.gates or place.task_id in ids:
                unknown.append(task_id)
            else:
                shown.setdefault(place.source, ids)[place.task_id] = task_id
        return shown, unknown

    def _source_left(self, gate: Gate) -> None:
        for news in list(self._open):
            contained("tasks that are watched", self._move, news, gate)

    def _move(self, news: TaskNews, left: Gate) -> None:
        at_server, successor = news.at.get(left.name), self._roster.gates.get(left.name)
        if at_server is None or at_server.gate is not left:
            return
        if successor is None:
            at_server.close()
            del news.at[left.name]
            at_server.settle(frozenset())
        else:
            at_server.begin(successor)

    def _closed(self, news: TaskNews) -> None:
        self._open.pop(news, None)
