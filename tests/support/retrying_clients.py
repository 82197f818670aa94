"""Clients that call the same tool again as soon as they were refused, one for each way in over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.support.client import CLIENT_INFO, MODERN, ModernClient, call_params, encode
from tests.support.http_wire import Reply, Wire, request_bytes

_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_BATCHES: Final = "2025-03-26"


class Retrier:
    """One request at a time, over one connection."""

    def __init__(self, port: int, tool: str) -> None:
        self._port = port
        params = call_params(tool, {}, None)
        self._call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        self._wire: Wire | None = None

    @property
    def wire(self) -> Wire:
        assert self._wire is not None
        return self._wire

    async def begin(self) -> None:
        self._wire = await Wire.connect(self._port)

    async def ask(self) -> bytes:
        """The answer to one call."""
        raise NotImplementedError

    async def abort(self) -> None:
        await self.wire.abort()

    async def _initialize(self, path: str) -> Reply:
        params = {"protocolVersion": _BATCHES, "capabilities": {}, "clientInfo": CLIENT_INFO}
        return await self._post(path, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})

    async def _post(self, path: str, message: object, **headers: str) -> Reply:
        return await self.wire.ask(request_bytes("POST", path, _HEADERS | headers, json.dumps(message).encode()))


class PlainRetrier(Retrier):
    async def begin(self) -> None:
        await super().begin()
        client = ModernClient(self._port)
        tool = str(self._call["params"]["name"])
        named = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        self._request = client.post_bytes(encode(client.message("tools/call", self._call["params"])), named)

    async def ask(self) -> bytes:
        return (await self.wire.ask(self._request)).body


class BatchRetrier(Retrier):
    """Each batch has many calls: it is one refusal all the same."""

    async def begin(self) -> None:
        await super().begin()
        reply = await self._initialize("/mcp")
        self._session = {"Mcp-Session-Id": reply.headers["mcp-session-id"]}

    async def ask(self) -> bytes:
        batch = [{**self._call, "id": number} for number in range(10)]
        return (await self._post("/mcp", batch, **self._session)).body


class SseRetrier(Retrier):
    """HTTP+SSE: every post is accepted, and what became of it is said on the stream."""

    async def begin(self) -> None:
        await super().begin()
        self._stream = await Wire.connect(self._port)
        await self._stream.send(request_bytes("GET", "/sse", {"Accept": "text/event-stream"}))
        self._events: AsyncIterator[bytes] = self._stream.events(await self._stream.read_head())
        self._endpoint = (await anext(self._events)).decode()
        await self._initialize(self._endpoint)
        await anext(self._events)

    async def ask(self) -> bytes:
        assert (await self._post(self._endpoint, self._message())).status == 202
        return await anext(self._events)

    def _message(self) -> object:
        return self._call

    async def abort(self) -> None:
        await self._stream.abort()
        await super().abort()


class SseBatchRetrier(SseRetrier):
    def _message(self) -> object:
        return [{**self._call, "id": number} for number in range(10)]


RETRIERS: Final[dict[str, type[Retrier]]] = {
    "plain": PlainRetrier,
    "batch": BatchRetrier,
    "sse": SseRetrier,
    "sse_batch": SseBatchRetrier,
}
