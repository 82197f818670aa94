"""A model of the router: in any order of events every call ends exactly once, and the admission's counts are right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.unit.router.fakes import OK, RouterRig
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Call, Failure, RemoteError
from trunkline.core.errors import SOURCE_LOST, Problem
from trunkline.core.source import State

PLAYS = 100
MAX_IN_FLIGHT, MAX_QUEUE, CALL_S = 2, 3, 120.0
STATES: tuple[State, ...] = ("starting", "ready", "ready", "ready", "degraded", "down", "auth_required")
NAMES = ("a_t", "a.u", "a__new", "b_t", "b:u", "b_new", "t", "c_t", "c.x", "d_t", "nobody_t", "trunkline.a_t")
ENDS = (OK, RemoteError(b'{"code":1,"message":"x"}'), Failure(Problem(code=SOURCE_LOST, message="lost")))


class Play:
    """Random moves of callers, sources and time, and the rules that hold after each of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.rig = RouterRig(folder, in_flight_per_source=MAX_IN_FLIGHT, queue_per_source=MAX_QUEUE, call_s=CALL_S)
        self.calls: list[Call] = []
        self.replied: list[Call] = []
        self.after_drain = False
        for name, tools in (("a", ("t", "u")), ("b", ("t", "u")), ("c", ())):
            source = self.rig.add(name, *tools, state=None, timeout_s=self.random.choice((5.0, 30.0)))
            source.on_submit = self.submitted
        self.rig.add("d", "t", state=None, enabled=False)
        self.held: list[Call] = []

    # What can happen

    def submitted(self, call: Call) -> None:
        """A source may answer at once, or later, or never."""
        assert not call.done
        if self.random.random() < 0.3:
            call.finish(self.random.choice(ENDS))
        else:
            self.held.append(call)

    def call(self) -> None:
        on_notification = (lambda method, params: None) if self.random.random() < 0.3 else None
        self.calls.append(
            self.rig.call(
                self.random.choice(NAMES), {"arguments": {}}, reply=self.reply, on_notification=on_notification
            )
        )

    def reply(self, call: Call) -> None:
        self.replied.append(call)
        if self.random.random() < 0.1 and len(self.calls) < 300:
            self.random.choice((self.call, self.cancel, self.finish))()

    def finish(self) -> None:
        if self.held:
            self.held.pop(self.random.randrange(len(self.held))).finish(self.random.choice(ENDS))

    def finish_late(self) -> None:
        """An answer for something that may be over."""
        if self.calls:
            call = self.random.choice(self.calls)
            if call.admitted or call.done:
                call.finish(self.random.choice(ENDS))

    def cancel(self) -> None:
        if self.calls:
            self.random.choice(self.calls).cancel("the play")

    def progress(self) -> None:
        for call in self.held:
            if call.on_notification is not None and self.random.random() < 0.5:
                call.notify("notifications/progress", b"{}")

    def health(self) -> None:
        self.rig.health(self.random.choice("abc"), self.random.choice(STATES), "the play")

    def publish(self) -> None:
        self.rig.publish(self.random.choice("abc"), *self.random.sample(("t", "u", "new", "x"), 2))

    def drain(self) -> None:
        if self.random.random() < 0.05:
            self.after_drain = True
            self.rig.router.drain()

    # What holds

    def check(self) -> None:
        assert len(set(map(id, self.replied))) == len(self.replied), "a call was answered twice"
        answered = set(map(id, self.replied))
        for call in self.calls:
            assert call.done == (id(call) in answered)
        for name, admission in self.rig.router.admissions.items():
            in_flight = [call for call in self.calls if call.admitted and call.source == name]
            assert all(not call.done for call in in_flight)
            assert admission.in_flight == len(in_flight) <= MAX_IN_FLIGHT
            assert len(admission.queue) <= MAX_QUEUE
            assert all(not call.done and not call.admitted for call in admission.queue)
            refusing = admission.draining or admission.health.state in ("down", "disabled", "auth_required")
            assert not (refusing and admission.queue), f"{name} lets calls wait for nothing"
            opened = admission.health.state in ("ready", "degraded") and not admission.draining
            assert not (opened and admission.queue and admission.in_flight < MAX_IN_FLIGHT), (
                f"{name} has room and a queue"
            )
        held = set(map(id, self.held))
        for call in self.calls:
            assert call.done or id(call) in held or not call.admitted
            assert call.done or call.admitted or not self.after_drain, "a draining gateway lets a call wait"

    async def run(self) -> None:
        moves: list[Callable[[], None]] = [self.call] * 6 + [self.finish] * 4
        moves += [self.finish_late, self.cancel, self.progress, self.health, self.health, self.publish, self.drain]
        for _ in range(150):
            self.random.choice(moves)()
            self.check()
            if self.random.random() < 0.15:
                await asyncio.sleep(self.random.choice((0, 0.5, 4, 20)))
                self.check()
        await asyncio.sleep(CALL_S + 61)
        self.check()
        assert all(call.done for call in self.calls), "a call has no answer although every deadline is past"
        assert len(self.rig.ended) == len(self.calls)
        assert self.rig.router.in_flight == 0
        self.rig.router.registry.close()


@pytest.mark.law
def test_every_call_is_answered_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plays() -> None:
        for seed in range(PLAYS):
            await Play(tmp_path / str(seed), seed).run()

    run_with_clock(monkeypatch, plays())
