"""The gateway of one agent: started with what its step asks for, and good only once all of that is there.

Nothing is dropped silently: a plugin or another source that is down, an operation that is missing or two tools with one
name end the step before its agent is started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from trunkline.agents.providers.provider import ToolServer
from trunkline.agents.runs.step_settings import StepSettings, known_operations
from trunkline.core.call import Caller
from trunkline.core.errors import (
    PROXY_NAME_COLLISION,
    PROXY_UNKNOWN_OPERATION,
    SOURCE_DOWN,
    SOURCE_STARTING,
    GatewayError,
    Problem,
)
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.frontends.stdio.private_socket import CutOff, PrivateDoor
from trunkline.gateway.composition import GatewayRuntime
from trunkline.router.admission import Admission
from trunkline.runtime.deadlines import Within
from trunkline.runtime.stdio_bridge import serve_command
from trunkline.search.answers import offered

_UP: Final = frozenset({"ready", "degraded"})
PATIENCE_S: Final = 20.0
"""For servers that start, before those that still do are named."""
_SPARE_S: Final = 5.0
"""Over what the slowest source may take by its own settings, which then says itself what is wrong."""


class StepGateway:
    """`private` are folders that none of its own tools may look into, and `protected` files that none may change,
    besides those of every gateway."""

    def __init__(
        self,
        wanted: StepSettings,
        events: Events,
        *,
        caller: Caller,
        environ: Mapping[str, str],
        redact: Callable[[str], str],
        private: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
    ) -> None:
        self._wanted = wanted
        self.caller = caller
        self.settings = wanted.settings
        self._events = events
        self._gateway = GatewayRuntime(
            wanted.settings, events, environ=environ, redact=redact, private=private, protected=protected
        )
        self.router = self._gateway.router
        self.discovery = self._gateway.discovery
        self.command_of = self._gateway.shown_commands()
        """What a call has Bash run, where that is to be shown."""
        self._news = asyncio.Event()

    async def start(self, patience_s: float | None = None) -> None:
        """Returns once everything that is wanted is there; raises GatewayError where something is not.

        What is there but not wanted, as in a session, is waited for no longer than `patience_s`; without it, as long as
        its own settings say. What takes longer than most is named."""
        self._events.health.append(self._health_changed)
        self._gateway.start()
        left_s = self._longest_start_s() if patience_s is None else patience_s
        if not await self._settled_within(min(left_s, PATIENCE_S)) and left_s >= PATIENCE_S:
            self._name_what_starts()
            await self._settled_within(left_s - PATIENCE_S)
        self._check()  # whatever is wanted and still starts is said to be missing there

    async def close(self) -> None:
        if self._health_changed in self._events.health:
            self._events.health.remove(self._health_changed)
        await self._gateway.close()

    def tools(self) -> tuple[str, ...]:
        """The names that its agent sees, before the agent's own prefix."""
        return tuple(entry.public_name for entry in offered(self.router.catalog))

    def kind_of(self, source: str) -> str:
        section = self.settings.sources.get(source)
        return "" if section is None else section.kind

    # -- waiting --------------------------------------------------------------------------------------------------

    def _longest_start_s(self) -> float:
        return max((section.start_timeout for section in self.settings.sources.values()), default=0.0) + _SPARE_S

    def starting(self) -> tuple[str, ...]:
        admissions = self.router.registry.servers()
        return tuple(name for name, admission in admissions.items() if admission.health.state == "starting")

    def _name_what_starts(self) -> None:
        for name in self.starting():
            hint = "see what it does at its start; `start_timeout` says how long that may take"
            message = f"Server `{name}` is still starting after {PATIENCE_S:g} s"
            self._events.note("warning", "source_starting", message, source=name, code=SOURCE_STARTING.id, hint=hint)

    async def _settled_within(self, limit_s: float) -> bool:
        """Wait until nothing starts any more, or something that is wanted failed, but not longer than this."""
        try:
            async with Within(limit_s):
                while self._unsettled():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _unsettled(self) -> bool:
        states = {name: admission.health.state for name, admission in self.router.registry.servers().items()}
        failed = any(states[name] not in _UP and states[name] != "starting" for name in self._wanted.needed)
        return not failed and "starting" in states.values()

    def _health_changed(self, source: str, health: Health) -> None:
        self._news.set()

    # -- what must be there ---------------------------------------------------------------------------------------

    def _check(self) -> None:
        problems = [*self._not_up(), *self._missing(), *self._collisions()]
        if problems:
            raise GatewayError(problems[0], tuple(problems[1:]))

    def _not_up(self) -> list[Problem]:
        admissions = self.router.registry.servers()
        down = [name for name in self._wanted.needed if admissions[name].health.state not in _UP]
        return [
            _down("Plugin" if name in self._wanted.operations else "Source", name, admissions[name]) for name in down
        ]

    def _missing(self) -> list[Problem]:
        catalog = self.router.catalog
        there = {(entry.source, entry.name) for entry in catalog.entries()}
        missing: list[Problem] = []
        for source, operations in self._wanted.operations.items():
            snapshot = catalog.snapshot(source)
            if snapshot is None:
                continue  # it is down, which has been said
            known = tuple(tool.name for tool in snapshot.tools)
            lacking = (name for name in operations if (source, name) not in there)
            missing += [_lacks(source, name, known, snapshot.warnings) for name in lacking]
        return missing

    def _collisions(self) -> list[Problem]:
        if not self._wanted.needed:
            return []
        hint = "rename one of the plugins, give a source another `prefix`, or leave one of the tools out"
        return [
            Problem(code=PROXY_NAME_COLLISION, message=problem.message, hint=hint)
            for problem in self.router.catalog.collisions
        ]


