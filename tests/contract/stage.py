"""Every kind of source with the same server behind it, inside a gateway without frontends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from tests.support.gateway import write_config
from tests.support.pairs import pairs
from tests.support.servers import HttpFaults, StdioFaults, kill
from tests.support.waiting import at_most, until

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.core.call import Call, Caller, Failure, Json, Outcome, Result
from trunkline.core.errors import Problem
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.composition import GatewayRuntime
from trunkline.sources import KINDS, load_kind

# The first loop of uvloop makes a pipe for signals that stays with the process.
uvloop.new_event_loop().close()

NAME = "x"


@dataclass(frozen=True)
class Variant:
    """One way to reach the server."""

    name: str
    transport: str
    era: str = "legacy"
    options: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def modern(self) -> bool:
        return self.era != "legacy"

    def __str__(self) -> str:
        return self.name


VARIANTS = (
    Variant("stdio", "stdio"),
    Variant("stdio 2024-11-05", "stdio", options={"version": "2024-11-05"}),
    Variant("stdio modern", "stdio", "modern"),
    Variant("http", "http"),
    Variant("http with streams", "http", options={"answers": "sse", "version": "2025-11-25"}),
    Variant(
        "http without sessions", "http", options={"faults": ["sessionless", "no_get"]}, keys={"sessions": "shared"}
    ),
    Variant("http modern", "http", "modern"),
    Variant("http modern with streams", "http", "modern", {"answers": "sse"}),
    Variant("old sse", "sse", options={"version": "2024-11-05"}),
    Variant("old sse by name", "sse", options={"version": "2024-11-05"}, keys={"transport": "sse"}),
)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

both_loops = pytest.mark.parametrize("loop", LOOPS)


def over(name: str, values: Sequence[Any]) -> Callable[[pytest.Metafunc], None]:
    """What a module takes as its `pytest_generate_tests`, for its tests with this argument and a `loop`.

    Every test meets every value, and both meet every loop; all three together are for `make test-all`.
    """

    def generate(metafunc: pytest.Metafunc) -> None:
        if not {name, "loop"} <= set(metafunc.fixturenames):
            return
        functions = inspect.getmembers(metafunc.module, inspect.isfunction)
        tests = [
            test for test, function in functions if {name, "loop"} <= inspect.signature(function).parameters.keys()
        ]
        kept = pairs(product(tests, values, LOOPS), lambda case: [str(value) for value in case])
        own = [case[1:] for case in kept if case[0] == metafunc.function.__name__]
        metafunc.parametrize((name, "loop"), [pytest.param(*case, id="-".join(map(str, case))) for case in own])

    return generate


class Stage:
    """A gateway with one source, and the server behind that source."""

    def __init__(self, folder: Path, variant: Variant, **keys: Any) -> None:
        self.variant = variant
        options = {"era": variant.era, **variant.options}
        self.server: StdioFaults | HttpFaults
        if variant.transport == "stdio":
            self.server = StdioFaults(folder, NAME, **options)
        else:
            self.server = HttpFaults(folder, NAME, transport=variant.transport, **options)
        self._keys = {**variant.keys, **keys}
        self._folder = folder
        self.healths: list[Health] = []
        self.gateway: GatewayRuntime

    def open(self) -> None:
        path = write_config(self._folder, self.server.entry(**self._keys))
        kinds = {name: (lambda name=name: load_kind(name).section) for name in KINDS}
        loaded = load_config(ConfigFile.named(path), environ={}, kinds=kinds)
        assert loaded.settings is not None, loaded.problems
        events = Events()
        events.health.append(lambda _, health: self.healths.append(health))
        self.gateway = GatewayRuntime(loaded.settings, events)
        self.gateway.start()

    def start_server(self) -> None:
        if isinstance(self.server, HttpFaults):
            self.server.start()

    def kill_server(self) -> None:
        """The server is gone without a word, and comes back if somebody starts it."""
        if isinstance(self.server, HttpFaults):
            self.server.stop()
        else:
            for pid in self.server.pids():
                kill(pid)

    @property
    def state(self) -> str:
        return self.gateway.router.admissions[NAME].health.state

    @property
    def states(self) -> list[str]:
        return [health.state for health in self.healths]

    @property
    def listing(self) -> bytes:
        return self.gateway.router.catalog.listing

    async def ready(self, times: int = 1) -> None:
        await until(lambda: self.states.count("ready") >= times, f"ready for the {times}. time", 30)

    def start(
        self,
        tool: str,
        arguments: dict[str, Any] | bytes | None = None,
        *,
        session: str | None = "one",
        on_notification: Callable[[str, Json], None] | None = None,
        meta: dict[str, Json] | None = None,
    ) -> Call:
        raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        members = {"name": msgspec.Raw(b'""'), "arguments": msgspec.Raw(raw)}
        caller = Caller("local", session)
        router = self.gateway.router
        return router.call_tool(
            caller,
            f"{NAME}.{tool}",
            members,
            lambda _: None,
            on_notification=on_notification,
            progress=on_notification is not None,
            meta=meta,
        )

    async def call(self, tool: str, arguments: dict[str, Any] | bytes | None = None, **more: Any) -> Outcome:
        call = self.start(tool, arguments, **more)
        await until(lambda: call.done, f"`{tool}` is answered", 30)
        assert call.outcome is not None
        return call.outcome


@contextlib.asynccontextmanager
async def staged(folder: Path, variant: Variant, *, up: bool = True, **keys: Any) -> AsyncIterator[Stage]:
    stage = Stage(folder, variant, **keys)
    if up:
        stage.start_server()
    try:
        stage.open()
        try:
            yield stage
        finally:
            await stage.gateway.close()
            assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()
    finally:
        if isinstance(stage.server, HttpFaults):
            stage.server.stop()


def play(loop: str, scene: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(at_most(60)):
            await scene

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(in_time())


def value(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Result), outcome
    return json.loads(bytes(outcome.raw))


def structured(outcome: Outcome) -> dict[str, Any]:
    return value(outcome)["structuredContent"]


def problem(outcome: Outcome) -> Problem:
    assert isinstance(outcome, Failure), outcome
    return outcome.problem


def received(outcome: Outcome) -> bytes:
    """What the tool `wire` got, as it arrived."""
    return base64.b64decode(value(outcome)["content"][0]["text"])
