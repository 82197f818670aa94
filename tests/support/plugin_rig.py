"""Plugins behind a gateway without frontends: entries for its configuration, and calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.support.gateway import write_config
from tests.support.servers import Records
from tests.support.waiting import at_most, until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.core.call import Call, Caller, Failure, Outcome, Result
from trunkline.core.errors import Problem
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.composition import GatewayRuntime
from trunkline.runtime.children import Children
from trunkline.runtime.source_context import SourceContext, StartSlots
from trunkline.sources import section_kinds

JOBS = str(Path(__file__).with_name("plugin_jobs.py"))
FAULTS = str(Path(__file__).with_name("plugin_faults.py"))


class FaultyPlugin(Records):
    """One entry of `sources:` with the fault plugin behind it."""

    def __init__(self, folder: Path, name: str = "p", **options: Any) -> None:
        super().__init__(folder, name)
        self.name = name
        self.options = {"journal": str(self.journal), **options}

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        args = [FAULTS, json.dumps(self.options)]
        return {self.name: {"kind": "plugin", "command": sys.executable, "args": args, "timeout": at_most(30), **keys}}


def jobs_entry(name: str = "jobs", **keys: Any) -> dict[str, dict[str, Any]]:
    """One entry with the plugin of plain jobs behind it."""
    return {name: {"kind": "plugin", "command": sys.executable, "args": [JOBS], "timeout": at_most(30), **keys}}


def plugin_context(children: Children) -> SourceContext:
    """What one plugin source gets from its gateway, for tests that make the source themselves."""
    return SourceContext(
        children=children,
        environ=os.environ,
        message_bytes=1 << 20,
        sessions_per_source=1,
        session_idle_s=1,
        start_slots=StartSlots(),
        redact=str,
    )


class House:
    """A gateway without frontends."""

    def __init__(self, folder: Path, *entries: dict[str, dict[str, Any]], **gateway: Any) -> None:
        path = write_config(folder, *entries, **gateway)
        loaded = load_config(ConfigFile.named(path), environ={}, kinds=section_kinds())
        assert loaded.settings is not None, loaded.problems
        self.events = Events()
        self.healths: list[tuple[str, Health]] = []
        self.notes: list[str] = []
        self.events.health.append(lambda name, health: self.healths.append((name, health)))
        self.events.noted.append(lambda note: self.notes.append(f"{note.level}: {note.message}"))
        self.counts: dict[str, int] = {}
        self.events.counted.append(self._counted)
        self.gateway = GatewayRuntime(loaded.settings, self.events)

    def _counted(self, counter: str, source: str, amount: int) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + amount

    def health(self, name: str = "p") -> Health:
        return self.gateway.router.admissions[name].health

    async def is_in(self, state: str, name: str = "p") -> Health:
        await until(lambda: self.health(name).state == state, f"{name} is {state}", 30)
        return self.health(name)

    def begin(
        self,
        tool: str,
        arguments: dict[str, Any] | bytes | None = None,
        *,
        source: str = "p",
        reply: Callable[[Call], None] = lambda _: None,
    ) -> Call:
        raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        members = {"name": msgspec.Raw(b'""'), "arguments": msgspec.Raw(raw)}
        return self.gateway.router.call_tool(Caller("local"), f"{source}.{tool}", members, reply)

    async def call(self, tool: str, arguments: dict[str, Any] | bytes | None = None, *, source: str = "p") -> Outcome:
        return await ended(self.begin(tool, arguments, source=source))

    def definitions(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in json.loads(self.gateway.router.catalog.listing)}


async def ended(call: Call) -> Outcome:
    await until(lambda: call.done, "the call is answered", 30)
    assert call.outcome is not None
    return call.outcome


@contextlib.asynccontextmanager
async def housed(folder: Path, *entries: dict[str, dict[str, Any]], **gateway: Any) -> AsyncIterator[House]:
    house = House(folder, *entries, **gateway)
    try:
        house.gateway.start()
        yield house
    finally:
        await house.gateway.close()
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()


def value(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Result), outcome
    return json.loads(bytes(outcome.raw))


def text(outcome: Outcome) -> str:
    return value(outcome)["content"][0]["text"]


def problem(outcome: Outcome) -> Problem:
    assert isinstance(outcome, Failure), outcome
    return outcome.problem
