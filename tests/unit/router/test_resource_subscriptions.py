from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.router.fakes import FakeSource, RouterRig, full_snapshot
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Caller, Failure, Outcome, RemoteError, Result
from trunkline.core.errors import SOURCE_DOWN, UNKNOWN_RESOURCE, Problem
from trunkline.router.request_router import unknown_resource
from trunkline.router.subscriptions import ResourceSubscription

HOLDS = Result(b"{}")


class Listener:
    def __init__(self, rig: RouterRig, uri: str, caller: Caller | None = None) -> None:
        self.updated: list[str] = []
        self.settled: list[Outcome] = []
        self.handle: ResourceSubscription = rig.router.subscribe(
            caller or Caller(), uri, lambda params: self.updated.append(json.loads(params)["uri"]), self.settled.append
        )

    @property
    def problem(self):
        [outcome] = self.settled
        assert isinstance(outcome, Failure)
        return outcome.problem


def two_servers(folder: Path) -> RouterRig:
    rig = RouterRig(folder)
    for name in "ab":
        rig.serve(name, resources=["x://1"])
    return rig


def still_watched(rig: RouterRig) -> int:
    """What would grow in a gateway that runs for months."""
    return len(rig.router._resource_subscriptions)


def says(source: FakeSource, uri: str) -> None:
    source.watches[-1].on_updated(json.dumps({"uri": uri}).encode())


