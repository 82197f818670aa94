"""The client for when no gateway runs: it starts the servers of the file, and ends them with the command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from trunkline.cli.client.gateway_client import (
    Budget,
    Match,
    MatchReasons,
    ShowProgress,
    Status,
    input_schema,
    progress_line,
)
from trunkline.cli.terminal import plain, print_error
from trunkline.config.settings import Settings
from trunkline.core.call import Call, Caller, Outcome
from trunkline.core.errors import DEFINITION_CHANGED
from trunkline.core.events import Events, LogEvent
from trunkline.core.names import split_address, without_own_prefix
from trunkline.core.tool import ToolDefinition
from trunkline.gateway.composition import GatewayRuntime
from trunkline.protocol.jsonrpc import members_of, text_member
from trunkline.router.catalog import PREFIXED, ToolEntry, shown_definition
from trunkline.router.status import diagnose_tool, server_statuses, status_json
from trunkline.search.discovery import match_reasons
from trunkline.search.finder import SearchResult
from trunkline.telemetry.redaction import Redactor

_CALLER: Final = Caller(client="trunkline-cli")
_POLL_S: Final = 0.05
_REPORT_AFTER_S: Final = 1.0
_EMBEDDING_S: Final = 20.0
"""How long embedding thousands of tools may take; embeddings are cached for the next time."""
_WELL: Final = ("ready", "degraded")


class LocalClient:
    """The GatewayClient of a gateway started for one command. `settings` are those of the whole file, of whose servers
    the gateway may have started only some."""

    def __init__(self, gateway: GatewayRuntime, settings: Settings, progress: ShowProgress) -> None:
        self._gateway = gateway
        self._settings = settings
        self._progress = progress
        self.shows_changes = False
        """Whether the result itself says which definitions have changed."""

    async def servers(self) -> list[Status]:
        await self._settled()
        self.shows_changes = True
        return [status_json(status) for status in server_statuses(self._gateway.router)]

    async def tools(self) -> list[ToolDefinition]:
        await self._settled()
        definitions = msgspec.json.decode(self._gateway.router.catalog.listing, type=list[msgspec.Raw])
        return [
            ToolDefinition("", text_member(members_of(raw, "tool"), "name") or "", bytes(raw)) for raw in definitions
        ]

    async def find(self, query: str, limit: int) -> list[Match]:
        await self._settled()
        self._progress("embedding the tools")
        discovery = self._gateway.discovery
        await discovery.finder.settle(self._gateway.router.views.of(_CALLER), _EMBEDDING_S)
        answered: asyncio.Future[SearchResult] = asyncio.get_running_loop().create_future()
        discovery.find(_CALLER, query, [], answered.set_result)
        found = await answered
        ranked = list(zip(found.entries, found.hits, strict=True))[:limit]
        return [
            Match(
                ToolDefinition("", entry.public_name, shown_definition(entry)),
                msgspec.convert(match_reasons(found.explain(hit)), MatchReasons),
            )
            for entry, hit in ranked
        ]

    async def budget(self) -> Budget:
        await self._settled()
        return self._gateway.discovery.listing.budget(self._gateway.router.catalog)

    async def schema(self, name: str) -> Mapping[str, Any]:
        entry = await self._entry(name)
        return {} if entry is None else input_schema(entry.tool)

    async def diagnose(self, name: str) -> Mapping[str, Any]:
        await self._settled()
        await self._entry(name)
        return diagnose_tool(self._gateway.router, name)

    async def call(self, name: str, arguments: bytes, progress: ShowProgress) -> Outcome:
        await self._entry(name)
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def reply(call: Call) -> None:
            if call.outcome is not None and not answered.done():
                answered.set_result(call.outcome)

        members = {"arguments": msgspec.Raw(arguments)}
        call = self._gateway.router.call_tool(
            _CALLER,
            name,
            members,
            reply,
            on_notification=lambda _, params: progress(progress_line(params)),
            progress=True,
        )
        try:
            return await answered
        except asyncio.CancelledError:
            call.cancel("interrupted")
            raise

    async def delay_reason(self, name: str) -> str:
        entry = self._gateway.router.catalog.find(name)
        starting = entry is not None and entry.tool.source in self._starting()
        return f"waiting for {entry.tool.source} to start" if entry is not None and starting else ""

    # -- waiting for servers --------------------------------------------------------------------------------------

    async def _entry(self, name: str) -> ToolEntry | None:
        """The tool, as soon as it is known. Servers that were left out are started if only they can have it."""
        router = self._gateway.router
        if router.catalog.find(name) is None:
            await self._settled()
        if router.catalog.find(name) is None:
            servers = router.registry.servers()
            left_out = self._settings.sources.keys() - servers.keys()
            names_server = split_address(without_own_prefix(name)) is not None
            if left_out and not names_server and all(server.health.state in _WELL for server in servers.values()):
                self._gateway.adopt(self._settings)
                await self._settled()
        return router.catalog.find(name)

    async def _settled(self) -> None:
        """Wait until every server is up or has failed; each has a deadline for that (`start_timeout`)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while waiting := self._starting():
            if loop.time() - began > _REPORT_AFTER_S:
                self._progress(f"waiting for {', '.join(waiting)}")
            await asyncio.sleep(_POLL_S)

    def _starting(self) -> list[str]:
        admissions = self._gateway.router.registry.servers()
        return [name for name, admission in admissions.items() if admission.health.state == "starting"]


@asynccontextmanager
async def local_client(settings: Settings, progress: ShowProgress, tool: str) -> AsyncGenerator[LocalClient, None]:
    """Start a gateway with the servers that may have `tool` (all of them if it is empty), and close it at the end."""
    needed = narrowed(settings, tool)
    servers = "1 server" if len(needed.sources) == 1 else f"{len(needed.sources)} servers"
    progress(f"starting {servers} from {plain(str(settings.path))} for this command")
    events = Events()
    changes: list[LogEvent] = []
    events.noted.append(
        lambda event: changes.append(event) if ("code", DEFINITION_CHANGED.id) in event.fields else None
    )
    gateway = GatewayRuntime(needed, events, redact=Redactor(settings.secrets(), settings.names()))
    gateway.start()
    client = LocalClient(gateway, settings, progress)
    try:
        yield client
    finally:
        await gateway.close()
        for change in () if client.shows_changes else changes:  # the new definitions count as known from now on
            print_error(f"{DEFINITION_CHANGED}: {change.message}", str(dict(change.fields)["hint"]), kind="warning")


def narrowed(settings: Settings, tool: str) -> Settings:
    """Keep only the servers that may have a tool of this name, as far as the name tells."""
    bare = without_own_prefix(tool)
    prefixed = settings.gateway.naming == PREFIXED
    named = {name for name in settings.sources if bare.startswith((f"{name}.", f"{name}:"))}
    if not named and prefixed:
        for name, section in settings.sources.items():
            if bare.startswith((f"{name}_", f"{section.prefix or name}_")):
                named.add(name)
    if not named:
        return settings
    # a source without a prefix may have a tool of any name, and the earlier one in the file wins
    unprefixed = {name for name, section in settings.sources.items() if prefixed and not section.prefix}
    chosen = named if split_address(bare) else named | unprefixed
    fitting = {name: section for name, section in settings.sources.items() if name in chosen}
    return replace(settings, sources=MappingProxyType(fitting))
