"""The official Python SDK's client and FastMCP's, behind the interface of `client.py`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import fastmcp
import httpx2
import mcp
import mcp_types as types
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared._httpx_utils import create_mcp_http_client
from tests.support.interactions.client import EVERYTHING, Client, Era, Json, Person, Refused

Target = str | list[str]
_ITEMS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_VERBS = {
    "tools/list": "list_tools",
    "prompts/list": "list_prompts",
    "resources/list": "list_resources",
    "resources/templates/list": "list_resource_templates",
}
_CALLBACKS = {
    "sdk": {"sampling": "sampling_callback", "elicitation": "elicitation_callback", "roots": "list_roots_callback"},
    "fastmcp": {"sampling": "sampling_handler", "elicitation": "elicitation_handler", "roots": "roots"},
}


def plain(model: Any) -> Json:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


@contextlib.contextmanager
def refusals() -> Any:
    try:
        yield
    except MCPError as error:
        raise Refused(error.error.code, error.error.message, error.error.data) from error


class PythonClient(Client):
    """Both libraries have one kind of session below; what differs is above it."""

    client: Any
    stream_opened: asyncio.Event | None = None

    async def hello(self) -> Json:
        session = self.client.session
        return {
            "version": session.protocol_version,
            "capabilities": plain(session.server_capabilities),
            "instructions": session.instructions,
            "server": session.server_info.name,
        }

    async def list_page(self, method: str, cursor: str | None = None) -> Json:
        verb = getattr(self.client.session, _VERBS[method])
        with refusals():
            return plain(await verb(params=types.PaginatedRequestParams(cursor=cursor)))

    async def list_all(self, method: str) -> list[Json]:
        items: list[Json] = []
        cursor: str | None = None
        while True:
            page = await self.list_page(method, cursor)
            items += page[_ITEMS[method]]
            cursor = page.get("nextCursor")
            if cursor is None:
                return items

    async def set_level_in_session(self, level: str) -> None:
        with refusals():
            await self.client.session.set_logging_level(level)

    async def ping(self) -> None:
        await self.client.session.send_ping()

    async def subscribe(self, uri: str) -> None:
        with refusals():
            await self.client.session.subscribe_resource(uri)

    async def unsubscribe(self, uri: str) -> None:
        with refusals():
            await self.client.session.unsubscribe_resource(uri)

    @contextlib.asynccontextmanager
    async def listening(self, wanted: Json) -> AsyncIterator[None]:
        asked: dict[str, Any] = {
            "tools_list_changed": wanted.get("toolsListChanged", False),
            "prompts_list_changed": wanted.get("promptsListChanged", False),
            "resources_list_changed": wanted.get("resourcesListChanged", False),
            "resource_subscriptions": wanted.get("resourceSubscriptions", ()),
        }
        async with listen(self.client.session, **asked) as subscription:
            assert plain(subscription.honored) == wanted
            yield

    async def stream_is_open(self) -> None:
        if self.stream_opened is not None:
            await self.stream_opened.wait()

    async def on_message(self, message: Any) -> None:
        if isinstance(message, Exception) or not hasattr(message, "method"):
            return
        params = getattr(message, "params", None)
        self.heard.notices.append((message.method, {} if params is None else plain(params)))

    async def on_log(self, params: Any) -> None:
        self.heard.logs.append(plain(params))

    def progress_into(self, progress: list[Json] | None) -> Any:
        if progress is None:
            return None

        async def note(done: float, total: float | None, message: str | None) -> None:
            progress.append({"progress": done, "total": total, "message": message})

        return note


def reference(ref: Json) -> Any:
    kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
    return kind.model_validate(ref)


# The SDK --------------------------------------------------------------------------------------------------------------


class SdkClient(PythonClient):
    client: mcp.Client

    async def call_exactly(self, name: str, arguments: Json, meta: Json, progress: list[Json] | None) -> Json:
        with refusals():
            noted = self.progress_into(progress)
            return plain(await self.client.call_tool(name, arguments, progress_callback=noted, meta=meta or None))

    async def get_prompt_exactly(self, name: str, arguments: dict[str, str] | None) -> Json:
        with refusals():
            return plain(await self.client.get_prompt(name, arguments))

    async def read(self, uri: str) -> Json:
        with refusals():
            return plain(await self.client.read_resource(uri, cache_mode="bypass"))

    async def complete(self, ref: Json, argument: dict[str, str], context: dict[str, str] | None = None) -> Json:
        with refusals():
            return plain(await self.client.complete(reference(ref), argument, context))

    def handlers(self, declares: frozenset[str]) -> dict[str, Any]:
        async def sample(context: Any, params: Any) -> Any:
            answer = self.person("sampling/createMessage", plain(params))
            return types.CreateMessageResult.model_validate(answer)

        async def elicit(context: Any, params: Any) -> Any:
            return types.ElicitResult.model_validate(self.person("elicitation/create", plain(params)))

        async def list_roots(context: Any) -> Any:
            meta = {"_meta": dict(context.meta)} if context.meta else {}
            return types.ListRootsResult.model_validate(self.person("roots/list", meta))

        return {"sampling": sample, "elicitation": elicit, "roots": list_roots}


# FastMCP --------------------------------------------------------------------------------------------------------------


class FastMcpClient(PythonClient):
    client: fastmcp.Client[Any]

    async def call_exactly(self, name: str, arguments: Json, meta: Json, progress: list[Json] | None) -> Json:
        with refusals():
            noted = self.progress_into(progress)
            return plain(await self.client.call_tool_mcp(name, arguments, progress_handler=noted, meta=meta or None))

    async def get_prompt_exactly(self, name: str, arguments: dict[str, str] | None) -> Json:
        with refusals():
            return plain(await self.client.get_prompt_mcp(name, arguments))

    async def read(self, uri: str) -> Json:
        with refusals():
            return plain(await self.client.read_resource_mcp(uri))

    async def complete(self, ref: Json, argument: dict[str, str], context: dict[str, str] | None = None) -> Json:
        with refusals():
            return plain(await self.client.complete_mcp(reference(ref), argument, context))

    def handlers(self, declares: frozenset[str]) -> dict[str, Any]:
        async def sample(messages: Any, params: Any, context: Any) -> Any:
            answer = self.person("sampling/createMessage", plain(params))
            return types.CreateMessageResult.model_validate(answer)

        async def elicit(message: str, wanted: Any, params: Any, context: Any) -> Any:
            return types.ElicitResult.model_validate(self.person("elicitation/create", plain(params)))

        def list_roots(context: Any) -> Any:
            meta = {"_meta": dict(context.meta)} if context.meta else {}
            answer = self.person("roots/list", meta)
            return [types.Root.model_validate(root) for root in answer["roots"]]

        return {"sampling": sample, "elicitation": elicit, "roots": list_roots}


# Connecting -----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def python_client(
    kind: str,
    era: Era,
    target: Target,
    log: Path,
    *,
    person: Person,
    declares: frozenset[str] = EVERYTHING,
    prefix: str = "",
    env: dict[str, str] | None = None,
) -> AsyncIterator[PythonClient]:
    """A client of a URL or a command, connected."""
    made: PythonClient = (
        SdkClient(kind, era, person, prefix) if kind == "sdk" else FastMcpClient(kind, era, person, prefix)
    )
    names = _CALLBACKS[kind]
    options: dict[str, Any] = {
        names[what]: handler for what, handler in made.handlers(declares).items() if what in declares
    }
    options |= {"message_handler": made.on_message, "mode": "auto" if era == "modern" else "legacy"}
    options["logging_callback" if kind == "sdk" else "log_handler"] = made.on_log
    if isinstance(target, str) and era == "legacy":
        made.stream_opened = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        errors = stack.enter_context(log.open("a"))
        transport = await _transport(kind, target, errors, env, _noting(made.stream_opened), stack)
        client: Any = mcp.Client(transport, **options) if kind == "sdk" else fastmcp.Client(transport, **options)
        made.client = await stack.enter_async_context(client)
        yield made


def _noting(opened: asyncio.Event | None) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Knows by the answer to a GET that the session's own stream is there."""

    async def note(response: httpx2.Response) -> None:
        if response.request.method == "GET" and opened is not None:
            opened.set()

    return note


async def _transport(
    kind: str, target: Target, errors: Any, env: dict[str, str] | None, note: Any, stack: contextlib.AsyncExitStack
) -> Any:
    if isinstance(target, list):
        if kind == "sdk":
            return stdio_client(StdioServerParameters(command=target[0], args=target[1:], env=env), errlog=errors)
        return StdioTransport(target[0], target[1:], env=env, keep_alive=False, log_file=errors)

    def http_client(**options: Any) -> httpx2.AsyncClient:
        options.pop("follow_redirects", None)
        client = create_mcp_http_client(**options)
        client.event_hooks["response"].append(note)
        return client

    if kind == "sdk":
        return streamable_http_client(target, http_client=await stack.enter_async_context(http_client()))
    return StreamableHttpTransport(target, httpx_client_factory=http_client)