async def test_a_resource_is_watched_at_its_server_under_the_uri_the_client_uses(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    listeners = {uri: Listener(rig, uri) for uri in ("x://1", "trunkline://b/x://1")}
    for name, listener in zip("ab", listeners.values(), strict=True):
        [watch] = rig.sources[name].watches
        assert watch.uri == "x://1"
        watch.settle(HOLDS)
        says(rig.sources[name], "x://1")
        assert listener.settled == [HOLDS]
    assert [listener.updated for listener in listeners.values()] == [["x://1"], ["trunkline://b/x://1"]]


async def test_a_part_of_a_watched_resource_is_told_by_a_uri_that_can_be_read(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.serve("a", resources=["x://1", "x://1/part"])
    listener = Listener(rig, "trunkline://b/x://1")
    says(rig.sources["b"], "x://1/part")
    says(rig.sources["b"], "x://1/other")
    assert listener.updated == ["trunkline://b/x://1/part", "x://1/other"]
    assert rig.router.uri_rewriter.resolve(Caller(), "x://1/other") == ("b", "x://1/other")


async def test_a_watch_that_is_closed_hears_nothing_more(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    listener = Listener(rig, "x://1")
    [watch] = rig.sources["a"].watches
    listener.handle.close()
    listener.handle.close()
    assert watch.closed
    says(rig.sources["a"], "x://1")
    assert listener.updated == []
    assert still_watched(rig) == 0


async def test_a_watch_that_its_server_refuses_is_over(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    listener = Listener(rig, "x://1")
    refusal = RemoteError(b'{"code":-32601,"message":"no"}')
    rig.sources["a"].watches[0].settle(refusal)
    assert listener.settled == [refusal]
    assert listener.handle.closed
    assert still_watched(rig) == 0


async def test_a_resource_that_nobody_has_cannot_be_watched(tmp_path: Path) -> None:
    listener = Listener(two_servers(tmp_path), "y://1")
    assert listener.problem.code is UNKNOWN_RESOURCE
    assert listener.handle.closed


async def test_a_server_that_is_down_says_so(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    rig.health("a", "down", "it fell over")
    assert Listener(rig, "x://1").problem.code is SOURCE_DOWN


async def test_a_server_that_is_replaced_is_watched_anew(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    listener = Listener(rig, "trunkline://b/x://1")
    old, new = rig.sources["b"], FakeSource()
    old.watches[0].settle(HOLDS)
    sink = rig.router.registry.replace("b", new, rig.router.admissions["b"].options)
    sink.publish(full_snapshot("b", resources=["x://1"]))
    assert not new.watches
    rig.sinks["b"] = sink
    rig.health("b", "ready")
    assert old.watches[0].closed
    [watch] = new.watches
    watch.settle(HOLDS)
    says(new, "x://1")
    assert listener.updated == ["trunkline://b/x://1"]
    assert listener.settled == [HOLDS]
    listener.handle.close()
    assert watch.closed


def test_a_watch_that_its_new_server_cannot_keep_yet_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        rig = two_servers(tmp_path)
        listener = Listener(rig, "x://1")
        [watch] = rig.sources["a"].watches
        watch.settle(HOLDS)
        rig.health("a", "down")
        watch.settle(Failure(Problem(code=SOURCE_DOWN, message="it was stopped")))
        await asyncio.sleep(20)
        assert not listener.handle.closed
        rig.health("a", "ready")
        await asyncio.sleep(20)
        [_, again] = rig.sources["a"].watches
        again.settle(HOLDS)
        says(rig.sources["a"], "x://1")
        assert listener.updated == ["x://1"]
        assert listener.settled == [HOLDS]
        again.settle(Failure(Problem(code=SOURCE_DOWN, message="it was stopped")))
        listener.handle.close()
        await asyncio.sleep(20)
        assert len(rig.sources["a"].watches) == 2

    run_with_clock(monkeypatch, main())


async def test_a_watch_that_its_server_ends_for_good_is_over(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    listeners = [Listener(rig, "x://1"), Listener(rig, "x://1")]
    for watch in rig.sources["a"].watches:
        watch.settle(HOLDS)
    refusals = (RemoteError(b'{"code":-32602,"message":"no"}'), Failure(unknown_resource("x://1")))
    for watch, refusal in zip(rig.sources["a"].watches, refusals, strict=True):
        watch.settle(refusal)
    assert all(listener.handle.closed for listener in listeners)
    assert [listener.settled for listener in listeners] == [[HOLDS], [HOLDS]]
    assert still_watched(rig) == 0


async def test_a_server_that_is_removed_ends_what_was_watched_there(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    held, waiting = Listener(rig, "x://1"), Listener(rig, "x://1")
    rig.sources["a"].watches[0].settle(HOLDS)
    rig.router.registry.remove("a")
    assert held.settled == [HOLDS]
    assert waiting.problem.code is SOURCE_DOWN
    assert held.handle.closed
    assert waiting.handle.closed
    assert all(watch.closed for watch in rig.sources["a"].watches)


async def test_a_watch_waits_for_a_server_that_is_still_starting(tmp_path: Path) -> None:
    rig = RouterRig(tmp_path)
    rig.add("a", state="starting")
    listener = Listener(rig, "x://1")
    assert not listener.settled
    rig.serve("a", resources=["x://1"])
    assert [watch.uri for watch in rig.sources["a"].watches] == ["x://1"]


def test_a_watch_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        rig = RouterRig(tmp_path)
        rig.add("a", state="starting")
        listener, closed = Listener(rig, "x://1"), Listener(rig, "x://1")
        closed.handle.close()
        await asyncio.sleep(61)
        assert listener.problem.code is UNKNOWN_RESOURCE
        assert not closed.settled

    run_with_clock(monkeypatch, main())


async def test_a_notification_without_a_uri_passes_as_it_is(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    heard: list[bytes] = []
    rig.router.subscribe(Caller(), "x://1", lambda params: heard.append(bytes(params)), lambda _: None)
    for params in (b'{"a":1}', b'{"uri":5}', b"[]"):
        rig.sources["a"].watches[-1].on_updated(params)
    assert heard == [b'{"a":1}', b'{"uri":5}', b"[]"]


async def test_notifications_of_a_client_go_to_all_servers(tmp_path: Path) -> None:
    rig = two_servers(tmp_path)
    caller = Caller(session="s")
    rig.router.notify(caller, "notifications/roots/list_changed", b"{}")
    for source in rig.sources.values():
        assert source.told == [(caller, "notifications/roots/list_changed", b"{}")]
