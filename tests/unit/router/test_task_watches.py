from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.router.fakes import Desk, FakeSource, offer
from tests.unit.router.test_tasks import MODERN, answer, make_task, result

from trunkline.core.call import Caller
from trunkline.core.source import Health
from trunkline.core.watch import TaskWatch
from trunkline.router.options import NameRules, SourceOptions
from trunkline.router.tasks import RELATED_TASK, TaskPlace

STRANGER = Caller("you", capabilities=MODERN.capabilities, version=MODERN.version)


class Listener:
    def __init__(self, desk: Desk, *task_ids: str, caller: Caller = MODERN) -> None:
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.settled: list[tuple[frozenset[str], frozenset[str]]] = []
        self.news = desk.router.watch_tasks(
            caller,
            task_ids,
            lambda source, task_id, params: self.told.append((source, task_id, json.loads(bytes(params)))),
            lambda answered, honoured: self.settled.append((answered, honoured)),
        )

    @property
    def honoured(self) -> frozenset[str]:
        return frozenset().union(*[honoured for _, honoured in self.settled])


def desk_of_two(folder: Path) -> tuple[Desk, str, str]:
    """Two servers, and a task of each that both call `1`."""
    desk = Desk(folder, in_flight_per_source=10)
    for name in "ab":
        desk.add(name, "t")
    a = make_task(desk)
    call = desk.call("b_t", {"arguments": {}}, caller=MODERN)
    call.finish(result({"resultType": "task", "taskId": "1"}))
    return desk, a, answer(call)["taskId"]


def says(watch: TaskWatch, own_id: str, **task: Any) -> None:
    watch.on_told(own_id, json.dumps({"taskId": own_id, **task}).encode())


async def test_tasks_are_watched_at_their_servers_and_told_under_the_ids_of_the_client(tmp_path: Path) -> None:
    desk, a, b = desk_of_two(tmp_path)
    listener = Listener(desk, a, b)
    [at_a], [at_b] = desk.sources["a"].task_watches, desk.sources["b"].task_watches
    assert at_a.task_ids == at_b.task_ids == {"1"}
    at_a.settle(frozenset({"1", "not asked for"}))
    assert listener.settled == [({a}, {a})]
    at_b.settle(frozenset())
    assert listener.honoured == {a}
    says(at_a, "1", status="working", _meta={RELATED_TASK: {"taskId": "1"}})
    says(at_a, "2", status="working")
    [(source, task_id, told)] = listener.told
    assert (source, task_id) == ("a", a)
    assert told == {"taskId": a, "status": "working", "_meta": {RELATED_TASK: {"taskId": a}}}


async def test_ids_of_somebody_else_or_of_nobody_are_watched_nowhere(tmp_path: Path) -> None:
    desk, a, _ = desk_of_two(tmp_path)
    gone = desk.router.tasks.shown(STRANGER, TaskPlace("no such server", "1"))
    listener = Listener(desk, a, "1", gone, caller=STRANGER)
    assert listener.settled == [({a, "1", gone}, frozenset())]
    assert not desk.sources["a"].task_watches
    own = Listener(desk, a)
    desk.sources["a"].task_watches[0].settle(frozenset({"1"}))
    says(desk.sources["a"].task_watches[0], "1")
    assert (len(own.told), listener.told) == (1, [])


async def test_an_id_in_another_spelling_is_settled_too(tmp_path: Path) -> None:
    desk, a, _ = desk_of_two(tmp_path)
    listener = Listener(desk, a, f"{a}====")
    desk.sources["a"].task_watches[0].settle(frozenset({"1"}))
    assert frozenset().union(*[answered for answered, _ in listener.settled]) == {a, f"{a}===="}
    assert listener.honoured == {a}


async def test_what_was_not_promised_is_let_go_and_what_is_closed_tells_nothing(tmp_path: Path) -> None:
    desk, a, b = desk_of_two(tmp_path)
    listener = Listener(desk, a, b)
    [at_a], [at_b] = desk.sources["a"].task_watches, desk.sources["b"].task_watches
    at_b.settle(frozenset({"1"}))
    listener.news.keep([b])
    assert (at_a.closed, at_b.closed) == (True, False)
    listener.news.close()
    listener.news.close()
    assert at_b.closed
    says(at_b, "1")
    assert listener.told == []
    assert not len(desk.router._task_watches)


async def test_a_server_that_is_down_tells_nothing(tmp_path: Path) -> None:
    desk, a, b = desk_of_two(tmp_path)
    desk.health("a", "down")
    listener = Listener(desk, a, b)
    assert not desk.sources["a"].task_watches
    assert listener.settled == [({a}, frozenset())]


async def test_a_server_that_is_replaced_is_watched_anew_and_one_that_is_removed_no_longer(tmp_path: Path) -> None:
    desk, a, b = desk_of_two(tmp_path)
    listener = Listener(desk, a, b)
    [at_a], [at_b] = desk.sources["a"].task_watches, desk.sources["b"].task_watches
    desk.router.roster.remove("b")
    assert at_b.closed
    assert listener.settled == [({b}, frozenset())]
    successor = FakeSource()
    options = SourceOptions(rules=NameRules(prefix="a"), timeout_s=60.0, grace_s=60.0, fingerprint="new")
    sink = desk.router.roster.replace("a", successor, options)
    sink.publish(offer("a", "t"))
    sink.health(Health(state="ready"))
    assert at_a.closed
    [again] = successor.task_watches
    again.settle(frozenset({"1"}))
    says(again, "1", status="completed")
    assert listener.honoured == {a}
    assert [task_id for _, task_id, _ in listener.told] == [a]
