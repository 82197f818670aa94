"""Asking without a gateway that runs: the servers of the file are started, asked, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from trunkline.app import Gateway
from trunkline.cli.ask.attached import progress_line
from trunkline.cli.ask.desk import Progress, Status
from trunkline.config.settings import Settings
from trunkline.core.call import Call, Caller, Outcome
from trunkline.core.events import Events
from trunkline.router.status import server_statuses, status_json
from trunkline.router.why import why_tool

_CALLER: Final = Caller(client="trunkline-cli")
_LOOK_EVERY_S: Final = 0.05
_TELL_AFTER_S: Final = 1.0


class EmbeddedDesk:
    def __init__(self, gateway: Gateway, progress: Progress) -> None:
        self._gateway = gateway
        self._progress = progress

    async def servers(self) -> list[Status]:
        await self._settled()
        return [status_json(status) for status in server_statuses(self._gateway.router)]

    async def tools(self) -> list[dict[str, Any]]:
        await self._settled()
        return msgspec.json.decode(self._gateway.router.catalog.listing)

    async def why(self, name: str) -> Mapping[str, Any]:
        await self._settled()
        return why_tool(self._gateway.router, name)

    async def call(self, name: str, arguments: bytes, progress: Progress) -> Outcome:
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def reply(call: Call) -> None:
            if call.outcome is not None and not answered.done():
                answered.set_result(call.outcome)

        members = {"arguments": msgspec.Raw(arguments)}
        call = self._gateway.router.call_tool(
            _CALLER, name, members, reply, notice=lambda _, params: progress(progress_line(params))
        )
        try:
            return await answered
        except asyncio.CancelledError:
            call.cancel("interrupted")
            raise

    async def _settled(self) -> None:
        """Until every server is up or has failed; each has its own deadline for that (`start_timeout`)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while waiting := self._starting():
            if loop.time() - began > _TELL_AFTER_S:
                self._progress(f"waiting for {', '.join(waiting)}")
            await asyncio.sleep(_LOOK_EVERY_S)

    def _starting(self) -> list[str]:
        gates = self._gateway.router.roster.servers()
        return [name for name, gate in gates.items() if gate.health.state == "starting"]


@asynccontextmanager
async def embedded_desk(settings: Settings, progress: Progress, only: str) -> AsyncGenerator[EmbeddedDesk, None]:
    gateway = Gateway(_narrowed(settings, only), Events())
    gateway.start()
    try:
        yield EmbeddedDesk(gateway, progress)
    finally:
        await gateway.close()


def _narrowed(settings: Settings, tool: str) -> Settings:
    """Only the servers that may have a tool of this name, where the name tells."""
    fitting = {
        name: section
        for name, section in settings.sources.items()
        if tool.removeprefix("trunkline.").startswith((f"{name}.", f"{name}_", f"{name}:", f"{section.prefix}_"))
    }
    return replace(settings, sources=MappingProxyType(fitting)) if tool and fitting else settings
