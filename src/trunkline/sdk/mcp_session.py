"""One client's session with an MCP server: its requests are answered, its calls run side by side.

A client opens with `initialize`, or its requests describe themselves (2026-07-28).
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from . import mcp_messages as rpc
from .json_lines import NOT_JSON, Json, encode
from .mcp_tools import Context, ServerTool
from .results import ToolError, failed, result_of
from .threads import FunctionThreads, call_in_loop, is_in

if TYPE_CHECKING:
    from .mcpserver import Server

_CAPABILITIES: Final[Json] = {"tools": {"listChanged": True}, "logging": {}}
_CACHE_HINTS: Final[Json] = {"ttlMs": 60_000, "cacheScope": "public"}
"""All clients get the same lists, and those that listen are notified of changes."""
_THREADS: Final = 32
_MAX_CALLS: Final = 4096
"""More than clients allow themselves, those that are being cancelled and subscriptions counted too."""

T = TypeVar("T")
Response = bytes | asyncio.Task[bytes]
McpResult = bytes | Callable[[], Awaitable[bytes]]
"""A result as JSON, or a function that produces it."""


class McpSession:
    """`send` takes answers, and requests to the client; `notify` takes notifications, which may be dropped."""

    def __init__(self, server: Server, send: Callable[[bytes], object], notify: Callable[[bytes], object]) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        """The requests that are still being answered."""
        self._server = server
        self._send = send
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._workers = FunctionThreads(_THREADS)
        self._initialized: rpc.Peer | None = None
        self._wants_changes = self._has_changes = False
        self._log_level = ""
        self._subscriptions: set[rpc.MessageId] = set()
        self._calls: dict[rpc.MessageId, asyncio.Task[bytes]] = {}
        self._request_ids = itertools.count(1)
        self._replies: dict[str, asyncio.Future[Json]] = {}
        self._ending = asyncio.Event()

    def assume(self, version: str) -> None:
        """Go on as after an `initialize` of this version."""
        self._initialized = rpc.Peer(rpc.Client(), version, "")

    def end(self) -> None:
        """The client sends no more: subscriptions, which only it could end, are answered, and it replies to nothing."""
        self._ending.set()
        for request_id in self._replies:
            self._replied({"id": request_id})

    def close(self) -> None:
        self._workers.close()

    def tools_changed(self) -> None:
        """Notify the client, once for several changes. A handler may cause them from its thread."""
        if not self._has_changes:
            self._has_changes = True
            call_in_loop(self._loop, self._notify_changed)

    def _notify_changed(self) -> None:
        self._has_changes = False
        if self._wants_changes:
            self._notify(rpc.notification("notifications/tools/list_changed", {}))
        for subscription in self._subscriptions:
            self._notify_subscriber(subscription, "notifications/tools/list_changed", {})

    # -- messages ----------------------------------------------------------------------------------------------------

    def handle(self, line: bytes) -> None:
        """Take a message, or a batch of them."""
        try:
            value = rpc.decode(line)
            if isinstance(value, list):
                self._handle_batch(cast(list[Any], value))
                return
        except rpc.RpcRefusal as error:
            self._send(rpc.refusal(None, error))
            return
        answer = self._begin(value)
        if isinstance(answer, asyncio.Task):
            answer.add_done_callback(lambda task: task.cancelled() or self._send(task.result()))
        elif answer is not None:
            self._send(answer)

    def _handle_batch(self, values: list[Any]) -> None:
        """Handle several messages in one, which only 2025-03-26 has."""
        if self._initialized is None or self._initialized.version != rpc.WITH_BATCHES:
            raise rpc.RpcRefusal(rpc.INVALID_REQUEST, f"Batches are for {rpc.WITH_BATCHES} only")
        if not values:
            raise rpc.RpcRefusal(rpc.INVALID_REQUEST, "The batch is empty")
        self._create_task(self._answer_batch([self._begin(value, in_batch=True) for value in values]))

    async def _answer_batch(self, answers: list[Response | None]) -> None:
        """All answers together, once the last is there; calls that were cancelled have none."""
        if pending := [answer for answer in answers if isinstance(answer, asyncio.Task)]:
            await asyncio.wait(pending)
        ready = [
            answer.result() if isinstance(answer, asyncio.Task) else answer
            for answer in answers
            if answer is not None and not (isinstance(answer, asyncio.Task) and answer.cancelled())
        ]
        if ready:
            self._send(b"[%b]" % b",".join(ready))

    def _begin(self, value: Any, *, in_batch: bool = False) -> Response | None:
        """The answer to a message, or the task that will have it; None if none is due."""
        message_id: rpc.MessageId | None = None
        try:
            message_id = rpc.read_id(value)
            message = rpc.read_message(value, message_id)
            if message is None:
                self._replied(value)
                return None
            if message_id is None:
                self._notified(message)
                return None
            if in_batch and message.method == "initialize":
                raise rpc.RpcRefusal(rpc.INVALID_REQUEST, "`initialize` must not be part of a batch")
            if message_id in self._calls:
                raise rpc.RpcRefusal(rpc.INVALID_REQUEST, "A request with this `id` is still being answered")
            result = self._answer(message)
            return rpc.response(message_id, result) if isinstance(result, bytes) else self._start(message_id, result)
        except rpc.RpcRefusal as error:
            return rpc.refusal(message_id, error)

    def _notified(self, message: rpc.RpcMessage) -> None:
        if message.method == "notifications/initialized" and self._initialized is not None:
            self._wants_changes = True
        elif message.method == "notifications/cancelled":
            request_id = message.params.get("requestId")
            if rpc.is_id(request_id) and request_id in self._calls:
                self._calls[request_id].cancel()

    def _start(self, message_id: rpc.MessageId, work: Callable[[], Awaitable[bytes]]) -> asyncio.Task[bytes]:
        if len(self._calls) >= _MAX_CALLS:
            raise rpc.RpcRefusal(
                rpc.INTERNAL_ERROR, f"{_MAX_CALLS:,} calls are being answered already: try again later"
            )
        task = self._calls[message_id] = self._create_task(_answered(message_id, work))
        task.add_done_callback(lambda _: self._calls.pop(message_id, None))
        return task

    def _create_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # -- requests to the client --------------------------------------------------------------------------------------

    async def request(self, method: str, params: Json) -> Json:
        """Send a request. Returns the client's result; empty for an error, or if the client ends without a reply."""
        if self._ending.is_set():
            return {}
        request_id = f"server-{next(self._request_ids)}"
        self._replies[request_id] = reply = self._loop.create_future()
        self._send(encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}))
        try:
            return await reply
        finally:
            del self._replies[request_id]

    def _replied(self, members: Json) -> None:
        reply, result = self._replies.get(str(members.get("id"))), members.get("result")
        if reply is not None and not reply.done():
            reply.set_result(cast(Json, result) if isinstance(result, dict) else {})

    # -- methods -----------------------------------------------------------------------------------------------------

    def _answer(self, message: rpc.RpcMessage) -> McpResult:
        """Answer a request. Raises RpcRefusal if it is refused."""
        if message.method == "initialize":
            self._initialized = peer = rpc.peer_of_initialize(message.params)
            self._log_level = peer.log_level
            described = {"protocolVersion": peer.version, "serverInfo": self._server.info, **self._introduction()}
            return encode(described)
        if handler := self._server.methods.get(message.method):
            return partial(_handled, handler, message.params)
        peer = rpc.peer_of_request(message)
        if peer is None:
            if message.method == "ping":
                return b"{}"
            if self._initialized is None:
                wanted = "send `initialize` first, or say in `_meta` which version this request is of"
                raise rpc.RpcRefusal(rpc.INVALID_PARAMS, f"No protocol version was agreed on: {wanted}")
            peer = self._initialized
        return self._answer_peer(message, peer)

    def _answer_peer(self, message: rpc.RpcMessage, peer: rpc.Peer) -> McpResult:
        match message.method:
            case "tools/list":
                listed = self._list(message.params, peer)
                return self._complete(listed | _CACHE_HINTS) if peer.modern else encode(listed)
            case "tools/call":
                return self._call(message, peer)
            case "logging/setLevel" if not peer.modern:
                rpc.check_level(message.params.get("level"))
                self._log_level = message.params["level"]
                return b"{}"
            case "server/discover" if peer.modern:
                versions = {"supportedVersions": list(rpc.SUPPORTED)}
                return self._complete({**self._introduction(), **versions, **_CACHE_HINTS})
            case "subscriptions/listen" if peer.modern:
                return partial(self._listen, message)
            case _:
                raise rpc.RpcRefusal(rpc.METHOD_NOT_FOUND, f"Unknown method: {message.method}")

    def _introduction(self) -> Json:
        instructions = self._server.instructions
        capabilities = {"capabilities": {**_CAPABILITIES, **self._server.capabilities}}
        return capabilities | ({"instructions": instructions} if instructions else {})

    def _complete(self, result: Json) -> bytes:
        """A result of 2026-07-28, with its type and the server's name."""
        meta = result.get("_meta")
        own_meta = cast(Json, meta) if isinstance(meta, dict) else {}
        return encode({"resultType": "complete", **result, "_meta": {rpc.SERVER_INFO: self._server.info, **own_meta}})

    # -- tools -------------------------------------------------------------------------------------------------------

    def _list(self, params: Json, peer: rpc.Peer) -> Json:
        if params.get("cursor") is not None:
            raise rpc.RpcRefusal(rpc.INVALID_PARAMS, "Unknown cursor: the list has only one page")
        return {"tools": [tool.listed(modern=peer.modern) for tool in self._server.tools.values()]}

    def _call(self, message: rpc.RpcMessage, peer: rpc.Peer) -> McpResult:
        name, arguments = message.params.get("name"), message.params.get("arguments")
        tool = self._server.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise rpc.RpcRefusal(rpc.INVALID_PARAMS, f"Unknown tool: {name}")
        if arguments is not None and not isinstance(arguments, dict):
            raise rpc.RpcRefusal(rpc.INVALID_PARAMS, "`arguments` must be an object")
        context = Context(
            tool.name,
            peer.client,
            peer.version,
            meta=message.meta,
            log_level=peer.log_level if peer.modern else self._log_level,
            send=self._notify_from_any_thread,
            request=self.request,
        )
        return partial(self._run, tool, cast(Json, arguments or {}), context, peer)

    async def _run(self, tool: ServerTool, arguments: Json, context: Context, peer: rpc.Peer) -> bytes:
        finished = False
        try:
            value = await tool.call(arguments, context, self._workers)
            finished = True
            result = result_of(value, any_structure=peer.modern and tool.promises_data)
            return self._called(result, peer)
        except ToolError as error:
            finished = True
            return self._called(failed(str(error)), peer)
        except NOT_JSON as error:
            return self._called(failed(f"The result of `{tool.name}` cannot be sent: {error}"), peer)
        finally:
            context.end(cancelled=not finished)

    def _called(self, result: Json, peer: rpc.Peer) -> bytes:
        return self._complete(result) if peer.modern else encode(result)

    def _notify_from_any_thread(self, message: bytes) -> None:
        if is_in(self._loop):
            self._notify(message)
        else:
            call_in_loop(self._loop, self._notify, message)

    # -- subscriptions -----------------------------------------------------------------------------------------------

    async def _listen(self, message: rpc.RpcMessage) -> bytes:
        """A subscription, answered when it ends: when the client cancels it or ends its side."""
        wanted: Any = message.params.get("notifications")
        if not isinstance(wanted, dict) or message.id is None:
            raise rpc.RpcRefusal(rpc.INVALID_PARAMS, "`notifications` must be an object")
        tools = cast(Json, wanted).get("toolsListChanged") is True
        honoured = {"toolsListChanged": True} if tools else {}
        self._notify_subscriber(message.id, "notifications/subscriptions/acknowledged", {"notifications": honoured})
        if tools:
            self._subscriptions.add(message.id)
        try:
            await self._ending.wait()
        finally:
            self._subscriptions.discard(message.id)
        return self._complete({"_meta": {rpc.SUBSCRIPTION_ID: message.id}})

    def _notify_subscriber(self, subscription: rpc.MessageId, method: str, params: Json) -> None:
        self._notify(rpc.notification(method, {**params, "_meta": {rpc.SUBSCRIPTION_ID: subscription}}))


async def _handled(handler: Callable[[Json], Any], params: Json) -> bytes:
    result = handler(params)
    return encode(await result if inspect.isawaitable(result) else result)


async def _answered(message_id: rpc.MessageId, work: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return rpc.response(message_id, await work())
    except rpc.RpcRefusal as error:
        return rpc.refusal(message_id, error)
    except Exception as error:
        return rpc.refusal(message_id, rpc.RpcRefusal(rpc.INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
