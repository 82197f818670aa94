from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import OK, FakeSource, RouterRig, problem_of, tools_snapshot
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Caller, Result
from trunkline.core.errors import SOURCE_DOWN, UNKNOWN_TOOL
from trunkline.core.source import Health
from trunkline.router.admission import Admission
from trunkline.router.options import NameRules, SourceOptions
from trunkline.router.registry import SWAP_S, SourceSink


class ReplacingRig(RouterRig):
    """A router rig whose sources can be replaced, and the admissions of those that were retired."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.left: list[Admission] = []
        self.router.registry.on_source_retired.append(self.left.append)

    def replace(self, name: str, **options: Any) -> tuple[FakeSource, SourceSink]:
        defaults: dict[str, Any] = {"rules": NameRules(prefix=name), "timeout_s": 60.0, "grace_s": 60.0}
        source = FakeSource()
        return source, self.router.registry.replace(name, source, SourceOptions(**{**defaults, **options}))

    def names(self) -> list[str]:
        return [tool["name"] for tool in json.loads(self.router.catalog.listing)]


async def rig_with(tmp_path: Path, *tools: str) -> tuple[ReplacingRig, FakeSource]:
    rig = ReplacingRig(tmp_path)
    return rig, rig.add("s", *(tools or ("a",)))


async def test_calls_go_to_the_old_source_until_the_new_one_was_heard_of(tmp_path: Path) -> None:
    rig, old = await rig_with(tmp_path)
    new, sink = rig.replace("s")
    first = rig.call("s_a")
    assert old.held == [first] and not rig.left
    sink.publish(tools_snapshot("s", "a", "b"))
    assert rig.names() == ["s_a"], "what it offers is not shown before it serves"
    sink.health(Health(state="ready"))
    assert rig.names() == ["s_a", "s_b"]
    second = rig.call("s_b")
    assert new.held == [second]
    first.finish(OK)
    assert rig.replies == [first]
    assert rig.left[0].in_flight == 0


async def test_calls_queued_for_the_old_source_move_to_the_new_one(tmp_path: Path) -> None:
    rig, old = await rig_with(tmp_path)
    flying = [rig.call("s_a"), rig.call("s_a")]
    waiting = rig.call("s_a")
    assert old.held == flying
    new, sink = rig.replace("s")
    sink.publish(tools_snapshot("s", "a"))
    sink.health(Health(state="ready"))
    assert new.held == [waiting] and not waiting.done
    assert rig.router.in_flight == 3, "those that still end on the old one count too"
    for call in (*flying, waiting):
        call.finish(OK)
    assert rig.router.in_flight == 0


@pytest.mark.parametrize("state", ["down", "auth_required"])
async def test_a_successor_that_fails_takes_over_with_its_reason(tmp_path: Path, state: Any) -> None:
    rig, _ = await rig_with(tmp_path)
    _, sink = rig.replace("s")
    sink.health(Health(state=state, reason="no such file"))
    assert len(rig.left) == 1 and rig.names() == []
    assert "no such file" in problem_of(rig.call("s_a")).message


@pytest.mark.parametrize("state", ["down", "starting", "disabled"])
async def test_a_source_that_does_not_serve_is_replaced_at_once(tmp_path: Path, state: Any) -> None:
    rig, _ = await rig_with(tmp_path)
    rig.health("s", state)
    _, sink = rig.replace("s")
    assert [admission is sink.admission for admission in rig.router.admissions.values()] == [True]


async def test_a_successor_that_is_switched_off_takes_over_at_once(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    rig.replace("s", enabled=False)
    assert rig.router.admissions["s"].health.state == "disabled"
    assert len(rig.left) == 1


async def test_a_second_successor_ousts_the_first_before_it_served(tmp_path: Path) -> None:
    rig, old = await rig_with(tmp_path)
    _, first = rig.replace("s")
    _, second = rig.replace("s")
    assert rig.left == [first.admission]
    first.health(Health(state="ready"))
    assert rig.router.admissions["s"].source is old, "one that was dropped cannot come back"
    second.publish(tools_snapshot("s", "z"))
    second.health(Health(state="ready"))
    assert rig.names() == ["s_z"]
    assert len(rig.left) == 2


async def test_what_a_retired_source_still_says_changes_nothing(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    _, sink = rig.replace("s")
    sink.publish(tools_snapshot("s", "b"))
    sink.health(Health(state="ready"))
    old = rig.sinks["s"]
    old.publish(tools_snapshot("s", "stale"))
    old.health(Health(state="down", reason="stopped"))
    old.publish_for("session", tools_snapshot("s", "stale"))
    assert rig.names() == ["s_b"]
    assert rig.router.admissions["s"].health.state == "ready"
    assert rig.router.views.of(Caller(session="session")).find("s_stale") is None


async def test_a_client_whose_own_tools_go_with_the_old_source_is_told(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    rig.sinks["s"].publish_for("session", tools_snapshot("s", "a", "own"))
    changes: list[bool] = []
    rig.router.registry.on_list_changed.append(lambda: changes.append(True))
    _, sink = rig.replace("s")
    sink.publish(tools_snapshot("s", "a"))
    assert not changes
    sink.health(Health(state="ready"))
    assert changes, "for everybody else nothing changed"
    assert rig.router.views.of(Caller(session="session")).find("s_own") is None


async def test_whoever_counts_hears_of_a_source_that_was_removed(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    removed: list[str] = []
    rig.events.removed.append(removed.append)
    _, sink = rig.replace("s")
    sink.health(Health(state="ready"))
    assert not removed
    rig.router.registry.remove("s")
    assert removed == ["s"]


async def test_a_removed_source_refuses_those_that_wait_and_lets_the_rest_end(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    flying, _, waiting = rig.call("s_a"), rig.call("s_a"), rig.call("s_a")
    rig.router.registry.remove("s")
    assert problem_of(waiting).code is SOURCE_DOWN
    assert not flying.done
    flying.finish(OK)
    assert isinstance(flying.outcome, Result)
    assert problem_of(rig.call("s_a")).code is UNKNOWN_TOOL
    assert rig.names() == []


async def test_removing_a_source_drops_its_successor_too(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    _, sink = rig.replace("s")
    rig.router.registry.remove("s")
    assert len(rig.left) == 2
    sink.health(Health(state="ready"))
    assert "s" not in rig.router.admissions


async def test_other_rules_apply_to_the_next_call(tmp_path: Path) -> None:
    rig, source = await rig_with(tmp_path, "a", "b")
    rules = NameRules(prefix="t", deny=("b",))
    rig.router.registry.update("s", SourceOptions(rules=rules, timeout_s=5.0, grace_s=1.0))
    assert rig.names() == ["t_a"]
    call = rig.call("t_a")
    assert source.held == [call] and call.timeout_s == 5.0
    call.finish(OK)


async def test_other_rules_for_a_source_that_is_being_replaced_are_its_successors(tmp_path: Path) -> None:
    rig, _ = await rig_with(tmp_path)
    _, sink = rig.replace("s")
    rules = NameRules(prefix="t")
    rig.router.registry.update("s", SourceOptions(rules=rules, timeout_s=5.0, grace_s=1.0))
    sink.publish(tools_snapshot("s", "a"))
    sink.health(Health(state="ready"))
    assert rig.names() == ["t_a"]


async def test_the_order_of_the_file_is_the_order_of_the_list_and_decides_who_keeps_a_name(tmp_path: Path) -> None:
    rig = ReplacingRig(tmp_path, naming="original")
    rig.add("one", "same", "x")
    rig.add("two", "same", "y")
    assert rig.names() == ["same", "x", "y"]
    rig.router.registry.reorder(["two", "one"])
    assert rig.names() == ["same", "y", "x"]
    entry = rig.router.catalog.find("same")
    assert entry is not None and entry.tool.source == "two"
    assert list(rig.router.registry.servers()) == ["two", "one"]


def test_a_silent_successor_takes_over_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        rig, _ = await rig_with(tmp_path)
        _, sink = rig.replace("s")
        await asyncio.sleep(SWAP_S - 1)
        assert not rig.left
        await asyncio.sleep(2)
        assert rig.router.admissions["s"] is sink.admission
        rig.router.registry.close()

    run_with_clock(monkeypatch, scene())
