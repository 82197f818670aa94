"""Clients that stay connected, like an editor or an agent, and list again only when notified."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import MCPError
from tests.support.first_hour.household import CLIENT
from tests.support.peers.clients import RealClient, connect
from tests.support.peers.programs import NODE, NODE_PACKAGES
from tests.support.waiting import PATIENCE_S, at_most, until

_NODE_CLIENT = Path(__file__).with_name("node_client.mjs")
_LINE_BYTES = 16 * 1024 * 1024
_CONNECT_S = 30.0
_CALL_S = at_most(60)


@dataclass(frozen=True)
class Outcome:
    """What a call came to. `refused` is the number of a JSON-RPC error, whose message is the text then."""

    text: str
    structured: dict[str, Any] | None = None
    refused: int | None = None


class PythonClient:
    """The official Python SDK's, in the newest version of the protocol."""

    def __init__(self, client: RealClient) -> None:
        self._client = client
        self.view: set[str] = set()

    async def follow(self) -> None:
        """Keep the view up to date, from notification to notification."""
        async with self._client.listening() as changed:
            while True:
                self.view = await self._client.names()
                await changed()

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        try:
            result = await self._client.call(tool, arguments)
        except MCPError as error:
            return Outcome(error.error.message, refused=error.error.code)
        return Outcome(result.content[0].text, result.structured_content)


class TypeScriptClient:
    """The TypeScript SDK's, which speaks the versions with a handshake."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.view: set[str] = set()
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}

    async def follow(self) -> None:
        """Read what the client writes, until it ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "view" in message:
                self.view = set(message["view"])
            else:
                self._waiting.pop(message["id"]).set_result(_outcome(message))
        for answer in self._waiting.values():
            answer.cancel()

    async def call(self, tool: str, **arguments: Any) -> Outcome:
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        request = {"id": number, "name": tool, "arguments": arguments}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(_CALL_S):
            return await answer


def _outcome(message: dict[str, Any]) -> Outcome:
    if "error" in message:
        return Outcome(message["error"]["message"], refused=message["error"]["code"])
    result = message["result"]
    return Outcome(result["content"][0]["text"], result.get("structuredContent"))


Viewer = PythonClient | TypeScriptClient


class Audience:
    """One client of each kind, both connected to the same gateway."""

    def __init__(self, *clients: Viewer) -> None:
        self.clients = clients

    async def sees(self, names: set[str]) -> None:
        """Wait until every client has been told about exactly these tools."""
        for client in self.clients:
            try:
                await until(lambda client=client: client.view == names, "the clients know the tools", _CONNECT_S)
            except AssertionError:
                raise AssertionError(f"{type(client).__name__} differs in {sorted(client.view ^ names)}") from None

    async def gets(self, tool: str, **arguments: Any) -> Outcome:
        """What a call comes to, which must be the same for every client."""
        first, *others = [await client.call(tool, **arguments) for client in self.clients]
        assert others == [first] * len(others)
        return first


@contextlib.asynccontextmanager
async def audience_of(url: str, folder: Path) -> AsyncIterator[Audience]:
    async with connect("sdk", "auto", url, folder / "client.log", name=CLIENT) as real, _node_client(url) as process:
        clients = PythonClient(real), TypeScriptClient(process)
        following = [asyncio.get_running_loop().create_task(client.follow()) for client in clients]
        try:
            yield Audience(*clients)
            assert not any(task.done() for task in following), "a client lost its connection"
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


@contextlib.asynccontextmanager
async def _node_client(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(NODE, str(_NODE_CLIENT), str(NODE_PACKAGES / "sdk"), url),
        stdin=pipe,
        stdout=pipe,
        limit=_LINE_BYTES,
        start_new_session=True,
    )
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # what we started is a launcher: Node is below it
            await process.wait()
