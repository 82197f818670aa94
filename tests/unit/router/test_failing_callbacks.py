"""A callback that fails is reported, and the others are still called."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.bugs import broken, reported_bugs
from tests.unit.router.fakes import OK, FakeSource, RouterRig, problem_of, tools_snapshot

from trunkline.core.call import Caller, Failure, Outcome, Result
from trunkline.core.errors import INTERNAL
from trunkline.core.events import LogEvent
from trunkline.core.source import Health
from trunkline.router.rewriting import TaskLocation


async def test_a_waiter_for_lists_that_fails_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    rig.add("s", state="starting")
    listed: list[str] = []
    for then in (broken, lambda: listed.append("second"), broken, lambda: listed.append("fourth")):
        rig.router.when_published(then)
    watched: list[Outcome] = []
    rig.router.subscribe(Caller(), "x://1", lambda params: None, watched.append)
    call = rig.call("s_t")
    rig.serve("s", tools=["t"], resources=["x://1"])
    assert listed == ["second", "fourth"]
    assert rig.sources["s"].held == [call], "nor calls that wait"
    assert [watch.uri for watch in rig.sources["s"].watches] == ["x://1"], "nor what is watched"
    assert len(bugs) == 2


async def test_a_call_that_waits_and_fails_is_answered_and_the_others_are_routed(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    source = rig.add("s", state="starting")
    bad, good = rig.call("s_t"), rig.call("s_t")
    rig.router._pending_calls.calls[bad] = broken
    rig.publish("s", "t")
    rig.health("s", "ready")
    assert source.held == [good]
    assert problem_of(bad).code is INTERNAL
    good.finish(OK)
    assert rig.ended == [bad, good]
    assert len(bugs) == 1


async def test_a_call_that_its_source_cannot_take_is_answered_and_those_behind_it_have_their_turn(
    tmp_path: Path,
) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path, in_flight_per_source=1, queue_per_source=3)
    source = rig.add("s", "t")
    first, bad, good, last = (rig.call("s_t") for _ in range(4))
    submit = source.on_submit
    source.on_submit = lambda call: broken() if call is bad else submit(call)
    first.finish(OK)
    assert rig.replies == [bad, first], "whoever ended has its answer although the next one failed"
    assert problem_of(bad).code is INTERNAL
    assert source.held == [first, good], "no other event is needed for those behind it"
    good.finish(OK)
    last.finish(OK)
    assert rig.ended == [bad, first, good, last]
    assert rig.router.in_flight == 0
    assert len(bugs) == 1


async def test_a_call_that_its_source_cannot_take_at_once_holds_no_place(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path, in_flight_per_source=1)
    rig.add("s", "t").on_submit = broken
    assert [problem_of(rig.call("s_t")).code for _ in range(3)] == [INTERNAL] * 3
    assert rig.router.in_flight == 0
    assert len(bugs) == 3


async def test_a_watch_that_cannot_begin_is_answered_and_the_others_begin(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    source = rig.add("s", state="starting")
    settled: list[list[Outcome]] = [[], []]
    bad, _ = (rig.router.subscribe(Caller(), "x://1", lambda params: None, each.append) for each in settled)
    bad.begin = broken
    rig.serve("s", resources=["x://1"])
    assert len(source.watches) == 1
    [failure] = settled[0]
    assert isinstance(failure, Failure)
    assert failure.problem.code is INTERNAL
    assert len(bugs) == 1


@pytest.mark.parametrize("fails", ["its answer", "its news"])
async def test_a_client_that_fails_costs_no_other_client_its_notifications(tmp_path: Path, fails: str) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    source = rig.serve("s", resources=["x://1"])
    settled: list[Outcome] = []
    notifications: list[object] = []
    on_settled, on_updated = (broken, notifications.append) if fails == "its answer" else (settled.append, broken)
    rig.router.subscribe(Caller(), "x://1", on_updated, on_settled)
    rig.router.subscribe(Caller(), "x://1", notifications.append, settled.append)
    for watch in source.watches:  # as whoever hears of it for both of them does
        watch.settle(Result(b"{}"))
        watch.on_updated(b"{}")
    assert len(settled) + len(notifications) == 3
    assert len(bugs) == 1


async def test_a_watch_that_fails_to_move_leaves_none_behind(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    rig.serve("s", resources=["x://1"])
    bad, _ = (rig.router.subscribe(Caller(), "x://1", lambda params: None, lambda outcome: None) for _ in range(2))
    bad.begin = broken
    successor = FakeSource()
    rig.router.registry.replace("s", successor, rig.router.admissions["s"].options).health(Health(state="ready"))
    assert [watch.uri for watch in successor.watches] == ["x://1"]
    assert len(bugs) == 1


async def test_tasks_of_one_client_that_fail_cost_no_other_client_its_notifications(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    source = rig.add("s", "t")
    heard: list[object] = []
    callers = [Caller(session=name) for name in "ab"]
    for caller, on_updated in zip(callers, (broken, lambda *said: heard.append(said)), strict=True):
        shown = rig.router.task_ids.public_id(caller, TaskLocation("s", "1"))
        rig.router.subscribe_tasks(caller, [shown], on_updated, lambda ids, honoured: None)
    for watch in source.task_watches:
        watch.on_updated("1", b'{"taskId":"1"}')
    assert len(heard) == len(bugs) == 1


async def test_a_listener_of_the_registry_that_fails_stops_no_other(tmp_path: Path) -> None:
    bugs = reported_bugs()
    rig = RouterRig(tmp_path)
    registry = rig.router.registry
    heard: list[str] = []
    for listeners, name in (
        (registry.on_source_changed, "source"),
        (registry.on_list_changed, "list"),
        (registry.on_source_retired, "left"),
        (registry.on_client_list_changed, "client"),
    ):
        listeners.insert(0, broken)
        listeners.append(lambda *_, name=name: heard.append(name))
    rig.add("s", "t")
    rig.sinks["s"].publish_for("session", tools_snapshot("s", "t", "u"))
    sources = [rig.add(name, "t") for name in "ab"]
    sources[0].forget = broken
    registry.forget("session")
    assert sources[1].forgotten == ["session"]
    registry.remove("a")
    assert set(heard) == {"source", "list", "left", "client"}
    assert bugs


async def test_whoever_listens_to_events_and_fails_steers_nothing(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    events = rig.events
    notes: list[LogEvent] = []
    counted: list[str] = []
    for listeners in (events.call_done, events.health, events.removed, events.counted, events.noted):
        listeners.insert(0, broken)
    events.noted.append(notes.append)
    events.counted.append(lambda counter, source, amount: counted.append(counter))
    rig.add("s", "t").on_submit = lambda call: call.finish(OK) and None
    call = rig.call("s_t")
    assert rig.replies == rig.ended == [call]
    events.count("x")
    events.note("info", "x", "something")
    rig.router.registry.remove("s")
    assert counted == ["x"]
    assert [note.event for note in notes if note.event == "x"] == ["x"]
    assert any(note.event == "internal" and "a bug" in note.message for note in notes)
