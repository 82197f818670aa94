from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.gateway import write_config
from tests.support.servers import StdioFaults
from tests.support.waiting import at_most, until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.config.settings import Settings
from trunkline.core.call import Call, Caller, Failure, Result
from trunkline.core.errors import DRAINING, SOURCE_DISABLED, SOURCE_DOWN
from trunkline.core.events import Events, LogEvent
from trunkline.core.source import Sink, SourceKind
from trunkline.gateway import source_reconciler
from trunkline.gateway.composition import GatewayRuntime
from trunkline.sources import KINDS, load_kind


def settings_of(folder: Path, *sources: dict[str, Any], **gateway: Any) -> Settings:
    path = write_config(folder, *sources, **gateway)
    kinds = {name: (lambda name=name: load_kind(name).section) for name in KINDS}
    loaded = load_config(ConfigFile.named(path), environ={}, kinds=kinds)
    assert loaded.settings is not None, loaded.problems
    return loaded.settings


@contextlib.asynccontextmanager
async def gateway_with(settings: Settings) -> AsyncIterator[tuple[GatewayRuntime, list[LogEvent]]]:
    events, notes = Events(), []
    events.noted.append(notes.append)
    gateway = GatewayRuntime(settings, events)
    gateway.start()
    try:
        yield gateway, notes
    finally:
        await gateway.close()
        assert len(asyncio.all_tasks()) == 1, "no task is left"


def call(gateway: GatewayRuntime, name: str) -> Call:
    return gateway.router.call_tool(Caller(), name, {}, lambda _: None)


def state(gateway: GatewayRuntime, name: str) -> str:
    return gateway.router.admissions[name].health.state


async def ended(one: Call) -> Any:
    await until(lambda: one.done, "it is answered")
    return one.outcome


async def test_servers_start_beside_each_other_and_one_that_cannot_hurts_no_other(tmp_path: Path) -> None:
    good, bad, off = StdioFaults(tmp_path, "good"), StdioFaults(tmp_path, "bad"), StdioFaults(tmp_path, "off")
    entries = (bad.entry(command="/no/such/program"), good.entry(), off.entry(enabled=False))
    async with gateway_with(settings_of(tmp_path, *entries)) as (gateway, _):
        assert isinstance(await ended(call(gateway, "good_echo")), Result)
        refused = await ended(call(gateway, "bad_echo"))
        assert isinstance(refused, Failure)
        assert refused.problem.code is SOURCE_DOWN
        disabled = await ended(call(gateway, "off_echo"))
        assert isinstance(disabled, Failure)
        assert disabled.problem.code is SOURCE_DISABLED
        assert off.events("start") == []


async def test_a_bug_in_one_source_takes_down_that_source_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        async def run(self, sink: Sink) -> None:
            await asyncio.sleep(0)
            raise ZeroDivisionError("a bug")

        def submit(self, call: Call) -> None:
            raise AssertionError("it is down")

        def forget(self, session: str) -> None: ...

    real = load_kind("mcp_stdio")

    def build(name: str, section: Any, parts: Any) -> Any:
        return Broken() if name == "broken" else real.build(name, section, parts)

    monkeypatch.setattr(source_reconciler, "load_kind", lambda _: SourceKind(section=real.section, build=build))
    good, broken = StdioFaults(tmp_path, "good"), StdioFaults(tmp_path, "broken")
    async with gateway_with(settings_of(tmp_path, broken.entry(), good.entry())) as (gateway, notes):
        assert isinstance(await ended(call(gateway, "good_echo")), Result)
        assert state(gateway, "broken") == "down"
        assert any("ZeroDivisionError: a bug" in note.message for note in notes)


async def test_draining_waits_for_calls_in_flight_and_refuses_new_ones(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with gateway_with(settings_of(tmp_path, server.entry())) as (gateway, _):
        await ended(call(gateway, "s_echo"))
        opened = tmp_path / "opened"
        arguments = {"arguments": msgspec.Raw(msgspec.json.encode({"path": str(opened)}))}
        slow = gateway.router.call_tool(Caller(), "s_gate", arguments, lambda _: None)
        draining = asyncio.ensure_future(gateway.drain(at_most(30)))
        await asyncio.sleep(0)
        late = await ended(call(gateway, "s_echo"))
        assert isinstance(late, Failure)
        assert late.problem.code is DRAINING
        assert not draining.done()
        opened.touch()
        await draining
        assert isinstance(slow.outcome, Result)


async def test_draining_ends_in_time_whatever_is_in_flight(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with gateway_with(settings_of(tmp_path, server.entry())) as (gateway, _):
        hanging = call(gateway, "s_hang")
        await server.wait_for("call", tool="hang")
        await gateway.drain(0.05)
        assert not hanging.done
    assert isinstance(hanging.outcome, Failure)
    assert hanging.outcome.problem.executed == "unknown"


@pytest.mark.slow
async def test_closing_while_everything_starts_leaves_nothing(tmp_path: Path) -> None:
    servers = [StdioFaults(tmp_path, f"s{number}", start_delay=30) for number in range(3)]
    async with gateway_with(settings_of(tmp_path, *(server.entry() for server in servers))) as (gateway, _):
        waiting = [call(gateway, "s0_echo"), call(gateway, "s1.x")]
        await asyncio.sleep(0.1)
    for one in waiting:
        assert one.done, "even a call that waited has an answer"


async def test_a_reload_switches_our_own_tools_on_and_off_and_back_to_their_first_place(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    without = settings_of(tmp_path, server.entry())
    shown = settings_of(tmp_path, server.entry(), meta_tools=True)
    async with gateway_with(without) as (gateway, _):
        assert isinstance(await ended(call(gateway, "s_echo")), Result)
        plain = gateway.router.catalog.listing
        assert gateway.adopt(shown).unchanged == ("s",)
        assert gateway.router.catalog.listing.startswith(b'[{"name":"list_servers"')
        assert isinstance(call(gateway, "list_servers").outcome, Result)
        gateway.adopt(without)
        assert gateway.router.catalog.listing == plain
