"""One run of an embedded gateway, from its configuration to its end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from trunkline.config.settings import Settings
from trunkline.core.call import Caller
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway import gateway
from trunkline.gateway.library.logs import StandardLog
from trunkline.gateway.library.results import Tool, tool_of
from trunkline.gateway.library.settings import Config, read_config
from trunkline.router.catalog import Catalog
from trunkline.runtime.overdue import Within
from trunkline.search.answers import offered
from trunkline.search.finder import Found
from trunkline.telemetry.redact import Redactor

if TYPE_CHECKING:
    from trunkline.telemetry.tracing import Tracer

_STARTING: Final = "starting"
_SEARCH_S: Final = 30.0


class Running:
    """The servers start as it is made. Raises ConfigurationError, and has started nothing then."""

    def __init__(self, config: Config) -> None:
        settings, warnings = read_config(config)
        events, redact = Events(), Redactor(settings.secrets(), settings.names())
        events.health.append(self._health_changed)
        StandardLog(events, redact).warn(warnings)
        self.loop = asyncio.get_running_loop()
        self.request_bytes = settings.gateway.limits.request_bytes
        self._news = asyncio.Event()
        self._closing = False
        self._searches: set[asyncio.Future[Found]] = set()
        self._read: tuple[Catalog, int, list[Tool]] | None = None
        self._gateway = gateway.Gateway(settings, events, redact=redact)
        self.router = self._gateway.router
        self._tracer = _tracer(settings, events, redact)
        if self._tracer is not None:
            self._tracer.attach(self.router)
        self._gateway.start()

    async def close(self) -> None:
        """To the end, however often whoever waits for it is cancelled: nothing else would end the processes."""
        self._closing = True
        self._news.set()
        for found in self._searches:
            if not found.done():
                found.set_exception(RuntimeError("the gateway was closed while it searched"))
        closing = self.loop.create_task(self._close())
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as error:
                cancelled = error
        closing.result()
        if cancelled is not None:
            raise cancelled

    async def _close(self) -> None:
        await self._gateway.close()
        if self._tracer is not None:
            await self._tracer.close()

    # -- waiting --------------------------------------------------------------------------------------------------

    async def listed(self) -> None:
        """Until every server has said what it offers, or had its time for that."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.router.when_listed(lambda: None if heard.done() else heard.set_result(None))
        await heard

    async def settled(self) -> None:
        """Until no server is starting, or all of it ends."""
        while not self._closing and self._some_start():
            self._news.clear()
            await self._news.wait()

    def _some_start(self) -> bool:
        return any(gate.health.state == _STARTING for gate in self.router.roster.servers().values())

    def _health_changed(self, source: str, health: Health) -> None:
        self._news.set()

    # -- tools ----------------------------------------------------------------------------------------------------

    def tools(self, caller: Caller) -> list[Tool]:
        """Definitions are read once for each change of the list."""
        catalog = self.router.views.of(caller)
        if self._read is None or self._read[:2] != (catalog, catalog.version):
            self._read = (catalog, catalog.version, [tool_of(entry) for entry in offered(catalog)])
        return self._read[2]

    async def search(self, caller: Caller, query: str, limit: int) -> list[Tool]:
        found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._searches.add(found)
        try:
            async with Within(_SEARCH_S):
                find = self._gateway.discovery.find
                find(caller, query, [], lambda hits: None if found.done() else found.set_result(hits))
                return [tool_of(entry) for entry in (await found).entries[: max(limit, 0)]]
        finally:
            self._searches.discard(found)


def _tracer(settings: Settings, events: Events, redact: Redactor) -> Tracer | None:
    """None where nothing is traced; then nothing of it is loaded."""
    gateway = settings.gateway
    if gateway.telemetry.exporter == "none":
        return None
    from trunkline.telemetry.tracing import make_tracer

    folder = settings.path.absolute().parent
    return make_tracer(gateway.telemetry, environ=os.environ, redact=redact, events=events, folder=folder)
