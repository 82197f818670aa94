"""The methods of MCP, for clients with a handshake and for those whose requests describe themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, cast

from .json_lines import NOT_JSON, Json, encode
from .mcp_messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    SUPPORTED,
    MessageId,
    Peer,
    RpcMessage,
    RpcRefusal,
    check_level,
    notification,
    peer_of_initialize,
    peer_of_request,
)
from .mcp_tools import Context, ServerTool
from .results import ToolError, failed, result_of
from .threads import FunctionThreads, call_in_loop

_CAPABILITIES: Final[Json] = {"tools": {"listChanged": True}, "logging": {}}
_CACHE_HINTS: Final[Json] = {"ttlMs": 60_000, "cacheScope": "public"}
"""Everybody gets the same, and whoever listens is notified when it changes."""
_THREADS: Final = 32

McpResult = bytes | Callable[[], Awaitable[bytes]]
"""A result as JSON, or what will produce it."""


class ServerDefinition(Protocol):
    """What is served: the same for every client."""

    @property
    def info(self) -> Json: ...
    @property
    def instructions(self) -> str: ...
    @property
    def tools(self) -> Mapping[str, ServerTool]: ...


class McpMethods:
    """Answers the requests of one connection. `notify` sends a notification, which may be dropped."""

    def __init__(self, server: ServerDefinition, notify: Callable[[bytes], None]) -> None:
        self._server = server
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._workers = FunctionThreads(_THREADS)
        self._initialized: Peer | None = None
        self._wants_changes = False
        self._log_level = ""
        self._subscriptions: set[MessageId] = set()
        self._ending = asyncio.Event()

    @property
    def version(self) -> str:
        """What was agreed on in a handshake; empty where there was none."""
        return "" if self._initialized is None else self._initialized.version

    def tools_changed(self) -> None:
        if self._wants_changes:
            self._notify(notification("notifications/tools/list_changed", {}))
        for subscription in self._subscriptions:
            self._notify_subscriber(subscription, "notifications/tools/list_changed", {})

    def end(self) -> None:
        """The client sends no more: subscriptions, which only it could end, are answered."""
        self._ending.set()

    def close(self) -> None:
        self._workers.close()

    def notified(self, message: RpcMessage) -> None:
        if message.method == "notifications/initialized" and self._initialized is not None:
            self._wants_changes = True

    def answer(self, message: RpcMessage) -> McpResult:
        """Raises RpcRefusal for what is refused."""
        if message.method == "initialize":
            return self._initialize(message.params)
        peer = peer_of_request(message)
        if peer is not None:
            return self._modern(message, peer)
        if message.method == "ping":
            return b"{}"
        if self._initialized is None:
            wanted = "send `initialize` first, or say in `_meta` which version this request is of"
            raise RpcRefusal(INVALID_PARAMS, f"No protocol version was agreed on: {wanted}")
        return self._legacy(message, self._initialized)

    def _legacy(self, message: RpcMessage, peer: Peer) -> McpResult:
        match message.method:
            case "tools/list":
                return encode(self._list(message.params, peer))
            case "tools/call":
                return self._call(message, peer)
            case "logging/setLevel":
                check_level(message.params.get("level"))
                self._log_level = message.params["level"]
                return b"{}"
            case _:
                raise RpcRefusal(METHOD_NOT_FOUND, f"Unknown method: {message.method}")

    def _modern(self, message: RpcMessage, peer: Peer) -> McpResult:
        match message.method:
            case "server/discover":
                return self._complete({**self._introduction(), "supportedVersions": list(SUPPORTED), **_CACHE_HINTS})
            case "tools/list":
                return self._complete(self._list(message.params, peer) | _CACHE_HINTS)
            case "tools/call":
                return self._call(message, peer)
            case "subscriptions/listen":
                return partial(self._listen, message)
            case _:
                raise RpcRefusal(METHOD_NOT_FOUND, f"Unknown method: {message.method}")

    # -- introduction ------------------------------------------------------------------------------------------------

    def _initialize(self, params: Json) -> bytes:
        self._initialized = peer = peer_of_initialize(params)
        self._log_level = peer.log_level
        return encode({"protocolVersion": peer.version, "serverInfo": self._server.info, **self._introduction()})

    def _introduction(self) -> Json:
        instructions = self._server.instructions
        return {"capabilities": _CAPABILITIES} | ({"instructions": instructions} if instructions else {})

    def _complete(self, result: Json) -> bytes:
        """A result of 2026-07-28, with its type and the server's name."""
        meta = result.get("_meta")
        own_meta = cast(Json, meta) if isinstance(meta, dict) else {}
        return encode({"resultType": "complete", **result, "_meta": {SERVER_INFO: self._server.info, **own_meta}})

    # -- tools -------------------------------------------------------------------------------------------------------

    def _list(self, params: Json, peer: Peer) -> Json:
        if params.get("cursor") is not None:
            raise RpcRefusal(INVALID_PARAMS, "There is one page only: this cursor is not from here")
        return {"tools": [tool.listed(modern=peer.modern) for tool in self._server.tools.values()]}

    def _call(self, message: RpcMessage, peer: Peer) -> McpResult:
        name, arguments = message.params.get("name"), message.params.get("arguments")
        tool = self._server.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise RpcRefusal(INVALID_PARAMS, f"Unknown tool: {name}")
        if arguments is not None and not isinstance(arguments, dict):
            raise RpcRefusal(INVALID_PARAMS, "`arguments` must be an object")
        context = Context(
            tool.name,
            peer.client,
            peer.version,
            meta=message.meta,
            log_level=peer.log_level if peer.modern else self._log_level,
            send=self._notify_from_any_thread,
        )
        return partial(self._run, tool, cast(Json, arguments or {}), context, peer)

    async def _run(self, tool: ServerTool, arguments: Json, context: Context, peer: Peer) -> bytes:
        finished = False
        try:
            value = await tool.call(arguments, context, self._workers)
            finished = True
        except ToolError as error:
            finished = True
            return self._called(failed(str(error) or f"{tool.name} failed"), peer)
        finally:
            context.end(cancelled=not finished)
        try:
            return self._called(result_of(value, any_structure=peer.modern and tool.promises_data), peer)
        except NOT_JSON as error:
            return self._called(failed(f"{tool.name} returned what cannot be sent: {error}"), peer)

    def _called(self, result: Json, peer: Peer) -> bytes:
        return self._complete(result) if peer.modern else encode(result)

    def _notify_from_any_thread(self, message: bytes) -> None:
        try:
            in_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            in_loop = False
        if in_loop:
            self._notify(message)
        else:
            call_in_loop(self._loop, self._notify, message)

    # -- subscriptions -----------------------------------------------------------------------------------------------

    async def _listen(self, message: RpcMessage) -> bytes:
        """Answered when it ends: when the client cancels it or ends its side."""
        wanted: Any = message.params.get("notifications")
        if not isinstance(wanted, dict) or message.id is None:
            raise RpcRefusal(INVALID_PARAMS, "`notifications` must be an object")
        tools = cast(Json, wanted).get("toolsListChanged") is True
        honoured = {"toolsListChanged": True} if tools else {}
        self._notify_subscriber(message.id, "notifications/subscriptions/acknowledged", {"notifications": honoured})
        if tools:
            self._subscriptions.add(message.id)
        try:
            await self._ending.wait()
        finally:
            self._subscriptions.discard(message.id)
        return self._complete({"_meta": {SUBSCRIPTION_ID: message.id}})

    def _notify_subscriber(self, subscription: MessageId, method: str, params: Json) -> None:
        self._notify(notification(method, {**params, "_meta": {SUBSCRIPTION_ID: subscription}}))
