"""MCP clients for tests over HTTP, legacy and 2026-07-28. Small, raw, and able to send anything."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.support.answers import Answer
from tests.support.http_wire import Reply, Wire, request_bytes

LEGACY = "2025-06-18"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
CLIENT_INFO = {"name": "test", "version": "1"}
MIRRORED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ["tasks/get", "tasks/update", "tasks/cancel"], "taskId"
)
"""Which parameter the `Mcp-Name` header repeats, by method."""


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def call_params(tool: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
    if meta is not None:
        params["_meta"] = meta
    return params


class Client:
    """What every client can do, once it can `request`."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def next_id(self) -> int:
        return next(self._ids)

    async def request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        raise NotImplementedError

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any] | None = None,
        *,
        id: Any = None,  # noqa: A002
        meta: dict[str, Any] | None = None,
    ) -> Answer:
        return await self.request("tools/call", call_params(tool, arguments, meta), id=id)

    async def tools(self) -> list[dict[str, Any]]:
        """All of them, page by page."""
        page = (await self.request("tools/list")).result
        tools = page["tools"]
        while "nextCursor" in page:
            page = (await self.request("tools/list", {"cursor": page["nextCursor"]})).result
            tools += page["tools"]
        return tools

    async def tool_names(self) -> set[str]:
        return {tool["name"] for tool in await self.tools()}


class HttpClient(Client):
    """A legacy client: a session, pooled connections, and a stream when asked for one."""

    version = LEGACY

    def __init__(
        self, port: int, path: str = "/mcp", headers: dict[str, str] | None = None, *, name: str = CLIENT_INFO["name"]
    ) -> None:
        super().__init__()
        self.port = port
        self.name = name
        self.path = path
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self.headers |= headers or {}
        self.session: str | None = None
        self._idle: list[Wire] = []

    async def open(self, capabilities: dict[str, Any] | None = None) -> HttpClient:
        info = {**CLIENT_INFO, "name": self.name}
        params = {"protocolVersion": self.version, "capabilities": capabilities or {}, "clientInfo": info}
        answer = await self.request("initialize", params)
        assert answer.result["protocolVersion"] == self.version
        assert answer.reply is not None
        self.session = answer.reply.headers.get("mcp-session-id")
        if self.session:
            self.headers["Mcp-Session-Id"] = self.session
        self.headers["MCP-Protocol-Version"] = self.version
        assert (await self.notify("notifications/initialized")).status == 202
        return self

    async def request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.next_id() if id is None else id, "method": method}
        if params is not None:
            message["params"] = params
        reply = await self.post(encode(message))
        return self.answer(reply, message["id"])

    def answer(self, reply: Reply, id: Any) -> Answer:  # noqa: A002
        """The one response in a reply; anything else that a stream carried must be a notification."""
        if not reply.streamed:
            assert reply.body, f"HTTP {reply.status} without a body"
            answer = Answer(reply.body, [], reply)
        else:
            *before, last = reply.events
            answer = Answer(last, [json.loads(event) for event in before], reply)
            assert all("id" not in notice for notice in answer.notices)
        assert (type(answer.id), answer.id) == (type(id), id), f"an answer for {id!r} came as {answer.raw[:500]!r}"
        return answer

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> Reply:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        return await self.post(encode(message))

    async def cancel(self, id: Any) -> Reply:  # noqa: A002
        return await self.notify("notifications/cancelled", {"requestId": id, "reason": "test"})

    async def post(self, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        wire = await self._wire()
        try:
            reply = await wire.ask(self.post_bytes(body, headers))
        except BaseException:
            await wire.abort()
            raise
        if reply.headers.get("connection", "").lower() == "close":
            await wire.close()
        else:
            self._idle.append(wire)
        return reply

    def post_bytes(self, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        return request_bytes("POST", self.path, {**self.headers, **(headers or {})}, body)

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if not wire.reader.at_eof():
                return wire
            await wire.close()
        return await Wire.connect(self.port)

    @contextlib.asynccontextmanager
    async def start_post(self, body: bytes) -> AsyncIterator[Wire]:
        """A request whose answer the test reads, or leaves, by itself."""
        wire = await Wire.connect(self.port)
        try:
            await wire.send(self.post_bytes(body))
            yield wire
        finally:
            await wire.abort()

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """The standalone stream."""
        wire = await Wire.connect(self.port)
        try:
            await wire.send(request_bytes("GET", self.path, {**self.headers, "Accept": "text/event-stream"}))
            reply = await wire.read_head()
            assert reply.status == 200, reply
            stream = wire.events(reply)
            try:
                yield stream
            finally:
                await stream.aclose()
        finally:
            await wire.abort()

    async def delete(self) -> Reply:
        async with await Wire.connect(self.port) as wire:
            return await wire.ask(request_bytes("DELETE", self.path, self.headers))

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def __aenter__(self) -> HttpClient:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ModernClient(HttpClient):
    """2026-07-28: no session; every request says who and what."""

    version = MODERN

    async def open(self, capabilities: dict[str, Any] | None = None) -> ModernClient:
        self.capabilities = capabilities or {}
        return self

    async def request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        message = self.message(method, params, id=id)
        reply = await self.post(encode(message), modern_headers(method, message["params"]))
        return self.answer(reply, message["id"])

    def message(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> dict[str, Any]:  # noqa: A002
        params = dict(params or {})
        params["_meta"] = {**modern_meta(), **params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": self.next_id() if id is None else id, "method": method, "params": params}

    def start_call(self, tool: str, arguments: dict[str, Any]) -> contextlib.AbstractAsyncContextManager[Wire]:
        """A call that the test may walk away from."""
        message = self.message("tools/call", call_params(tool, arguments, None))
        self.headers |= modern_headers("tools/call", message["params"])
        return self.start_post(encode(message))


def modern_meta() -> dict[str, Any]:
    return {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}, f"{META}clientInfo": CLIENT_INFO}


def modern_headers(method: str, params: dict[str, Any]) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if method in MIRRORED and MIRRORED[method] in params:
        headers["Mcp-Name"] = params[MIRRORED[method]]
    return headers
