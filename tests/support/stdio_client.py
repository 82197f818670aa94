"""An MCP client for tests on the pipes of a program it starts. Small, raw, and able to send anything."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.answers import Answer
from tests.support.client import CLIENT_INFO, LEGACY, Client, encode
from tests.support.http_wire import LINE_LIMIT
from tests.support.waiting import at_most, until


class StdioClient(Client):
    """Every line of the program's output is kept, and must be a message.

    The process is waited for apart from its pipes: a grandchild that holds them must not hold up a test.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        super().__init__()
        self.command = command
        self.log_path = log
        self.lines: list[bytes] = []
        self.notices: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes]
        self._waiting: dict[tuple[type, Any], asyncio.Future[Answer]] = {}
        self._input: asyncio.WriteTransport
        self._output: asyncio.ReadTransport
        self._reader: asyncio.Task[None]

    @property
    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    async def start(self) -> StdioClient:
        loop = asyncio.get_running_loop()
        pipe = subprocess.PIPE
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=log, bufsize=0)
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self.process.stdin)
        reader = asyncio.StreamReader(LINE_LIMIT)
        self._output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self.process.stdout
        )
        self._reader = loop.create_task(self._read(reader))
        return self

    async def open(self, capabilities: dict[str, Any] | None = None) -> StdioClient:
        params = {"protocolVersion": LEGACY, "capabilities": capabilities or {}, "clientInfo": CLIENT_INFO}
        answer = await self.request("initialize", params)
        assert answer.result["protocolVersion"] == LEGACY
        self.notify("notifications/initialized")
        return self

    async def request(self, method: str, params: dict[str, Any] | None = None, *, id: Any = None) -> Answer:  # noqa: A002
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.next_id() if id is None else id, "method": method}
        if params is not None:
            message["params"] = params
        waiting = self.expect(message["id"])
        self.send(encode(message))
        return await waiting

    def expect(self, id: Any) -> asyncio.Future[Answer]:  # noqa: A002
        """The answer to an id that the test sends by itself."""
        return self._waiting.setdefault((type(id), id), asyncio.get_running_loop().create_future())

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self.send(encode(message))

    def cancel(self, id: Any) -> None:  # noqa: A002
        self.notify("notifications/cancelled", {"requestId": id, "reason": "test"})

    def send(self, line: bytes) -> None:
        self.send_bytes(line + b"\n")

    def send_bytes(self, data: bytes) -> None:
        self._input.write(data)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        before: list[dict[str, Any]] = []
        while line := await reader.readline():
            self.lines.append(line)
            message = json.loads(line) if line.endswith(b"\n") else {"method": "half a line"}
            if "method" in message:
                before.append(message)
                self.notices.append(message)
                continue
            waiting = self._waiting.pop((type(message.get("id")), message.get("id")), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(Answer(line, before))
                before = []
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(EOFError("the server closed its output"))
                waiting.exception()

    def answers_for(self, id: Any) -> int:  # noqa: A002
        """How many frames answered this id."""
        messages = [json.loads(line) for line in self.lines]
        return sum(1 for message in messages if "method" not in message and message.get("id") == id)

    def end_input(self) -> None:
        self._input.close()

    def stop_reading(self) -> None:
        """Close our end of its output, as a client that crashed would."""
        self._output.close()

    def stop_listening(self) -> None:
        """Leave what it says in the pipe, until `listen_again`."""
        self._output.pause_reading()

    def listen_again(self) -> None:
        self._output.resume_reading()

    async def wait(self) -> int:
        """Its exit status."""
        await until(lambda: self.process.poll() is not None, "the program ends")
        return self.process.returncode

    async def close(self) -> None:
        self.end_input()
        if any(not waiting.done() for waiting in self._waiting.values()):
            self.stop_reading()  # a client that is gone for good: what it still waits for is not waited for there
        try:
            if self.process.poll() is None:
                await self.wait()
            await asyncio.wait([self._reader], timeout=at_most(5))
        finally:
            if self._input.get_write_buffer_size():
                self._input.abort()
            self._output.close()
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()

    async def __aenter__(self) -> StdioClient:
        return await self.start()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await self.close()
        finally:
            if error is not None:
                print(self.log[-20_000:])