def _down(what: str, name: str, admission: Admission) -> Problem:
    health = admission.health
    reason = health.reason or health.last_error or "it is not up after its start timeout"
    message = f"{what} `{name}` is {health.state}: {reason}"
    return Problem(code=SOURCE_DOWN, message=message, source=name, hint=health.hint, stderr_tail=health.stderr_tail)


def _lacks(source: str, name: str, known: tuple[str, ...], warnings: tuple[str, ...]) -> Problem:
    if name in known:
        message = (
            f"Operation `{name}` of plugin `{source}` is denied by the configuration (`tools.allow`, `tools.deny`)"
        )
        return Problem(code=PROXY_UNKNOWN_OPERATION, message=message, source=source, tool=name)
    message = "; ".join((f"Plugin `{source}` has no operation `{name}`", *warnings))
    hint = known_operations(name, known)
    return Problem(code=PROXY_UNKNOWN_OPERATION, message=message, source=source, tool=name, hint=hint)


# The way from an agent to its gateway: a private socket, and the program that the agent starts to reach it.

_SOCKET: Final = "s"
_CONFIG: Final = "serve.json"


class AgentSocket:
    """In `folder`, which is private and stays as long as this does. It is also the witness of what the agent does:
    `listed` says whether it asked for its tools. Texts over `result_chars` would not reach its model whole."""

    def __init__(self, gateway: StepGateway, folder: Path, *, result_chars: int) -> None:
        limits = gateway.settings.gateway.limits
        self._call_s = limits.call_seconds
        self._folder = folder
        self._door = PrivateDoor(
            gateway.router,
            gateway.discovery,
            path=folder / _SOCKET,
            caller=gateway.caller,
            limit_bytes=limits.request_bytes,
            max_calls=limits.in_flight_per_client,
            question_s=limits.server_request_seconds,
            result_chars=result_chars,
        )

    @property
    def listed(self) -> bool:
        return self._door.listed

    @property
    def cut_off(self) -> CutOff:
        """Calls that were under way when the agent's tool server was gone all at once."""
        return self._door.cut_off

    def on_listed(self, then: Callable[[], None]) -> None:
        """Do this once the agent asks for its tools."""
        self._door.on_listed = then

    async def open(self) -> ToolServer:
        """What the agent has to start."""
        await self._door.start()
        config = self._folder / _CONFIG
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode({"socket": str(self._folder / _SOCKET)}))
        command, args = serve_command(config)
        return ToolServer(command=command, args=args, call_s=self._call_s)

    async def close(self) -> None:
        await self._door.close()
