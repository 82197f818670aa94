"""The gateway of one agent, which must have everything its step asks for, and the socket through which it is reached.

Nothing is dropped silently: a source that is down, a missing operation, or two tools with one name fail the step before
its agent is started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from trunkline.agents.providers.provider import ToolServer
from trunkline.agents.runs.agent_gateway_settings import AgentGatewaySettings, known_operations
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
from trunkline.frontends.stdio.private_socket import PrivateSocketServer
from trunkline.gateway.composition import GatewayRuntime
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.stdio_bridge import bridge_command
from trunkline.search.finder import server_tools

_UP: Final = frozenset({"ready", "degraded"})
START_S: Final = 20.0
"""After this long, servers that are still starting are named."""
_SPARE_S: Final = 5.0
"""Added to the slowest source's own start timeout, so that it reports itself what is wrong."""


class AgentGateway:
    """A gateway for one step. Besides what holds for every gateway, its built-in tools may not read the folders in
    `private`, nor change the files in `protected`."""

    def __init__(
        self,
        wanted: AgentGatewaySettings,
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
        """The command that a call has Bash run, as it may be shown."""
        self._changed = asyncio.Event()

    async def start(self, at_most_s: float | None = None) -> None:
        """Start, and wait until everything that is wanted is up. Raises GatewayError if something is not.

        Sources are waited for no longer than `at_most_s`, or else as long as their own settings say. Those that take
        unusually long are named.
        """
        self._events.health.append(self._health_changed)
        self._gateway.start()
        sections = self.settings.sources.values()
        slowest_s = max((section.start_timeout for section in sections), default=0.0)
        left_s = slowest_s + _SPARE_S if at_most_s is None else at_most_s
        if not await self._settled_within(min(left_s, START_S)) and left_s >= START_S:
            for name in self.starting():
                message = f"Server `{name}` is still starting after {START_S:g} s"
                fields = {"source": name, "code": SOURCE_STARTING.id}
                hint = "check what it does when it starts; `start_timeout` limits how long that may take"
                self._events.note("warning", "source_starting", message, **fields, hint=hint)
            await self._settled_within(left_s - START_S)
        # what is wanted and still starting is reported as missing
        if problems := [*self._not_up(), *self._missing(), *self._collisions()]:
            raise GatewayError(problems[0], tuple(problems[1:]))

    async def close(self) -> None:
        if self._health_changed in self._events.health:
            self._events.health.remove(self._health_changed)
        await self._gateway.close()

    def tools(self) -> tuple[str, ...]:
        """The names of the tools, without the prefix that the agent adds."""
        return tuple(entry.public_name for entry in server_tools(self.router.catalog))

    # -- waiting --------------------------------------------------------------------------------------------------

    def starting(self) -> tuple[str, ...]:
        admissions = self.router.registry.servers()
        return tuple(name for name, admission in admissions.items() if admission.health.state == "starting")

    async def _settled_within(self, limit_s: float) -> bool:
        """Wait until no source is starting any more, or a wanted one failed; false if that takes too long."""
        try:
            async with TimeLimit(limit_s):
                while self.starting() and not self._has_failed():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _has_failed(self) -> bool:
        servers = self.router.registry.servers()
        return any(servers[name].health.state not in (*_UP, "starting") for name in self._wanted.needed)

    def _health_changed(self, source: str, health: Health) -> None:
        self._changed.set()

    # -- what must be there ---------------------------------------------------------------------------------------

    def _not_up(self) -> Iterator[Problem]:
        for name in self._wanted.needed:
            health = self.router.registry.servers()[name].health
            if health.state not in _UP:
                what = "Plugin" if name in self._wanted.operations else "Source"
                reason = health.reason or health.last_error or "it is not up after its start timeout"
                message, tail = f"{what} `{name}` is {health.state}: {reason}", health.stderr_tail
                yield Problem(code=SOURCE_DOWN, message=message, source=name, hint=health.hint, stderr_tail=tail)

    def _missing(self) -> Iterator[Problem]:
        catalog = self.router.catalog
        there = {(entry.source, entry.name) for entry in catalog.entries()}
        for source, operations in self._wanted.operations.items():
            snapshot = catalog.snapshot(source)
            if snapshot is None:
                continue  # it is down, which is reported already
            known = tuple(tool.name for tool in snapshot.tools)
            for name in operations:
                if (source, name) in there:
                    continue
                denied = "is denied by the configuration (`tools.allow`, `tools.deny`)"
                message, hint = f"Operation `{name}` of plugin `{source}` {denied}", ""
                if name not in known:
                    message = "; ".join((f"Plugin `{source}` has no operation `{name}`", *snapshot.warnings))
                    hint = known_operations(name, known)
                yield Problem(code=PROXY_UNKNOWN_OPERATION, message=message, source=source, tool=name, hint=hint)

    def _collisions(self) -> Iterator[Problem]:
        hint = "rename one of the plugins, give a source another `prefix`, or leave one of the tools out"
        for problem in self.router.catalog.collisions if self._wanted.needed else ():
            yield Problem(code=PROXY_NAME_COLLISION, message=problem.message, hint=hint)


_SOCKET: Final = "s"
_CONFIG: Final = "serve.json"


class AgentSocket(PrivateSocketServer):
    """A private socket in `folder` through which an agent's tool server reaches the gateway. `listed` says whether the
    agent has asked for its tools. Results longer than `result_chars` are cut, as the agent would cut them."""

    def __init__(self, gateway: AgentGateway, folder: Path, *, result_chars: int) -> None:
        limits = gateway.settings.gateway.limits
        self._call_s = limits.call_seconds
        self._folder = folder
        super().__init__(
            gateway.router,
            gateway.discovery,
            path=folder / _SOCKET,
            caller=gateway.caller,
            limit_bytes=limits.request_bytes,
            max_calls=limits.in_flight_per_client,
            server_request_timeout_s=limits.server_request_seconds,
            result_chars=result_chars,
        )

    async def open(self) -> ToolServer:
        """Listen; returns the server that the agent has to start."""
        await self.start()
        config = self._folder / _CONFIG
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode({"socket": str(self._folder / _SOCKET)}))
        command, args = bridge_command(config)
        return ToolServer(command=command, args=args, call_s=self._call_s)
