"""A stream that a test reads in the background: every message that came on it so far."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.support.client import META, HttpClient, ModernClient, call_params, encode, modern_headers, modern_meta
from tests.support.http_wire import Wire, request_bytes
from tests.support.waiting import until

ELICITATION = "elicitation/create"
FORMS: dict[str, Any] = {"elicitation": {}}


class MessageStream:
    """The messages of one response, in order, until it ends or is closed."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.messages: list[dict[str, Any]] = []
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            reply = await self.wire.read_head()
            if not reply.streamed:
                body = b"".join([part async for part in self.wire.body_parts(reply)])
                self.messages += [json.loads(body)] if body else []
                return
            async for event in self.wire.events(reply):
                self.messages.append(json.loads(event))

    def of(self, method: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message.get("method") == method]

    async def first(self, method: str) -> dict[str, Any]:
        return (await until(lambda: self.of(method), f"{method} is said"))[0]

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if "method" not in message]

    async def answer(self) -> dict[str, Any]:
        """The only one there is; nothing comes after it."""
        await until(self._reading.done, "the stream ends")
        (answer,) = self.answers
        assert self.messages[-1] is answer
        return answer

    async def drop(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self.wire.abort()


@contextlib.asynccontextmanager
async def posting(
    client: HttpClient, method: str, params: dict[str, Any], request_id: int = 7
) -> AsyncIterator[MessageStream]:
    """A request whose stream is read from now on."""
    headers: dict[str, str] = {}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    if isinstance(client, ModernClient):
        message = client.message(method, params, id=request_id)
        headers = modern_headers(method, message["params"])
    wire = await Wire.connect(client.port)
    await wire.send(client.post_bytes(encode(message), headers))
    stream = MessageStream(wire)
    try:
        yield stream
    finally:
        await stream.drop()


def asking(client: HttpClient, tool: str, **arguments: Any) -> contextlib.AbstractAsyncContextManager[MessageStream]:
    return posting(client, "tools/call", call_params(tool, arguments, None))


@contextlib.asynccontextmanager
async def own_stream(client: HttpClient) -> AsyncIterator[MessageStream]:
    """The standalone stream of a session."""
    wire = await Wire.connect(client.port)
    await wire.send(request_bytes("GET", client.path, {**client.headers, "Accept": "text/event-stream"}))
    stream = MessageStream(wire)
    try:
        yield stream
    finally:
        await stream.drop()


async def reply(client: HttpClient, question: dict[str, Any], result: dict[str, Any]) -> None:
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
    assert (await client.post(encode(answer))).status == 202


class SuspendedCall:
    """A call of a client of 2026-07-28 that waits for an answer of its user."""

    def __init__(self, client: ModernClient, tool: str, **arguments: Any) -> None:
        meta = {**modern_meta(), f"{META}clientCapabilities": FORMS}
        self._client = client
        self._params = {**call_params(tool, arguments, None), "_meta": meta}
        self._round: dict[str, Any] = {}

    async def start(self) -> SuspendedCall:
        result = (await self._client.request("tools/call", self._params)).result
        assert result["resultType"] == "input_required"
        answers = {key: {"action": "accept", "content": {}} for key in result["inputRequests"]}
        self._round = {"requestState": result["requestState"], "inputResponses": answers}
        return self

    async def retry(self) -> dict[str, Any]:
        return (await self._client.request("tools/call", {**self._params, **self._round})).message
