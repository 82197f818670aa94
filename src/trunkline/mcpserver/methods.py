"""What each method of MCP answers, for clients with a handshake and for those whose requests describe themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, cast

from trunkline.mcpserver.content import failed, result_of
from trunkline.mcpserver.context import Context
from trunkline.mcpserver.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    NOT_JSON,
    Json,
    Message,
    RpcError,
    encode,
    notification,
)
from trunkline.mcpserver.outgoing import Outgoing
from trunkline.mcpserver.peer import Peer, check_level, greeted, self_described
from trunkline.mcpserver.subscriptions import Subscriptions
from trunkline.mcpserver.threads import Threads
from trunkline.mcpserver.tool import Tool, ToolError, arguments_of
from trunkline.mcpserver.versions import SERVER_INFO, SUPPORTED

_CAPABILITIES: Final[Json] = {"tools": {"listChanged": True}, "logging": {}}
_LIST_HOLDS_MS: Final = 60_000
_THREADS: Final = 32

Result = bytes | Callable[[], Awaitable[bytes]]
"""A result as JSON, or what will have it."""


class Offer(Protocol):
    """What is served: the same for every client."""

    @property
    def info(self) -> Json: ...
    @property
    def instructions(self) -> str: ...
    @property
    def tools(self) -> Mapping[str, Tool]: ...


class Methods:
    """For one connection."""

    def __init__(self, offer: Offer, out: Outgoing) -> None:
        self._offer = offer
        self._out = out
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(_THREADS)
        self._subscriptions = Subscriptions(out)
        self._greeted: Peer | None = None
        self._listens = False
        self._log_level = ""

    @property
    def version(self) -> str:
        """What was agreed on in a handshake; empty where there was none."""
        return "" if self._greeted is None else self._greeted.version

    def tools_changed(self) -> None:
        if self._listens:
            self._out.tell(notification("notifications/tools/list_changed", {}))
        self._subscriptions.tools_changed()

    def end(self) -> None:
        """The client has said all: nothing goes on that only it could end."""
        self._subscriptions.end()

    def noticed(self, message: Message) -> None:
        if message.method == "notifications/initialized" and self._greeted is not None:
            self._listens = True

    def answer(self, message: Message) -> Result:
        """Raises RpcError for what is refused."""
        if message.method == "initialize":
            return self._initialize(message.params)
        peer = self_described(message)
        if peer is not None:
            return self._modern(message, peer)
        if message.method == "ping":
            return b"{}"
        if self._greeted is None:
            wanted = "send `initialize` first, or say in `_meta` which version this request is of"
            raise RpcError(INVALID_PARAMS, f"No protocol version was agreed on: {wanted}")
        return self._legacy(message, self._greeted)

    def _legacy(self, message: Message, peer: Peer) -> Result:
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
                raise _unknown(message.method)

    def _modern(self, message: Message, peer: Peer) -> Result:
        match message.method:
            case "server/discover":
                return self._complete({**self._hello(), "supportedVersions": list(SUPPORTED), **_held()})
            case "tools/list":
                return self._complete(self._list(message.params, peer) | _held())
            case "tools/call":
                return self._call(message, peer)
            case "subscriptions/listen":
                return partial(self._listen, message)
            case _:
                raise _unknown(message.method)

    # -- hello ----------------------------------------------------------------------------------------------------

    def _initialize(self, params: Json) -> bytes:
        self._greeted = peer = greeted(params)
        self._log_level = peer.log_level
        hello = {"protocolVersion": peer.version, "serverInfo": self._offer.info, **self._hello()}
        return encode(hello)

    def _hello(self) -> Json:
        instructions = self._offer.instructions
        return {"capabilities": _CAPABILITIES} | ({"instructions": instructions} if instructions else {})

    def _complete(self, result: Json) -> bytes:
        """A result of 2026-07-28, where each says of what kind it is and whose."""
        meta = result.get("_meta")
        told = cast(Json, meta) if isinstance(meta, dict) else {}
        return encode({"resultType": "complete", **result, "_meta": {SERVER_INFO: self._offer.info, **told}})

    # -- tools ----------------------------------------------------------------------------------------------------

    def _list(self, params: Json, peer: Peer) -> Json:
        if params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "There is one page only: this cursor is not from here")
        return {"tools": [tool.listed(modern=peer.modern) for tool in self._offer.tools.values()]}

    def _call(self, message: Message, peer: Peer) -> Result:
        name, arguments = message.params.get("name"), arguments_of(message.params)
        tool = self._offer.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        if arguments is None:
            raise RpcError(INVALID_PARAMS, "`arguments` must be an object")
        context = Context(
            tool.name,
            peer.client,
            peer.version,
            meta=message.meta,
            log_level=peer.log_level if peer.modern else self._log_level,
            tell=self._tell_from_anywhere,
        )
        return partial(self._run, tool, arguments, context, peer)

    async def _run(self, tool: Tool, arguments: Json, context: Context, peer: Peer) -> bytes:
        finished = False
        try:
            value = await tool.call(arguments, context, self._threads)
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

    def _tell_from_anywhere(self, message: bytes) -> None:
        """Handlers run in threads too."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._out.tell(message)
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._out.tell, message)

    # -- news -----------------------------------------------------------------------------------------------------

    async def _listen(self, message: Message) -> bytes:
        """It is answered when it ends, which is for the client to decide."""
        meta = await self._subscriptions.hold(message)
        return self._complete({"_meta": meta})


def _held() -> Json:
    """Everybody gets the same, and whoever listens is told when it changes."""
    return {"ttlMs": _LIST_HOLDS_MS, "cacheScope": "public"}


def _unknown(method: Any) -> RpcError:
    return RpcError(METHOD_NOT_FOUND, f"Unknown method: {method}")
