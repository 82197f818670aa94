"""The server with every feature of MCP, on the official SDK: `feature_server ERA (stdio | http PORT)`.

ERA is `legacy` (it knows no 2026-07-28), `modern` (it knows nothing else) or `dual`. FEATURE_NAME is what it calls
itself, FEATURE_PAGE how many items it has on a page, FEATURE_EXTRA how many resources more it has, FEATURE_ENDLESS the
lists (`prompts`, `resources`) that have one more page whenever they are asked for it, PEER_JOURNAL a file for what
tests want to know, PEER_START_DELAY_S makes it slow to start.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import warnings
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION
from tests.support.interactions import feature_data
from tests.support.interactions.asking import MODERN, InputNeeded, RequestContext
from tests.support.interactions.tools import HANDLERS, LEVELS, NOTIFIER, TOOLS, add_tools_of, journal

Context = ServerRequestContext[Any, Any]
NOTIFICATION_OPTIONS = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
HINTS = {
    "tools/list": CacheHint(60_000, "public"),
    "prompts/list": CacheHint(50_000, "public"),
    "resources/list": CacheHint(40_000, "private"),
    "resources/templates/list": CacheHint(30_000, "public"),
    "resources/read": CacheHint(20_000, "public"),
}
warnings.simplefilter("ignore", MCPDeprecationWarning)


async def call_tool(ctx: Context, params: Any) -> Any:
    NOTIFIER.met(ctx)
    handler = HANDLERS.get(params.name)
    if handler is None:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await answered(handler, RequestContext(ctx, params))


async def answered(handler: Any, context: RequestContext) -> Any:
    try:
        return complete_result(await handler(context))
    except InputNeeded as needed:
        return needed.result


def complete_result(result: dict[str, Any]) -> dict[str, Any]:
    """The SDK takes this member out again for versions that do not have it."""
    return {"resultType": "complete", **result}


async def list_tools(ctx: Context, params: Any) -> Any:
    NOTIFIER.met(ctx)
    return complete_result(feature_data.page(TOOLS, "tools", cursor_of(params)))


async def list_resources(_: Context, params: Any) -> Any:
    return complete_result(feature_data.page(feature_data.RESOURCES, "resources", cursor_of(params)))


async def list_templates(_: Context, params: Any) -> Any:
    return complete_result(feature_data.page(feature_data.TEMPLATES, "resourceTemplates", cursor_of(params)))


async def list_prompts(_: Context, params: Any) -> Any:
    return complete_result(feature_data.page(feature_data.PROMPTS, "prompts", cursor_of(params)))


def cursor_of(params: Any) -> str | None:
    return params.cursor if params is not None else None


async def read_resource(ctx: Context, params: Any) -> Any:
    return await answered(feature_data.read, RequestContext(ctx, params))


async def get_prompt(ctx: Context, params: Any) -> Any:
    return await answered(feature_data.get_prompt, RequestContext(ctx, params))


async def complete(_: Context, params: Any) -> Any:
    return complete_result(feature_data.complete(params))


async def subscribe(ctx: Context, params: Any) -> Any:
    NOTIFIER.watch(ctx, params.uri)
    journal(f"subscribed {params.uri}")
    return {}


async def unsubscribe(ctx: Context, params: Any) -> Any:
    NOTIFIER.unwatch(ctx, params.uri)
    journal(f"unsubscribed {params.uri}")
    return {}


async def set_level(ctx: Context, params: Any) -> Any:
    LEVELS.choose(ctx, params.level)
    journal(f"level {params.level}")
    return {}


async def listen(ctx: Context, params: Any) -> Any:
    uris = params.notifications.resource_subscriptions or []
    for uri in uris:
        journal(f"subscribed {uri}")
    try:
        return await LISTENING(ctx, params)
    finally:
        for uri in uris:
            journal(f"unsubscribed {uri}")


LISTENING = ListenHandler(NOTIFIER.bus)


def make_server() -> Server[Any]:
    return Server(
        feature_data.NAME,
        version="1.2.3",
        title="Feature server",
        instructions=f"These are the instructions of {feature_data.NAME}.",
        cache_hints=HINTS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=listen,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=set_level,
    )


# Eras -----------------------------------------------------------------------------------------------------------------


async def no_handshake(ctx: Context, call_next: CallNext) -> HandlerResult:
    """A server that was written for 2026-07-28 alone."""
    if ctx.protocol_version != MODERN:
        requested = (ctx.params or {}).get("protocolVersion", "")
        data = {"supported": [MODERN], "requested": requested}
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, f"Only {MODERN} is served", data)
    return await call_next(ctx)


class OldHttp:
    """A server that was written before 2026-07-28: it refuses a version it has never heard of."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-protocol-version", b"").decode() != MODERN:
            await self._app(scope, receive, send)
            return
        error = {"code": INVALID_REQUEST, "message": f"Bad Request: Unsupported protocol version: {MODERN}"}
        body = json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": error}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 400, "headers": head})
        await send({"type": "http.response.body", "body": body})


# Transports -----------------------------------------------------------------------------------------------------------


async def over_stdio(server: Server[Any], era: str) -> None:
    options = server.create_initialization_options(NOTIFICATION_OPTIONS)
    async with stdio_server() as (incoming, outgoing):
        if era == "legacy":
            await serve_loop(server, incoming, outgoing, lifespan_state={}, init_options=options)
        else:
            await server.run(incoming, outgoing, options)


def over_http(server: Server[Any], era: str, port: int) -> None:
    # the HTTP side of the SDK asks for the options itself, and knows of no list that changes
    make_options = server.create_initialization_options
    server.create_initialization_options = lambda *args, **keys: make_options(NOTIFICATION_OPTIONS, **keys)
    app: Any = server.streamable_http_app()
    NOTIFIER.server = server
    uvicorn.run(OldHttp(app) if era == "legacy" else app, port=port, log_level="error")


def main(era: str, transport: str, port: str = "0") -> None:
    time.sleep(float(os.environ.get("PEER_START_DELAY_S", "0")))
    server = make_server()
    for served in ("legacy", "modern") if era == "dual" else (era,):
        add_tools_of(served)
    if era == "modern":
        server.middleware.append(no_handshake)
    journal(f"start {os.getpid()}")
    if transport == "stdio":
        asyncio.run(over_stdio(server, era))
    else:
        over_http(server, era, int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
