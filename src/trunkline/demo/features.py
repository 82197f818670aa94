"""Adds resources, prompts, completion and questions to the user to `trunkline.mcpserver`, which has tools only."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final, cast

from trunkline.mcpserver import Context, Reader, Server, Writer

Json = dict[str, Any]
Method = Callable[[Json], Json]

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002


class MethodError(Exception):
    """A request that is refused with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({} if data is None else {"data": data})


class FeatureServer(Server):
    """A server that answers further methods beside those of tools, and whose tools can ask the user something.

    It is for clients that open with `initialize`: 2026-07-28 has other shapes for all of this, and is not offered.
    """

    def __init__(self, name: str, version: str, instructions: str, *, title: str, capabilities: Json) -> None:
        super().__init__(name, version, instructions, title=title)
        self.capabilities = capabilities
        self.methods: dict[str, Method] = {"server/discover": _not_offered}

    def method(self, name: str) -> Callable[[Method], Method]:
        """Decorator for a function from a request's params to its result."""

        def register(function: Method) -> Method:
            self.methods[name] = function
            return function

        return register

    async def serve(self, reader: Reader, writer: Writer) -> None:
        filtered = _Filter(self, reader, writer)
        _connection.set(filtered)  # the tasks and threads of this connection's calls inherit it
        await super().serve(filtered, filtered)


async def ask_user(context: Context, message: str, form: Json) -> Json | None:
    """What the user filled into the form; None for one who does not, or whose client cannot show it."""
    connection = _connection.get(None)
    can_be_asked = context.protocol_version <= "2025-11-25" and "elicitation" in context.client.capabilities
    if connection is None or not can_be_asked:
        return None
    reply = await connection.request("elicitation/create", {"message": message, "requestedSchema": form})
    content = reply.get("content")
    return cast(Json, content) if reply.get("action") == "accept" and isinstance(content, dict) else None


class _Filter:
    """One connection, between its stream and the server: the messages of our methods are taken out here."""

    def __init__(self, server: FeatureServer, reader: Reader, writer: Writer) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._partial = b""
        self._initialize_id: Any = None
        self._request_ids = itertools.count(1)
        self._replies: dict[str, asyncio.Future[Json]] = {}

    async def request(self, method: str, params: Json) -> Json:
        """The client's result; empty for an error, and for a client that is gone."""
        request_id = f"demo-{next(self._request_ids)}"
        self._replies[request_id] = reply = asyncio.get_running_loop().create_future()
        self._send({"id": request_id, "method": method, "params": params})
        try:
            return await reply
        finally:
            self._replies.pop(request_id, None)

    # -- from the client ------------------------------------------------------------------------------------------

    async def read(self, n: int, /) -> bytes:
        while data := await self._reader.read(n):
            *lines, self._partial = (self._partial + data).split(b"\n")
            passed = b"".join(line + b"\n" for line in lines if not self._take(line))
            await self._writer.drain()
            if passed:
                return passed
        last, self._partial = self._partial, b""
        passed = b"" if self._take(last) else last
        while self._replies:  # nobody answers them any more
            _settle(self._replies.popitem()[1], {})
        return passed

    def _take(self, line: bytes) -> bool:
        """Whether this message was for us. What is no message is for the server to refuse."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return False
        match message:
            case {"method": "initialize", "id": request_id}:
                self._initialize_id = request_id
                return False
            case {"method": str(name), "id": str() | int() as request_id} if name in self._server.methods:
                self._send({"id": request_id, **_answer(self._server.methods[name], message.get("params"))})
                return True
            case {"id": str(request_id)} if "method" not in message and request_id in self._replies:
                _settle(self._replies.pop(request_id), message.get("result"))
                return True
            case _:
                return False

    # -- to the client --------------------------------------------------------------------------------------------

    def write(self, data: bytes, /) -> None:
        """Whole messages of the server. Its answer to `initialize` gets our capabilities added."""
        if self._initialize_id is None or b'"capabilities"' not in data:
            self._writer.write(data)
            return
        for line in data.splitlines():
            message = json.loads(line)
            if message.get("id") == self._initialize_id and "result" in message:
                message["result"]["capabilities"] |= self._server.capabilities
                self._initialize_id = None
            self._send(message)

    def _send(self, message: Json) -> None:
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


_connection: Final[ContextVar[_Filter]] = ContextVar("connection")


def _settle(reply: asyncio.Future[Json], result: Any) -> None:
    if not reply.done():
        reply.set_result(cast(Json, result) if isinstance(result, dict) else {})


def _answer(method: Method, params: Any) -> Json:
    try:
        if not isinstance(params, dict | None):
            raise MethodError(INVALID_PARAMS, "`params` must be an object")
        return {"result": method(cast(Json, params or {}))}
    except MethodError as refused:
        return {"error": refused.error}
    except Exception as error:
        return {"error": {"code": INTERNAL_ERROR, "message": f"{type(error).__name__}: {error}"}}


def completion(values: Iterable[str], params: Json) -> Json:
    """Those of the values that begin with what is typed so far, in any case."""
    argument = params.get("argument")
    typed = str(cast(Json, argument).get("value", "")).casefold() if isinstance(argument, dict) else ""
    found = [value for value in values if value.casefold().startswith(typed)]
    return {"completion": {"values": found[:100], "total": len(found), "hasMore": len(found) > 100}}


def _not_offered(params: Json) -> Json:
    raise MethodError(METHOD_NOT_FOUND, "This server is for clients that open with `initialize`")
