"""The conformance backend as a server of one era, which refuses requests of the other."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LEGACY = "legacy"
MODERN = "modern"
BOTH = "both"


class OneEra:
    """An HTTP application in front of which the version in the header decides who comes in."""

    def __init__(self, app: ASGIApp, era: str) -> None:
        self._app = app
        self._era = era

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app if scope["type"] != "http" else await self._admit(Request(scope, receive))
        await app(scope, receive, send)

    async def _admit(self, request: Request) -> ASGIApp:
        version = request.headers.get("mcp-protocol-version")
        handshake = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        if self._era == LEGACY and not handshake:
            return refusal(None, types.INVALID_REQUEST, f"Bad Request: Unsupported protocol version: {version}")
        if self._era == MODERN and handshake:
            return await refuse_handshake(request, version)
        return self._app


async def refuse_handshake(request: Request, version: str | None) -> ASGIApp:
    """A server of the modern era alone takes POST only, and names its versions."""
    if request.method != "POST":
        return JSONResponse({}, 405, {"Allow": "POST"})
    message = await request.json()
    return refusal(message.get("id"), types.UNSUPPORTED_PROTOCOL_VERSION, UNSUPPORTED, versions(version))


def refusal(message_id: Any, code: int, message: str, data: Any = None) -> JSONResponse:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return JSONResponse({"jsonrpc": "2.0", "id": message_id, "error": error}, 400)


UNSUPPORTED = "Unsupported protocol version"


def versions(requested: Any) -> dict[str, Any]:
    return {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": str(requested or "")}


async def without_handshake(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """The same for stdio, as a middleware of the SDK's server."""
    if ctx.method == "initialize":
        data = versions((ctx.params or {}).get("protocolVersion"))
        raise MCPError(code=types.UNSUPPORTED_PROTOCOL_VERSION, message=UNSUPPORTED, data=data)
    return await call_next(ctx)
