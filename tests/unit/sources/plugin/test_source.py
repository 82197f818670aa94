"""The life of a plugin as a source: signs of life, restarts, and what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.plugin_rig import FAULTS, FaultyPlugin, House, housed, plugin_context
from tests.support.sink_ledger import Ledger
from tests.support.waiting import at_most, until

from trunkline.core.errors import SOURCE_DOWN
from trunkline.runtime.children import Children
from trunkline.sources.plugin import PluginSection
from trunkline.sources.plugin.source import PluginSource


@contextlib.asynccontextmanager
async def living(plugin: FaultyPlugin, probe_every_s: float) -> AsyncIterator[Ledger]:
    children = Children()
    context = plugin_context(children)
    args = (FAULTS, json.dumps(plugin.options))
    section = PluginSection(command=sys.executable, args=args, start_timeout=at_most(20))
    ledger = Ledger()
    source: Any = PluginSource("p", section, context, probe_every_s=probe_every_s)
    life = asyncio.get_running_loop().create_task(source.run(ledger))
    try:
        yield ledger
    finally:
        life.cancel()
        await asyncio.wait([life])
        await children.close()


async def test_it_is_asked_for_signs_of_life_by_the_name_plugin(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with living(plugin, 0.05) as ledger:
        await plugin.wait_for("health", 3, service="plugin")
        assert ledger.states == ["ready"]


async def test_without_a_health_service_any_answer_is_a_sign_of_life(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path, missing=["grpc.health.v1.Health"])
    async with living(plugin, 0.05) as ledger:
        await plugin.wait_for("info", 4)
        assert ledger.states == ["ready"]


async def test_one_that_says_it_does_not_serve_is_started_again(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path, health=2)
    async with living(plugin, 0.05) as ledger:
        await plugin.wait_for("start", 2)
        assert ledger.states[:3] == ["ready", "degraded", "starting"]
        assert "not serving" in ledger.healths[1].reason
        assert "3 probes in a row failed" in ledger.healths[2].reason


async def test_without_grpcio_it_is_down_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        health = await house.is_in("down")
        assert "grpcio" in health.reason
        assert health.hint == "pip install 'trunkline[plugins]'"
        refused: Any = await house.call("echo")
        assert refused.problem.executed == "no"
        monkeypatch.undo()
        await house.is_in("ready")


async def test_calls_that_wait_are_refused_when_it_is_stopped(tmp_path: Path) -> None:
    house = House(tmp_path, FaultyPlugin(tmp_path, handshake="").entry())
    house.gateway.start()
    call = house.begin("echo")
    await house.gateway.close()
    await until(lambda: call.done, "it is answered")
    outcome: Any = call.outcome
    assert outcome.problem.executed == "no"
    assert outcome.problem.code.jsonrpc == SOURCE_DOWN.jsonrpc
