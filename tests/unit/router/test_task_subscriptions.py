from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.router.fakes import FakeSource, RouterRig, tools_snapshot
from tests.unit.router.test_task_ids import MODERN, answer, make_task, result
from tests.unit.sources.mcp.test_task_subscriptions import Server

from trunkline.core.call import Caller
from trunkline.core.errors import SOURCE_DOWN, GatewayError, Problem
from trunkline.core.source import Health, Source, State, TaskWatch
from trunkline.protocol.mcp.versions import Era
from trunkline.router.options import NameRules, SourceOptions
from trunkline.router.registry import SourceSink
from trunkline.router.rewriting import RELATED_TASK, TaskLocation
from trunkline.runtime.server_lifecycle import RetryBackoff
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.sources.mcp.source import McpSource

STRANGER = Caller("you", capabilities=MODERN.capabilities, version=MODERN.version)


class Listener:
    def __init__(self, rig: RouterRig, *task_ids: str, caller: Caller = MODERN) -> None:
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self.settled: list[tuple[frozenset[str], frozenset[str]]] = []
        self.subscription = rig.router.subscribe_tasks(
            caller,
            task_ids,
            lambda source, task_id, params: self.told.append((source, task_id, json.loads(bytes(params)))),
            lambda answered, honoured: self.settled.append((answered, honoured)),
        )

    @property
    def honoured(self) -> frozenset[str]:
        return frozenset().union(*[honoured for _, honoured in self.settled])


def rig_of_two(folder: Path) -> tuple[RouterRig, str, str]:
    """Two servers, and a task of each that both call `1`."""
    rig = RouterRig(folder, in_flight_per_source=10)
    for name in "ab":
        rig.add(name, "t")
    a = make_task(rig)
    call = rig.call("b_t", {"arguments": {}}, caller=MODERN)
    call.finish(result({"resultType": "task", "taskId": "1"}))
    return rig, a, answer(call)["taskId"]


def still_watched(rig: RouterRig) -> int:
    """What would grow in a gateway that runs for months."""
    return len(rig.router._task_subscriptions)


def says(watch: TaskWatch, own_id: str, **task: Any) -> None:
    watch.on_updated(own_id, json.dumps({"taskId": own_id, **task}).encode())


def replaced(rig: RouterRig, successor: Source, *, enabled: bool = True) -> SourceSink:
    """Another server in the place of `a`."""
    options = SourceOptions(
        rules=NameRules(prefix="a"), timeout_s=60.0, grace_s=60.0, fingerprint="new", enabled=enabled
    )
    return rig.router.registry.replace("a", successor, options)


def replaced_by(rig: RouterRig, state: State) -> FakeSource:
    successor = FakeSource()
    sink = replaced(rig, successor, enabled=state != "disabled")
    sink.health(Health(state=state))
    return successor


def promised(rig: RouterRig, a: str) -> tuple[Listener, TaskWatch]:
    """Somebody subscribed to the task of `a`."""
    listener = Listener(rig, a)
    watch = rig.sources["a"].task_watches[-1]
    watch.settle(frozenset({"1"}))
    listener.subscription.keep([a])
    return listener, watch


class FailsFirst(Server):
    """Cannot be reached until it `is_there`."""

    is_there = False

    async def open(self, era: Era | None, capabilities: bytes, count: Callable[[str], None]) -> UpstreamSession:
        if not self.is_there:
            raise GatewayError(Problem(code=SOURCE_DOWN, message="nobody there", source="a"))
        return await super().open(era, capabilities, count)


async def test_tasks_are_watched_at_their_servers_and_told_under_the_ids_of_the_client(tmp_path: Path) -> None:
    rig, a, b = rig_of_two(tmp_path)
    listener = Listener(rig, a, b)
    [at_a], [at_b] = rig.sources["a"].task_watches, rig.sources["b"].task_watches
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


@pytest.mark.law
async def test_ids_of_somebody_else_or_of_nobody_are_watched_nowhere(tmp_path: Path) -> None:
    rig, a, _ = rig_of_two(tmp_path)
    gone = rig.router.task_ids.public_id(STRANGER, TaskLocation("no such server", "1"))
    listener = Listener(rig, a, "1", gone, caller=STRANGER)
    assert listener.settled == [({a, "1", gone}, frozenset())]
    assert not rig.sources["a"].task_watches
    own = Listener(rig, a)
    rig.sources["a"].task_watches[0].settle(frozenset({"1"}))
    says(rig.sources["a"].task_watches[0], "1")
    assert (len(own.told), listener.told) == (1, [])


async def test_an_id_in_another_spelling_is_settled_too(tmp_path: Path) -> None:
    rig, a, _ = rig_of_two(tmp_path)
    listener = Listener(rig, a, f"{a}====")
    rig.sources["a"].task_watches[0].settle(frozenset({"1"}))
    assert frozenset().union(*[answered for answered, _ in listener.settled]) == {a, f"{a}===="}
    assert listener.honoured == {a}


