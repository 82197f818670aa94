"""A gateway without frontends and with one source for apps, inside the test's own process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.support.app_peer import AppPeer
from tests.support.gateway import write_config
from tests.support.ports import free_port
from tests.support.waiting import until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.core.call import Call, Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import Problem
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.composition import GatewayRuntime
from trunkline.sources import section_kinds

HOST = "desktop"


class AppStage:
    """`healths`, `notes` and `counts` are what was told, counted and logged, each with the source's name."""

    def __init__(
        self, folder: Path, *others: dict[str, Any], gateway: dict[str, Any] | None = None, **keys: Any
    ) -> None:
        self.port = free_port()
        entry = {HOST: {"kind": "app", "listen": f"127.0.0.1:{self.port}", **keys}}
        loaded = load_config(
            ConfigFile.named(write_config(folder, entry, *others, **(gateway or {}))), environ={}, kinds=section_kinds()
        )
        assert loaded.settings is not None, loaded.problems
        self.settings = loaded.settings
        self.healths: list[tuple[str, Health]] = []
        self.notes: list[str] = []
        self.counts: dict[tuple[str, str], int] = {}
        events = Events()
        events.health.append(lambda name, health: self.healths.append((name, health)))
        events.noted.append(lambda note: self.notes.append(note.message))
        events.counted.append(self._count)
        self.gateway = GatewayRuntime(loaded.settings, events)

    def _count(self, counter: str, source: str, amount: int) -> None:
        self.counts[source, counter] = self.counts.get((source, counter), 0) + amount

    @property
    def router(self) -> Any:
        return self.gateway.router

    @property
    def names(self) -> list[str]:
        return [tool["name"] for tool in json.loads(self.router.catalog.listing)]

    def health(self, name: str = HOST) -> Health:
        return self.router.admissions[name].health

    async def becomes(self, name: str, state: str) -> Health:
        await until(lambda: name in self.router.admissions and self.health(name).state == state, f"{name} is {state}")
        return self.health(name)

    async def counted(self, counter: str, source: str = HOST, at_least: int = 1) -> int:
        await until(lambda: self.counts.get((source, counter), 0) >= at_least, f"{source}: {counter} ≥ {at_least}")
        return self.counts[source, counter]

    def begin(
        self,
        name: str,
        arguments: dict[str, Any] | bytes | None = None,
        on_notification: Callable[[str, Json], None] | None = None,
    ) -> Call:
        raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        members = {"name": msgspec.Raw(b'""'), "arguments": msgspec.Raw(raw)}
        return self.router.call_tool(
            Caller("local", None),
            name,
            members,
            lambda _: None,
            on_notification=on_notification,
            progress=on_notification is not None,
        )

    async def call(self, name: str, arguments: dict[str, Any] | bytes | None = None) -> Outcome:
        return await ended(self.begin(name, arguments))

    @contextlib.asynccontextmanager
    async def app(self, name: str, *tools: Any, echo: bool = True, **more: Any) -> AsyncIterator[AppPeer]:
        """An app that is registered, and answers every call with its parameters unless told otherwise."""
        async with await AppPeer.dial(self.port) as peer:
            word = await peer.register(name, tools or ("echo",), **more)
            assert word["type"] == "registered", word
            if echo:
                peer.serve()
            yield peer


@contextlib.asynccontextmanager
async def app_stage(folder: Path, *others: dict[str, Any], **keys: Any) -> AsyncIterator[AppStage]:
    stage = AppStage(folder, *others, **keys)
    stage.gateway.start()
    try:
        await stage.becomes(HOST, "ready")
        yield stage
    finally:
        await stage.gateway.close()


async def ended(call: Call) -> Outcome:
    await until(lambda: call.done, "the call is answered", 30)
    assert call.outcome is not None
    return call.outcome


def value(outcome: Outcome | None) -> dict[str, Any]:
    assert isinstance(outcome, Result), outcome
    return json.loads(bytes(outcome.raw))


def problem(outcome: Outcome | None) -> Problem:
    assert isinstance(outcome, Failure), outcome
    return outcome.problem
