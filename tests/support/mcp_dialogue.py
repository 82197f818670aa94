"""A client of `trunkline.mcpserver` within the test's own loop, message by message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from tests.support.waiting import at_most, until

from trunkline.mcpserver import Server

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Heard:
    """The server's writer. `open_` is cleared by a client that stops reading."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False
        self.open_ = asyncio.Event()
        self.open_.set()

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        await self.open_.wait()

    def close(self) -> None:
        self.closed = True

    @property
    def messages(self) -> list[Any]:
        return [json.loads(line) for line in self.data.split(b"\n")[:-1]]


class Dialogue:
    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.writer = Heard()
        self._ids = count(1)

    def say_bytes(self, data: bytes) -> None:
        self.reader.feed_data(data)

    def say(self, message: Any) -> None:
        self.say_bytes(json.dumps(message).encode() + b"\n")

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.say({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def request(self, method: str, params: dict[str, Any] | None = None, *, number: Any = None) -> Any:
        """Send a request; its id."""
        number = f"r{next(self._ids)}" if number is None else number
        self.say({"jsonrpc": "2.0", "id": number, "method": method, **({} if params is None else {"params": params})})
        return number

    async def heard(self, count_: int) -> list[Any]:
        """At least so many messages."""
        await until(lambda: len(self.writer.messages) >= count_, f"{count_} messages, not {self.writer.messages}")
        return self.writer.messages

    async def answer_to(self, number: Any) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            answers = [message for message in self.writer.messages if isinstance(message, dict)]
            return next((one for one in answers if "method" not in one and one.get("id") == number), None)

        return await until(found, f"an answer to {number}") or {}

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.answer_to(self.request(method, params))

    async def ask_modern(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        return await self.ask(method, {**(params or {}), "_meta": {**MODERN_META, **meta}})

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The result of a tool, in a connection that was greeted."""
        return (await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **params}))["result"]

    async def greet(self, version: str = "2025-11-25") -> dict[str, Any]:
        client = {"name": "tester", "version": "7"}
        params = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": client}
        hello = await self.ask("initialize", params)
        self.notify("notifications/initialized")
        return hello["result"]

    def notices(self, method: str) -> list[dict[str, Any]]:
        messages = [message for message in self.writer.messages if isinstance(message, dict)]
        return [message["params"] for message in messages if message.get("method") == method]


@asynccontextmanager
async def talking_to(server: Server, *, greeted: str = "2025-11-25") -> AsyncIterator[Dialogue]:
    """A client of this server; at the end it hangs up, and the server must let go of it."""
    dialogue = Dialogue()
    serving = asyncio.get_running_loop().create_task(server.serve(dialogue.reader, dialogue.writer))
    try:
        if greeted:
            await dialogue.greet(greeted)
        yield dialogue
        dialogue.reader.feed_eof()
        await asyncio.wait_for(serving, at_most(10))
        assert dialogue.writer.closed
    finally:
        serving.cancel()
        await asyncio.wait([serving])