async def test_what_was_not_promised_is_let_go_and_what_is_closed_tells_nothing(tmp_path: Path) -> None:
    rig, a, b = rig_of_two(tmp_path)
    listener = Listener(rig, a, b)
    [at_a], [at_b] = rig.sources["a"].task_watches, rig.sources["b"].task_watches
    at_b.settle(frozenset({"1"}))
    listener.subscription.keep([b])
    assert (at_a.closed, at_b.closed) == (True, False)
    listener.subscription.close()
    listener.subscription.close()
    assert at_b.closed
    says(at_b, "1")
    assert listener.told == []
    assert still_watched(rig) == 0


async def test_a_server_that_is_down_tells_nothing(tmp_path: Path) -> None:
    rig, a, b = rig_of_two(tmp_path)
    rig.health("a", "down")
    listener = Listener(rig, a, b)
    assert not rig.sources["a"].task_watches
    assert listener.settled == [({a}, frozenset())]


async def test_a_server_that_is_replaced_is_watched_anew_and_one_that_is_removed_no_longer(tmp_path: Path) -> None:
    rig, a, b = rig_of_two(tmp_path)
    listener = Listener(rig, a, b)
    [at_a], [at_b] = rig.sources["a"].task_watches, rig.sources["b"].task_watches
    rig.router.registry.remove("b")
    assert at_b.closed
    assert listener.settled == [({b}, frozenset())]
    successor = FakeSource()
    sink = replaced(rig, successor)
    sink.publish(tools_snapshot("a", "t"))
    sink.health(Health(state="ready"))
    assert at_a.closed
    [again] = successor.task_watches
    again.settle(frozenset({"1"}))
    says(again, "1", status="completed")
    assert listener.honoured == {a}
    assert [task_id for _, task_id, _ in listener.told] == [a]


@pytest.mark.parametrize("state", ["down", "auth_required", "disabled"])
async def test_what_was_promised_waits_at_a_successor_that_refuses_until_that_tells(
    tmp_path: Path, state: State
) -> None:
    rig, a, _ = rig_of_two(tmp_path)
    listener, before = promised(rig, a)
    [waiting] = replaced_by(rig, state).task_watches
    assert (before.closed, waiting.closed, waiting.task_ids) == (True, False, {"1"})
    waiting.settle(frozenset({"1"}))
    says(waiting, "1", status="completed")
    assert [task_id for _, task_id, _ in listener.told] == [a]
    assert listener.settled == [({a}, {a})]


@pytest.mark.parametrize("end", ["closed", "let go", "removed"])
async def test_nothing_waits_at_a_successor_that_stays_down_once_nobody_listens_or_it_is_removed(
    tmp_path: Path, end: str
) -> None:
    rig, a, _ = rig_of_two(tmp_path)
    listener, _ = promised(rig, a)
    [waiting] = replaced_by(rig, "down").task_watches
    if end == "removed":
        rig.router.registry.remove("a")
    elif end == "closed":
        listener.subscription.close()
    else:
        listener.subscription.keep([])
    assert waiting.closed
    assert not listener.subscription.at
    listener.subscription.close()
    assert still_watched(rig) == 0


async def test_it_waits_only_at_the_last_of_several_successors(tmp_path: Path) -> None:
    rig, a, _ = rig_of_two(tmp_path)
    listener, _ = promised(rig, a)
    watches = [replaced_by(rig, "down").task_watches for _ in range(3)]
    assert [[watch.closed for watch in at_one] for at_one in watches] == [[True], [True], [False]]
    [last] = replaced_by(rig, "ready").task_watches
    says(last, "1", status="completed")
    assert watches[-1][0].closed
    assert [task_id for _, task_id, _ in listener.told] == [a]


async def test_what_was_never_promised_does_not_wait_at_a_successor_that_refuses(tmp_path: Path) -> None:
    rig, a, _ = rig_of_two(tmp_path)
    listener = Listener(rig, a)
    successor = replaced_by(rig, "down")
    assert listener.settled == [({a}, frozenset())]
    assert not successor.task_watches


@pytest.mark.parametrize("comes_up", [True, False])
async def test_a_source_that_takes_over_unreached_listens_once_it_is_up_and_keeps_nothing_of_a_client_that_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_up: bool
) -> None:
    monkeypatch.setattr(RetryBackoff, "next_delay_s", lambda self: 0.01)
    rig, a, _ = rig_of_two(tmp_path)
    listener, _ = promised(rig, a)
    server = FailsFirst()
    source = McpSource("a", server.open, shared=False, max_sessions=4, session_idle_s=1000.0)
    life = asyncio.get_running_loop().create_task(source.run(replaced(rig, source)))
    try:
        await until(lambda: rig.router.admissions["a"].health.state == "down", "it took over, and is down")
        assert len(source._task_subscriptions) == 1
        if comes_up:
            server.is_there = True
            await until(lambda: server.asked == [["1"]], "it is asked for updates")
            server.tell("1", listen=0)
            assert [told["status"] for _, _, told in listener.told] == ["working"]
        listener.subscription.close()
        assert not len(source._task_subscriptions)
    finally:
        life.cancel()
        await asyncio.wait([life])
