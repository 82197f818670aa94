"""A model that follows a script: as much of a model's API, on loopback, as an agent needs to talk to.

The script is a list of turns, or a function that picks the next one. Which turn answers a request is read off the
request's own history, so a request that is sent twice gets the same answer twice. What the model was asked is kept for
the test to look at. The APIs are in `tests/support/models/`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.models.anthropic import ANTHROPIC
from tests.support.models.script import (
    Api,
    ModelRequest,
    Reply,
    Script,
    ToolResult,
    Turn,
    Use,
    calls,
    in_order,
    says,
    use_id,
)

__all__ = [
    "ModelRequest",
    "Script",
    "ScriptedModel",
    "ToolResult",
    "Turn",
    "Use",
    "calls",
    "in_order",
    "says",
    "use_id",
]

_HEAD_BYTES = 64 * 1024
_TITLE = "a title"
_UNKNOWN = Reply(404, b'{"type":"error","error":{"type":"not_found_error","message":"not scripted"}}')


class ScriptedModel:
    """Listens from `async with` to its end. One connection carries one request: an agent has few of them."""

    def __init__(self, script: Script, api: Api = ANTHROPIC) -> None:
        self.script = script
        self.api = api
        self.requests: list[Any] = []
        """Every turn that was asked for, in order; side questions are left out."""
        self.unknown: list[str] = []
        """Requests that a model has no answer to."""
        self._server: asyncio.Server
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def result(self, turn: int, place: int = 0) -> ToolResult:
        """What the call at that place of the script came to."""
        return self.requests[-1].results[use_id(turn, place)]

    async def __aenter__(self) -> ScriptedModel:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, path, body = await _read_request(reader)
            writer.write(_bytes(await self._answer(method, path, body)))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # an agent may hang up at any time
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, body: bytes) -> Reply:
        place = path.partition("?")[0]
        request = self.api.parse(method, place, body)
        if request is not None:
            return await self._turn(request)
        other = self.api.other(method, place)
        if other is None:
            self.unknown.append(f"{method} {path}")
        return other or _UNKNOWN

    async def _turn(self, request: Any) -> Reply:
        if request.is_side_request:
            return self.api.respond(request, says(_TITLE))
        self.requests.append(request)
        turn = self.script(request)
        if turn.meanwhile is not None:
            await turn.meanwhile()
        return self.api.respond(request, turn)


# HTTP -----------------------------------------------------------------------------------------------------------------


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    """Method, path and body of the one request on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return method, path, await _read_chunks(reader)
    return method, path, await reader.readexactly(int(headers.get("content-length", "0")))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def _bytes(reply: Reply) -> bytes:
    head = f"HTTP/1.1 {reply.status} Scripted\r\nContent-Type: {reply.content_type}\r\n"
    return f"{head}Content-Length: {len(reply.body)}\r\nConnection: close\r\n\r\n".encode() + reply.body
