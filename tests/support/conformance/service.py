"""The SDK's server with everything the conformance suite needs, independent of the transport."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import ListenHandler
from tests.support.conformance import library, tools
from tests.support.conformance.changes import Changes
from tests.support.conformance.server_requests import Context, InputRequired

FRESH_MS = 60_000
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
Result = dict[str, Any]


def whole(result: Result) -> Result:
    """A result that asks for nothing more. The SDK takes the word out again for the legacy era."""
    return {"resultType": "complete", **result}


class Handlers:
    """One method for each method of the protocol."""

    def __init__(self) -> None:
        self.changes = Changes()

    async def list_tools(self, ctx: Context, params: Any) -> Result:
        return whole({"tools": tools.listed(self.changes)})

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Result:
        try:
            return whole(await tools.call(self.changes, ctx, params))
        except InputRequired as required:
            return required.result

    async def list_prompts(self, ctx: Context, params: Any) -> Result:
        return whole({"prompts": library.prompts(self.changes)})

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> Result:
        try:
            return whole(await library.get_prompt(ctx, params))
        except InputRequired as required:
            return required.result

    async def list_resources(self, ctx: Context, params: Any) -> Result:
        return whole({"resources": library.RESOURCES})

    async def list_templates(self, ctx: Context, params: Any) -> Result:
        return whole({"resourceTemplates": [library.TEMPLATE]})

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> Result:
        return whole(library.read(ctx, params.uri))

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.changes.watch(ctx, params.uri)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.changes.unwatch(ctx, params.uri)
        return types.EmptyResult()

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> Result:
        return whole(library.complete(params))

    async def set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.changes.set_level(ctx, params.level)
        return types.EmptyResult()

    async def meet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A middleware: every request passes."""
        self.changes.meet(ctx)
        return await call_next(ctx)


class Service(Server[Any]):
    """What the harness talks to."""

    def __init__(self) -> None:
        handlers = Handlers()
        super().__init__(
            "conformance-backend",
            version="1.0.0",
            instructions="Made for the conformance harness.",
            cache_hints={**dict.fromkeys(LISTS, CacheHint(FRESH_MS, "public")), "resources/read": CacheHint()},
            on_list_tools=handlers.list_tools,
            on_call_tool=handlers.call_tool,
            on_list_prompts=handlers.list_prompts,
            on_get_prompt=handlers.get_prompt,
            on_list_resources=handlers.list_resources,
            on_list_resource_templates=handlers.list_templates,
            on_read_resource=handlers.read_resource,
            on_subscribe_resource=handlers.subscribe,
            on_unsubscribe_resource=handlers.unsubscribe,
            on_subscriptions_listen=ListenHandler(handlers.changes.bus),
            on_completion=handlers.complete,
            on_set_logging_level=handlers.set_level,
        )
        self.middleware.append(handlers.meet)
        self.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=self.name))

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        """Each list may change: the SDK asks for these over HTTP without saying so."""
        return super().create_initialization_options(NotificationOptions(True, True, True))
