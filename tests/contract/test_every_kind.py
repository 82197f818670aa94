"""The contract of every kind of source, MCP or not: one suite over the whole table of kinds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contract.kinds.rig import Rig, Use, rig_of
from tests.contract.stage import over, play, problem, value
from tests.support.gateway import write_config
from tests.support.waiting import at_most, until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.core.call import Call, Caller, Outcome, Result
from trunkline.core.errors import DEADLINE, SOURCE_DISABLED, SOURCE_DOWN, SOURCE_LOST, UNKNOWN_TOOL
from trunkline.core.events import Events
from trunkline.gateway.composition import GatewayRuntime
from trunkline.router.status import ServerStatus, server_statuses
from trunkline.sources import KINDS, section_kinds

ODD_TEXTS = ("plain", 'two\nlines\r\nand "quotes" \\ here', "é ✨ \u2028 𝄞", "$(id) `id` ; | & %s {}", "")

pytest_generate_tests = over("kind", list(KINDS))


class Scene:
    """A gateway without frontends, with one source."""

    def __init__(self, rig: Rig, **keys: Any) -> None:
        self.rig = rig
        loaded = load_config(
            ConfigFile.named(write_config(rig.folder, rig.entry(**keys))), environ={}, kinds=section_kinds()
        )
        assert loaded.settings is not None, loaded.problems
        self.gateway = GatewayRuntime(loaded.settings, Events())

    @property
    def router(self) -> Any:
        return self.gateway.router

    @property
    def status(self) -> ServerStatus:
        return next(status for status in server_statuses(self.router) if status.name == self.rig.server)

    @property
    def names(self) -> list[str]:
        return [tool["name"] for tool in json.loads(self.router.catalog.listing)]

    def is_ready(self) -> bool:
        return any(s.name == self.rig.server and s.state == "ready" for s in server_statuses(self.router))

    async def ready(self) -> None:
        await until(self.is_ready, f"{self.rig.server} is ready", 30)

    def begin(self, use: Use, *, session: str | None = None, name: str = "") -> Call:
        tool, arguments = use
        members = {"name": msgspec.Raw(b'""'), "arguments": msgspec.Raw(json.dumps(arguments).encode())}
        caller = Caller("local", session)
        return self.router.call_tool(caller, name or f"{self.rig.server}.{tool}", members, lambda _: None)

    async def call(self, use: Use, **more: Any) -> Outcome:
        return await ended(self.begin(use, **more))


async def ended(call: Call) -> Outcome:
    await until(lambda: call.done, "the call is answered", 30)
    assert call.outcome is not None
    return call.outcome


def text(outcome: Outcome) -> str:
    return value(outcome)["content"][0]["text"]


@contextlib.asynccontextmanager
async def scene_of(rig: Rig, *, up: bool = True, **keys: Any) -> AsyncIterator[Scene]:
    scene = Scene(rig, **keys)
    try:
        scene.gateway.start()
        if up:
            # an app can dial in only once somebody listens
            await asyncio.to_thread(rig.start)
            await scene.ready()
        yield scene
    finally:
        await scene.gateway.close()
        await asyncio.to_thread(rig.close)
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()


def test_its_tools_are_listed_with_what_an_agent_needs_to_call_them(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            tools = json.loads(stage.router.catalog.listing)
            assert {rig.echo("")[0], rig.fail()[0], rig.sleep(0)[0]} <= {
                entry.name for entry in stage.router.catalog.entries()
            }
            for tool in tools:
                assert tool["description"] and tool["inputSchema"]["type"] == "object", tool
            status = stage.status
            assert (status.kind, status.state, status.tools) == (kind, "ready", len(tools))

    play(loop, scene())


def test_texts_come_back_as_they_went_in(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            for odd in ODD_TEXTS:
                assert text(await stage.call(rig.echo(odd))) == rig.heard(odd)
            assert value(await stage.call(rig.fail()))["isError"] is True
            assert problem(await stage.call(("no_such_tool", {}))).code is UNKNOWN_TOOL

    play(loop, scene())


def test_many_calls_at_once_get_each_its_own_answer(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            calls = [stage.begin(rig.echo(f"n{n}"), session=f"s{n % 3}") for n in range(40)]
            assert [text(await ended(call)) for call in calls] == [f"n{n}" for n in range(40)]

    play(loop, scene())


def test_rules_of_the_file_hold(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        echo, fail = rig.echo("hello")[0], rig.fail()[0]
        tools = {"allow": [echo, fail], "rename": {echo: "parrot"}, "deny": [fail]}
        async with scene_of(rig, prefix="pet", tools=tools) as stage:
            name = next(name for name in stage.names if name.endswith("parrot"))
            assert name.startswith("pet_")
            assert text(await stage.call(rig.echo("hello"), name=name)) == "hello"
            assert len(stage.names) == 1
            assert problem(await stage.call(rig.fail())).code is UNKNOWN_TOOL

    play(loop, scene())


def test_a_call_past_its_deadline_is_ended_and_says_so(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        tool = rig.sleep(0)[0]
        allow = {"allow": [tool, "*"]}  # Bash has to be named
        limit = 2.0  # in which whatever runs the tool has to begin; given more, Bash would end its command itself
        async with scene_of(rig, tools={"timeouts": {tool: limit}, **allow}) as stage:
            assert text(await stage.call(rig.echo("warm"))) == "warm"
            late = problem(await stage.call(rig.sleep(60)))
            assert (late.code, late.executed) == (DEADLINE, "unknown")
            assert late.message == f"Tool execution timed out after {limit:g} seconds"
            await until(lambda: rig.told_to_stop() == 1, "it was told to stop")
            assert stage.status.state == "ready"

    play(loop, scene())


def test_a_clock_that_jumps_ends_no_call(tmp_path: Path, kind: str, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig, timeout=at_most(20)) as stage:
            now = time.time
            for hours in (1, -1):
                before = rig.sleeping()
                call = stage.begin(rig.sleep(0.5))
                await until(lambda before=before: rig.sleeping() > before, "it runs")
                monkeypatch.setattr("time.time", lambda hours=hours: now() + hours * 3600)
                assert text(await ended(call)) == "slept"
            assert stage.status.state == "ready"

    play(loop, scene())


def test_a_cancelled_call_is_ended_and_no_other(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            goes_on = stage.begin(rig.sleep(1))
            cancelled = stage.begin(rig.sleep(60))
            await until(lambda: rig.sleeping() == 2, "both run")
            cancelled.cancel("the caller left")
            await until(lambda: rig.told_to_stop() == 1, "it was told to stop")
            assert text(await ended(goes_on)) == "slept"
            assert stage.status.in_flight == 0

    play(loop, scene())


def test_what_dies_fails_its_calls_at_once_and_works_again_once_it_is_back(
    tmp_path: Path, kind: str, loop: str
) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            calls = [stage.begin(rig.sleep(60)) for _ in range(3)]
            await until(lambda: rig.sleeping() == 3, "all run")
            await asyncio.to_thread(rig.kill)
            for call in calls:
                lost = problem(await ended(call))
                assert (lost.code, lost.executed, lost.source) == (SOURCE_LOST, "unknown", rig.server)
            await asyncio.to_thread(rig.start)

            async def answers() -> bool:
                outcome = await stage.call(rig.echo("again"))
                assert isinstance(outcome, Result) or problem(outcome).executed == "no", "nothing is lost any more"
                return isinstance(outcome, Result)

            await until(answers, "it works again", 30)
            assert rig.sleeping() == 3, "what was lost is not tried again"

    play(loop, scene())


def test_what_is_not_there_is_refused_with_its_name_until_it_comes(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig, up=False, **rig.take_away()) as stage:
            refused = problem(await stage.call(rig.echo("early")))
            assert refused.executed == "no"
            assert rig.server in refused.message
            assert refused.code is (SOURCE_DOWN if rig.known_before else UNKNOWN_TOOL)
            await asyncio.to_thread(rig.bring_back)
            await stage.ready()
            assert text(await stage.call(rig.echo("now"))) == "now"

    play(loop, scene())


def test_what_is_switched_off_says_so(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig, up=False, enabled=False) as stage:
            (name,) = rig.entry()
            assert problem(await stage.call(rig.echo("early"), name=f"{name}.echo")).code is SOURCE_DISABLED

    play(loop, scene())


def test_a_source_that_is_taken_out_leaves_nothing(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            call = stage.begin(rig.sleep(1))
            await until(lambda: rig.sleeping() == 1, "it runs")
            stage.gateway.reconciler.apply({})
            assert stage.names == []
            assert text(await ended(call)) == "slept", "what was in flight may end"
            assert problem(await stage.call(rig.echo("late"))).code is UNKNOWN_TOOL
            await until(lambda: len(asyncio.all_tasks()) == 1, "its tasks have ended", 30)

    play(loop, scene())


def test_ending_with_calls_in_flight_answers_everyone(tmp_path: Path, kind: str, loop: str) -> None:
    async def scene() -> None:
        rig = rig_of(kind, tmp_path)
        async with scene_of(rig) as stage:
            calls = [stage.begin(rig.sleep(60), session=session) for session in (None, "one", "two")]
            await until(lambda: rig.sleeping() == 3, "all run")
        for call in calls:
            assert call.done
            assert call.outcome is not None and problem(call.outcome).executed == "unknown"

    play(loop, scene())
