"""Clients of `trunkline stdio` that join a running gateway."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.answers import Answer
from tests.support.client import CLIENT_INFO, META, MODERN, call_params
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.stdio_client import StdioClient
from tests.support.waiting import START_WAIT_S

UNREACHABLE = (503, "TL207", "no")
LOST_GATEWAY = (503, "TL207", "unknown")


class AttachedClient(StdioClient):
    """Its program's stderr is a log of its own, apart from the gateway's."""

    def noted(self, event: str) -> list[dict[str, Any]]:
        """The lines of one kind that the relay wrote."""
        lines = (json.loads(line) for line in self.log.splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == event]

    def pause(self) -> None:
        """Read nothing, until `resume`."""
        self._output.pause_reading()

    def resume(self) -> None:
        self._output.resume_reading()

    async def modern_request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        """A request of 2026-07-28, which describes itself."""
        params = dict(params or {})
        params["_meta"] = {**modern_meta(), **params.get("_meta", {})}
        return await self.request(method, params, id=id)

    async def modern_call(self, tool: str, arguments: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        return await self.modern_request("tools/call", call_params(tool, arguments, None), id=id)


def modern_meta() -> dict[str, Any]:
    return {META + "protocolVersion": MODERN, META + "clientCapabilities": {}, META + "clientInfo": CLIENT_INFO}


def attached(folder: Path, gateway: Gateway | str, *arguments: str, name: str = "relay") -> AttachedClient:
    """A client that joins this gateway, or whatever is at this URL."""
    url = gateway if isinstance(gateway, str) else f"http://127.0.0.1:{gateway.port}/mcp"
    return client_of([TRUNKLINE, "stdio", "--url", url, *arguments], folder, name)


def client_of(command: list[str], folder: Path, name: str = "relay") -> AttachedClient:
    return AttachedClient(command, folder / f"{name}.log")


@contextlib.asynccontextmanager
async def joined(
    folder: Path, server: StdioFaults | HttpFaults, *, in_flight: int = 256, sessions: str = "per_client"
) -> AsyncIterator[AttachedClient]:
    """A client, open, of a gateway with this one server."""
    limits = {"in_flight_per_client": in_flight}
    with Gateway(folder, server.entry(sessions=sessions), limits=limits, start_wait=START_WAIT_S) as gateway:
        async with attached(folder, gateway) as client:
            await client.open()
            yield client
