"""A model of the result cache: in any order of events a result is the caller's own, fresh, and up to date."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.router.fakes import FakeSource, RouterRig
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Cached, Call, Caller, Failure, Result
from trunkline.core.errors import SOURCE_LOST, Problem
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.router.registry import SourceSink

PLAYS = 100
TTL_S = 10.0
CALLERS = [Caller("alice"), Caller("alice", "one"), Caller("alice", "two"), Caller("bob"), Caller("bob", "three")]
READ = ToolDefinition("s", "read", b'{"name":"read","annotations":{"readOnlyHint":true}}')
WRITE = ToolDefinition("s", "write", b'{"name":"write"}')
LOST = Failure(Problem(code=SOURCE_LOST, message="lost", executed="unknown"))
NEVER_RAN = Failure(Problem(code=SOURCE_LOST, message="lost", executed="no"))


class Play:
    """One server whose world has a version; reads tell it, writes and restarts change it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.rig = RouterRig(folder, in_flight_per_source=3, queue_per_source=3, cache_bytes=5000)
        self.version = 0
        self.loop = asyncio.get_running_loop()
        self.running: dict[Call, dict[str, Any] | None] = {}
        self.writes: list[Call] = []
        self.tools: tuple[ToolDefinition, ...] = (READ, WRITE)
        self.restarts = 0
        self.hits = 0
        self.rig.add("s", state=None, cache=CacheRules(tools=("read",), ttl_s=TTL_S))
        self.sink: SourceSink = self.rig.sinks["s"]
        self.settle(self.rig.sources["s"])

    def settle(self, source: FakeSource) -> None:
        source.on_submit = self.submitted
        self.publish()
        self.sink.health(Health(state="ready", restarts=self.restarts))

    def publish(self) -> None:
        self.sink.publish(Snapshot(tools=self.tools, protocol_version="2025-06-18"))

    # What callers do

    def read(self) -> None:
        caller = self.random.choice(CALLERS)
        argument = self.random.randrange(2)
        call = self.rig.call("s_read", {"arguments": {"n": argument}}, caller=caller)
        if type(call.outcome) is Cached:
            self.hits += 1
            self.check_hit(json.loads(call.outcome.raw), caller, argument)

    def check_hit(self, answer: dict[str, Any], caller: Caller, argument: int) -> None:
        assert answer["n"] == argument
        assert answer["version"] == self.version, "a result that the server would not give any more"
        assert answer["at"] + TTL_S > self.loop.time()
        assert not any(not call.done for call in self.writes), "given while something may be changing"
        if answer.get("cacheScope") != "public":
            assert (answer["principal"], answer["session"]) == (caller.principal, caller.session)

    def write(self) -> None:
        self.writes.append(self.rig.call("s_write", caller=self.random.choice(CALLERS)))

    def cancel_read(self) -> None:
        reads = [call for call in self.running if call.tool == "read"]
        if reads:
            self.random.choice(reads).cancel("the play")

    # What the server does

    def submitted(self, call: Call) -> None:
        self.running[call] = None

    def run_one(self) -> None:
        """A call takes effect, or sees what there is to see; its answer comes later."""
        waiting = [call for call, answer in self.running.items() if answer is None]
        if waiting:
            call = self.random.choice(waiting)
            self.version += call.tool == "write"
            self.running[call] = self.says(call)

    def says(self, call: Call) -> dict[str, Any]:
        answer = {"version": self.version, "n": json.loads(bytes(call.params)).get("arguments", {}).get("n")}
        if self.random.random() < 0.3:
            return {**answer, "cacheScope": "public"}
        return {**answer, "principal": call.caller.principal, "session": call.caller.session}

    def answer_one(self) -> None:
        if self.running:
            call = self.random.choice(list(self.running))
            answer = self.running.pop(call)
            if answer is None and self.random.random() < 0.9:
                self.running[call] = None
            elif answer is None:
                call.finish(NEVER_RAN)
            elif self.random.random() < 0.1:
                call.finish(LOST)
            else:
                call.finish(Result(json.dumps({**answer, "at": self.loop.time()}).encode()))

    def restart(self) -> None:
        """It goes down with everything in flight, and what it remembers is gone when it is back."""
        self.restarts += 1
        running, self.running = self.running, {}
        self.sink.health(Health(state="starting", restarts=self.restarts))
        for call, answer in running.items():
            call.finish(NEVER_RAN if answer is None else LOST)
        for _ in range(3):
            self.read()
        self.version += 1
        self.sink.health(Health(state="ready", restarts=self.restarts))

    def change_tools(self) -> None:
        self.version += 1
        self.tools = (READ, WRITE, ToolDefinition("s", f"t{self.version}", b"{}"))
        self.publish()

    def replace(self) -> None:
        """Another server takes over; what is in flight ends on the old one, writes included."""
        source = FakeSource()
        options = self.rig.router.admissions["s"].options
        self.sink = self.rig.router.registry.replace("s", source, options)
        self.version += 1
        self.settle(source)

    def adjust(self) -> None:
        rules = CacheRules(tools=("*",), ttl_s=self.random.choice((TTL_S, TTL_S / 2)))
        options = SourceOptions(rules=NameRules(prefix="s"), timeout_s=60.0, grace_s=60.0, cache=rules)
        self.rig.router.registry.update("s", options)

    # What holds

    def check_size(self) -> None:
        assert self.rig.router.cache.kept_bytes <= 5000

    async def run(self) -> int:
        moves: list[Callable[[], None]] = [self.read] * 20 + [self.run_one] * 16 + [self.answer_one] * 18 + [self.write]
        rare: list[Callable[[], None]] = [self.cancel_read, self.restart, self.change_tools, self.replace, self.adjust]
        for _ in range(300):
            self.random.choice(rare if self.random.random() < 0.02 else moves)()
            self.check_size()
            if self.random.random() < 0.1:
                await asyncio.sleep(self.random.choice((0, 1, 4)))
        for call in list(self.running):
            call.finish(LOST)
        self.check_size()
        self.rig.router.registry.close()
        return self.hits


@pytest.mark.law
def test_a_kept_result_is_what_the_server_would_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plays() -> None:
        hits = [await Play(tmp_path / str(seed), seed).run() for seed in range(PLAYS)]
        assert sum(hits) > 10 * PLAYS, "too little was ever given again to prove anything"

    run_with_clock(monkeypatch, plays())
