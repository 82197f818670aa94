"""An app's connection scripted by a test: it sends exactly the bytes that the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.support.waiting import at_most

LINE_LIMIT = 64 * 1024 * 1024
ECHO = "echo"

Handler = Callable[["AppPeer", dict[str, Any]], Awaitable[None] | None]


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}", "inputSchema": {"type": "object"}, **members}


class AppPeer:
    """One connection. `async with await AppPeer.dial(port) as app:` closes it at the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._serving: asyncio.Task[None] | None = None
        self.invoked: list[dict[str, Any]] = []
        self.cancelled: list[int] = []

    @classmethod
    async def dial(cls, where: int | str) -> AppPeer:
        """A port of this machine, or the path of a Unix socket."""
        if isinstance(where, int):
            return cls(*await asyncio.open_connection("127.0.0.1", where, limit=LINE_LIMIT))
        return cls(*await asyncio.open_unix_connection(where, limit=LINE_LIMIT))

    async def __aenter__(self) -> AppPeer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hang_up()

    # -- saying ---------------------------------------------------------------------------------------------------

    def say(self, *lines: bytes) -> None:
        self.writer.write(b"".join(line + b"\n" for line in lines))

    def send(self, message: dict[str, Any]) -> None:
        self.say(json.dumps(message).encode())

    async def register(self, name: str, tools: Iterable[str | dict[str, Any]] = (ECHO,), **more: Any) -> dict[str, Any]:
        """The gateway's word on it: `registered` or `refused`."""
        self.ask_to_register(name, tools, acknowledge=True, **more)
        return await self.hear()

    def ask_to_register(self, name: str, tools: Iterable[str | dict[str, Any]] = (ECHO,), **more: Any) -> None:
        offered = [tool(item) if isinstance(item, str) else item for item in tools]
        self.send({"type": "register", "appName": name, "tools": offered, **more})

    def answer(self, invocation: dict[str, Any] | int, data: Any = None, **result: Any) -> None:
        number = invocation if isinstance(invocation, int) else invocation["correlationId"]
        whole = {"success": True, "data": data, "error": None, **result}
        self.send({"type": "toolResponse", "correlationId": number, "result": whole})

    # -- hearing --------------------------------------------------------------------------------------------------

    async def hear_line(self) -> bytes:
        """The next line; empty at the end."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.readline()
        return b""

    async def hear(self) -> dict[str, Any]:
        line = await self.hear_line()
        assert line, "the gateway closed the connection"
        return json.loads(line)

    async def ended(self) -> None:
        """Until the gateway has closed the connection; whatever it says before is dropped."""
        while await self.hear_line():
            pass

    def serve(self, handler: Handler | None = None) -> None:
        """Answer every call from now on: with its parameters, unless a handler says otherwise."""
        self._serving = asyncio.ensure_future(self._serve(handler or _echo))

    async def _serve(self, handler: Handler) -> None:
        while line := await self.hear_line():
            message = json.loads(line)
            if message["type"] == "toolInvocation":
                self.invoked.append(message)
                going_on = handler(self, message)
                if going_on is not None:
                    await going_on
            elif message["type"] == "toolCancel":
                self.cancelled.append(message["correlationId"])

    # -- leaving --------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Gone at once, without a goodbye."""
        self.writer.transport.abort()

    async def hang_up(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        self.writer.close()
        try:
            async with asyncio.timeout(at_most(5)):
                await self.writer.wait_closed()
        except TimeoutError:
            self.writer.transport.abort()
        except ConnectionError:
            pass  # it is gone already


def _echo(app: AppPeer, invocation: dict[str, Any]) -> None:
    app.answer(invocation, invocation["parameters"])
