"""The frontend of one run: a Unix socket for the agent, each connection one MCP client with lines of JSON."""

from __future__ import annotations

import asyncio
import json
import secrets
import select
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from trunkline.core.call import Caller, Json, Result
from trunkline.frontends.mcp.requests import Responder, own_result
from trunkline.frontends.mcp.server import McpServer
from trunkline.frontends.stdio.server import LineSession
from trunkline.frontends.stdio.transport import LineHandler, LineTransport
from trunkline.protocol.jsonrpc import Message
from trunkline.protocol.mcp.methods import INITIALIZE, TOOLS_CALL, TOOLS_LIST
from trunkline.protocol.mcp.tool_results import shortened, with_structure
from trunkline.router.router import Router
from trunkline.runtime.listener import Listener
from trunkline.search.discovery import Discovery

_MAX_CLIENTS: Final = 64
_MISREADS_JSON: Final = b'"gemini-cli'
"""How the name of a client begins that parses every text as JSON."""
_SOCKET_SETTING: Final = "TMPDIR"
"""The setting that decides where the socket is, for the error if that is impossible."""


@dataclass(frozen=True, slots=True)
class InterruptedCalls:
    """The tools whose calls were in flight when a client disconnected, and when that was last.

    `reconnected` says whether a client has listed the tools since.
    """

    tools: tuple[str, ...] = ()
    at: float = 0.0
    reconnected: bool = False


class PrivateSocketServer:
    """Serves the clients on one socket. All are the same caller: an agent may restart its MCP client or have several.

    Results whose text is longer than `result_chars` are shortened.
    """

    def __init__(
        self,
        router: Router,
        discovery: Discovery,
        *,
        path: Path,
        caller: Caller,
        limit_bytes: int,
        max_calls: int,
        server_request_timeout_s: float = 600.0,
        result_chars: int | None = None,
    ) -> None:
        self.result_chars = result_chars
        self.server = McpServer(
            router, discovery, max_calls_per_client=max_calls, server_request_timeout_s=server_request_timeout_s
        )
        self.caller = caller
        self.limit_bytes = limit_bytes
        self.listed = False
        """Whether a client has got a list with tools in it."""
        self.on_listed: Callable[[], None] | None = None
        self.interrupted_calls = InterruptedCalls()
        self._path = path
        self._listener: Listener | None = None
        self._clients: dict[_PrivateSession, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._clients)

    async def start(self) -> None:
        """Listen. Raises GatewayError if that is impossible."""
        self._listener = await Listener.open(self._path, self._connected, _SOCKET_SETTING)

    async def close(self) -> None:
        """Stop listening, and end the clients once what is answered within a moment was sent."""
        if self._listener is not None:
            self._listener.close()
        self.server.end_subscriptions()
        for client in self._clients:
            client.stop()
        if self._clients:
            await asyncio.wait(self._clients.values())
        self.server.close()

    def _connected(self) -> asyncio.Protocol:
        if len(self._clients) >= _MAX_CLIENTS:
            return _RefusedClient()
        client = _PrivateSession(self)
        task = self._clients[client] = self._loop.create_task(client.serve())
        task.add_done_callback(lambda _: self._clients.pop(client))
        return client.protocol

    def note_interrupted(self, tools: tuple[str, ...]) -> None:
        """Record that a client disconnected during calls of these tools."""
        self.interrupted_calls = InterruptedCalls((*self.interrupted_calls.tools, *tools), self._loop.time())

    def note_listed(self, result: Result) -> None:
        """Record that a client got this list of tools."""
        self.interrupted_calls = replace(self.interrupted_calls, reconnected=True)
        if not self.listed and json.loads(bytes(result.raw)).get("tools"):
            self.listed = True
            if self.on_listed is not None:
                self.on_listed()


class _PrivateSession(LineSession):
    def __init__(self, server: PrivateSocketServer) -> None:
        self._socket_server = server
        self._misreads_json = False
        super().__init__(server.server, server.caller, f"{secrets.token_hex(8)}-private", self._make_transport)

    def _make_transport(self, lines: LineHandler) -> LineTransport:
        self.protocol = _SocketTransport(lines, limit_bytes=self._socket_server.limit_bytes)
        return self.protocol

    async def serve(self) -> None:
        await self.transport.serve()
        tools = self._session.calls.tools()
        if tools and not self.stopped and self.transport.is_gone():
            self._socket_server.note_interrupted(tools)
        await self._finish()

    def _request(self, message: Message, responder: Responder) -> None:
        if message.method == TOOLS_LIST:
            responder = _ResultResponder(responder, note=self._socket_server.note_listed)
        elif message.method == TOOLS_CALL:
            # what is done last to a result is what wraps the responder first
            if self._misreads_json:
                responder = _ResultResponder(responder, rewrite=with_structure)
            limit = self._socket_server.result_chars
            if limit is not None:
                responder = _ResultResponder(responder, rewrite=lambda result: shortened(result, limit))
        elif message.method == INITIALIZE:
            self._misreads_json = _MISREADS_JSON in bytes(message.params or b"")
        super()._request(message, responder)


class _SocketTransport(LineTransport):
    """One socket for both directions: a client that shut down its side may still wait for responses."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._in = self._out = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        self._read_or_wait()

    def eof_received(self) -> bool:
        self.stop()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.output_closed()

    def is_gone(self) -> bool:
        """Asks the socket: after its end of file, a client that is gone looks like one that waits for responses."""
        if self.out_gone or self._out is None:
            return self.out_gone
        closed = select.poll()
        closed.register(self._out.get_extra_info("socket").fileno(), 0)
        return bool(closed.poll(0))

    def _stop_reading(self) -> None:
        if self._in is not None and not self._in.is_closing():
            self._in.pause_reading()


class _RefusedClient(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _ResultResponder:
    """Passes everything on to another responder, but handles results on the way.

    `rewrite` returns the result for the agent, None if it may stay as it is; `note` gets it after it was sent.
    """

    def __init__(
        self,
        responder: Responder,
        *,
        rewrite: Callable[[Json], bytes | None] | None = None,
        note: Callable[[Result], None] | None = None,
    ) -> None:
        self._send_result = responder.result
        self._rewrite = rewrite
        self._note = note
        self.error = responder.error
        self.notify = responder.notify
        self.send_request = responder.send_request
        self.cancelled = responder.cancelled
        self.pause_stream = responder.pause_stream

    def result(self, result: Result) -> None:
        rewritten = None if self._rewrite is None else self._rewrite(result.raw)
        self._send_result(result if rewritten is None else own_result(rewritten))
        if self._note is not None:
            self._note(result)
