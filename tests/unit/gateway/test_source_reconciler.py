from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.searching import make_source_context
from tests.support.waiting import at_most, until
from tests.unit.router.fakes import FakeSource, RouterRig, problem_of

from trunkline.config.sources import UnreadySource
from trunkline.core.errors import SOURCE_DISABLED, SOURCE_DOWN
from trunkline.core.events import LogEvent
from trunkline.core.source import Health, Sink, SourceKind
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.gateway import source_reconciler
from trunkline.gateway.source_reconciler import SourceReconciler
from trunkline.runtime.children import Children
from trunkline.sources.sections import McpHttpSection


class Ship(FakeSource):
    """Ready at once; it takes a few turns of the loop to clear up, and being ended twice it would not."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.ends = False
        self.cleared_up = False

    async def run(self, sink: Sink) -> None:
        sink.publish(Snapshot(tools=(ToolDefinition(self.name, "a", b'{"name":"a"}'),)))
        sink.health(Health(state="ready"))
        try:
            await asyncio.Event().wait()
        finally:
            self.ends = True
            for _ in range(10):
                await asyncio.sleep(0)
            self.cleared_up = True


class ReconcilerRig:
    """A reconciler whose sources are made here, by whatever `build` is at the time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.router_rig = RouterRig(folder)
        self.ships: list[Ship] = []
        self.notes: list[LogEvent] = []
        self.build: Callable[[str], Ship] = Ship
        self.router_rig.events.noted.append(self.notes.append)
        kind = SourceKind(section=McpHttpSection, build=self._build)
        monkeypatch.setattr(source_reconciler, "load_kind", lambda _: kind)
        self.reconciler = SourceReconciler(
            self.router_rig.router.registry, make_source_context(Children(), ""), self.router_rig.events
        )

    def _build(self, name: str, section: Any, parts: Any) -> Ship:
        ship = self.build(name)
        self.ships.append(ship)
        return ship

    def apply(self, **urls: str) -> source_reconciler.SourceChanges:
        return self.reconciler.apply({name: McpHttpSection(url=url, prefix=name) for name, url in urls.items()})

    async def states(self, **states: str) -> None:
        admissions = self.router_rig.router.admissions
        await until(
            lambda: {name: admission.health.state for name, admission in admissions.items()} == states,
            f"they are {states}",
        )


def sinks(name: str) -> Ship:
    raise RuntimeError("no wood")


async def test_a_source_that_cannot_be_built_is_down_and_all_others_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = ReconcilerRig(tmp_path, monkeypatch)
    rig.apply(one="1", two="2", three="3")
    await rig.states(one="ready", two="ready", three="ready")
    rig.build = sinks
    assert rig.apply(one="1", two="other", four="4") == source_reconciler.SourceChanges(
        added=("four",), replaced=("two",), removed=("three",), unchanged=("one",)
    )
    await rig.states(one="ready", two="down", four="down")
    assert "no wood" in rig.router_rig.router.admissions["four"].health.reason
    assert problem_of(rig.router_rig.call("four.a")).code is SOURCE_DOWN
    assert [note.event for note in rig.notes] == ["internal", "internal"]
    rig.build = Ship
    rig.reconciler.reconnect("four")
    await rig.states(one="ready", two="down", four="ready")
    assert rig.apply().removed == ("one", "two", "four")
    await rig.reconciler.close()


class Mutinous(Ship):
    """Takes the end of something that it waited for to be its own."""

    async def run(self, sink: Sink) -> None:
        raise asyncio.CancelledError


async def test_a_source_that_ends_itself_is_down_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ReconcilerRig(tmp_path, monkeypatch)
    rig.build = Mutinous
    rig.apply(one="1")
    await rig.states(one="down")
    assert "CancelledError" in rig.router_rig.router.admissions["one"].health.reason
    await rig.reconciler.close()


async def test_a_source_that_lacks_something_is_down_until_it_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = ReconcilerRig(tmp_path, monkeypatch)
    lacking = UnreadySource(prefix="one", of_kind="mcp_http", obstacles=("no wood", "no nails"))
    well = McpHttpSection(url="2", prefix="two")
    rig.reconciler.apply({"one": lacking, "two": well, "off": lacking.replace(enabled=False)})
    await rig.states(one="down", two="ready", off="disabled")
    admission = rig.router_rig.router.admissions["one"]
    assert (admission.health.reason, admission.options.kind) == ("no wood; no nails", "mcp_http")
    problem = problem_of(rig.router_rig.call("one.a"))
    assert problem.code is SOURCE_DOWN and "no wood" in problem.message
    assert problem_of(rig.router_rig.call("off.a")).code is SOURCE_DISABLED
    built = McpHttpSection(url="1", prefix="one")
    assert rig.reconciler.apply({"one": built, "two": well}).replaced == ("one",)
    await rig.states(one="ready", two="ready")
    assert rig.reconciler.apply({"one": lacking, "two": well}).replaced == ("one",)
    await rig.states(one="down", two="ready")
    assert rig.reconciler.apply({"one": lacking, "two": well}).unchanged == ("one", "two")
    await rig.reconciler.close()


@pytest.mark.parametrize("drain_s", [3600.0, 0.0])
async def test_sources_that_are_leaving_clear_up_when_everything_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drain_s: float
) -> None:
    monkeypatch.setattr(source_reconciler, "DRAIN_S", drain_s)
    rig = ReconcilerRig(tmp_path, monkeypatch)
    rig.apply(one="1", two="2")
    await rig.states(one="ready", two="ready")
    held = rig.router_rig.call("one_a")
    rig.apply(two="other")
    async with asyncio.timeout(at_most(10)):
        while not (rig.ships[1].ends and rig.ships[0].ends == (drain_s == 0)):
            await asyncio.sleep(0)
    await rig.reconciler.close()
    assert [ship.cleared_up for ship in rig.ships] == [True, True, True]
    assert len(asyncio.all_tasks()) == 1
    held.cancel("over")


class Impatient(Ship):
    """Waits for a while, and then again."""

    async def run(self, sink: Sink) -> None:
        sink.health(Health(state="ready"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3600) as self.while_:
                await asyncio.Event().wait()
        await super().run(sink)


async def test_a_source_that_is_ended_while_its_own_timeout_is_about_to_be_noticed_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = ReconcilerRig(tmp_path, monkeypatch)
    ship = Impatient("one")
    rig.build = lambda _: ship
    rig.apply(one="1")
    await rig.states(one="ready")
    ship.while_.reschedule(asyncio.get_running_loop().time() - 1)
    await asyncio.sleep(0)  # the timeout has struck, and the source has not yet woken up
    await rig.reconciler.close()
    assert len(asyncio.all_tasks()) == 1
