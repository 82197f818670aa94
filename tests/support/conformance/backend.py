"""The server that the conformance harness is run against, directly and through the gateway.

`python -m tests.support.conformance.backend stdio [ERA]` or `… http PORT [ERA]`; the era is `both`, `legacy` or
`modern`.
"""

from __future__ import annotations

import sys
import warnings

import anyio
import mcp_types as types
import uvicorn
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPDeprecationWarning
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp
from tests.support.conformance.eras import BOTH, LEGACY, MODERN, OneEra, without_handshake
from tests.support.conformance.service import Service

RETRY_MS = 200


class Replay(EventStore):
    """The events of one session, for clients that come back after their stream was closed."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if not last_event_id.isdigit() or not 0 < int(last_event_id) <= len(self._events):
            return None
        last = int(last_event_id)
        stream = self._events[last - 1][0]
        for number, (stream_id, message) in enumerate(self._events[last:], last + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Sessions(StreamableHTTPSessionManager):
    """Sessions that do not share their events: the SDK names streams by request ids, and those repeat."""

    @property
    def event_store(self) -> EventStore:
        return Replay()

    @event_store.setter
    def event_store(self, _: object) -> None: ...


def application(service: Service, era: str) -> ASGIApp:
    local = [f"{host}:*" for host in ("127.0.0.1", "localhost", "[::1]")]
    security = TransportSecuritySettings(allowed_hosts=local, allowed_origins=[f"http://{host}" for host in local])
    sessions = Sessions(service, retry_interval=RETRY_MS, security_settings=security)
    route = Route("/mcp", endpoint=StreamableHTTPASGIApp(sessions))
    app = Starlette(routes=[route], lifespan=lambda _: sessions.run())
    return app if era == BOTH else OneEra(app, era)


async def serve_pipes(service: Service, era: str) -> None:
    if era == MODERN:
        service.middleware.insert(0, without_handshake)
    options = service.create_initialization_options()
    async with stdio_server() as (read, write):
        if era == LEGACY:
            await serve_loop(service, read, write, lifespan_state={}, init_options=options)
        else:
            await service.run(read, write, options)


def main() -> None:
    transport, *rest = sys.argv[1:]
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    service = Service()
    if transport == "stdio":
        anyio.run(serve_pipes, service, *(rest or [BOTH]))
    else:
        port, *era = rest
        app = application(service, *(era or [BOTH]))
        # h11 takes the blanks off header values, as HTTP wants; httptools leaves those at the end
        uvicorn.run(app, port=int(port), http="h11", log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
