"""A scripted gateway for apps: records what it receives and answers as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.waiting import PATIENCE_S

Greeting = Callable[[dict[str, Any]], dict[str, Any] | None]


def accept(register: dict[str, Any]) -> dict[str, Any]:
    name = register["appName"]
    return {"type": "registered", "appName": name, "server": name, "tools": len(register["tools"]), "warnings": []}


def refuse(register: dict[str, Any]) -> dict[str, Any]:
    return {"type": "refused", "code": "TL415", "message": f"an app named `{register['appName']}` is connected already"}


def silent(_: dict[str, Any]) -> None:
    """As a proxy that knows no acknowledgement."""


class Dialled:
    """One app on the line. `register` is its first message, as it was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greet: Greeting) -> None:
        self._reader = reader
        self._writer = writer
        self._greet = greet
        self._ids = iter(range(1, 1_000_000))
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.registers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.progress: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.received: list[dict[str, Any]] = []
        self.ended = asyncio.Event()

    async def serve(self) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await self._reader.readline():
                if line.strip():
                    self._take(json.loads(line))
        self.ended.set()
        self._writer.close()

    def _take(self, message: dict[str, Any]) -> None:
        self.received.append(message)
        if message["type"] == "register":
            self.registers.put_nowait(message)
            answer = self._greet(message)
            if answer:
                self.write(answer)
            if answer and answer["type"] == "refused":
                self._writer.close()
        elif message["type"] == "toolProgress":
            self.progress.put_nowait(message)
        elif (waiting := self._answers.pop(message["correlationId"], None)) and not waiting.done():
            waiting.set_result(message["result"])

    def write(self, message: dict[str, Any]) -> None:
        self.write_raw(json.dumps(message).encode() + b"\n")

    def write_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def invoke(self, tool: str, parameters: Any = None) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """The call's id and its result to come."""
        number = next(self._ids)
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        self.write({"type": "toolInvocation", "correlationId": number, "tool": tool, "parameters": parameters or {}})
        return number, waiting

    async def call(self, tool: str, **parameters: Any) -> dict[str, Any]:
        _, result = self.invoke(tool, parameters)
        return await asyncio.wait_for(result, PATIENCE_S)

    async def data(self, tool: str, **parameters: Any) -> Any:
        result = await self.call(tool, **parameters)
        assert result["success"], result
        return result["data"]

    async def error(self, tool: str, **parameters: Any) -> str:
        result = await self.call(tool, **parameters)
        assert not result["success"], result
        return result["error"]

    def cancel(self, number: int) -> None:
        self.write({"type": "toolCancel", "correlationId": number})

    async def registered(self) -> dict[str, Any]:
        """Its next register that was not looked at yet."""
        return await asyncio.wait_for(self.registers.get(), PATIENCE_S)

    def hang_up(self) -> None:
        """Without a word, as when its machine is gone."""
        self._writer.transport.abort()

    def finish(self) -> None:
        """In order."""
        self._writer.close()


class DialinGateway:
    """Listens while the `with` lasts, at a port of its own or at the path it is given."""

    def __init__(self, *, path: Path | None = None, greet: Greeting = accept) -> None:
        self._path = path
        self.greet = greet
        self.port = 0
        self.dials: asyncio.Queue[Dialled] = asyncio.Queue()
        self.dial_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._apps: list[Dialled] = []

    @property
    def address(self) -> str:
        return str(self._path) if self._path else f"127.0.0.1:{self.port}"

    async def dialled(self) -> Dialled:
        """The next app that dials in."""
        return await asyncio.wait_for(self.dials.get(), PATIENCE_S)

    def _on_dial(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        app = Dialled(reader, writer, self.greet)
        self.dial_count += 1
        self._apps.append(app)
        task = asyncio.get_running_loop().create_task(app.serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.dials.put_nowait(app)

    async def start(self) -> None:
        if self._path:
            self._server = await asyncio.start_unix_server(self._on_dial, str(self._path), limit=1 << 26)
        else:
            self._server = await asyncio.start_server(self._on_dial, "127.0.0.1", self.port, limit=1 << 26)
            self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for app in self._apps:
            app.hang_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._apps.clear()

    async def __aenter__(self) -> DialinGateway:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
