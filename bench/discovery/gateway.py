"""A real gateway process in front of servers with given tools, and a real MCP client that notes what it is sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from bench.discovery.sets import ToolText
from bench.launch import BIN
from bench.running import free_port

HERE = Path(__file__).resolve().parent
START_TIMEOUT_S = 90.0
CLIENT_NAME = "discovery-bench"
RETRY_S = 0.4
Json = dict[str, Any]


# -- processes ----------------------------------------------------------------------------------------------------


@contextmanager
def definition_servers(folder: Path, tools: Sequence[ToolText]) -> Iterator[dict[str, str]]:
    """One process with a server for each server of the tools; their URLs by name."""
    servers: dict[str, Json] = {}
    for tool in tools:
        server = servers.setdefault(server_name(tool), {"instructions": tool.server_text, "tools": []})
        server["tools"].append(json.loads(tool.definition))
    path = folder / "servers.json"
    path.write_text(json.dumps(servers))
    command = [sys.executable, str(HERE / "definitions_server.py"), str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    try:
        port = int(process.stdout.readline())
        yield {name: f"http://127.0.0.1:{port}/{name}" for name in servers}
    finally:
        process.stdin.close()
        _end(process)
        process.stdout.close()


def server_name(tool: ToolText) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in tool.server) or "server"


@contextmanager
def gateway(folder: Path, urls: dict[str, str], disclosure: str) -> Iterator[str]:
    """`trunkline up` with one mode of disclosure; the URL for clients."""
    port = free_port()
    settings = {"listen": f"127.0.0.1:{port}", "state_dir": str(folder / "state"), "disclosure": disclosure}
    config = {"gateway": settings, "mcpServers": {name: {"url": url} for name, url in urls.items()}}
    path = folder / f"{disclosure}.json"
    path.write_text(json.dumps(config, indent=2))
    with (folder / f"{disclosure}.log").open("wb") as log:
        command = [str(BIN / "trunkline"), "up", "-c", str(path)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# -- the client ---------------------------------------------------------------------------------------------------


class Tapped:
    """The messages on their way to the client, each noted as it arrived."""

    def __init__(self, stream: Any, heard: list[Json]) -> None:
        self._stream = stream
        self._heard = heard

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        if isinstance(item, SessionMessage):
            self._heard.append(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)


class Client:
    """One session of the official SDK, and everything it was sent."""

    def __init__(self, session: ClientSession, heard: list[Json]) -> None:
        self.session = session
        self.heard = heard

    async def list_tools(self) -> list[Json]:
        found: list[Json] = []
        cursor: str | None = None
        while True:
            params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
            page = await self.session.list_tools(params=params)
            found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                return found

    async def call(self, name: str, arguments: Json) -> Json:
        result = await self.session.call_tool(name, arguments)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def is_told(self, method: str, limit_s: float = 5.0) -> bool:
        """Whether a notification has come, or does so in time."""
        deadline_s = time.monotonic() + limit_s
        while not any(message.get("method") == method for message in self.heard):
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(0.02)
        return True


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    heard: list[Json] = []
    info = types.Implementation(name=CLIENT_NAME, version="1")
    async with (
        streamable_http_client(url) as (read, write),
        ClientSession(Tapped(read, heard), write, client_info=info, read_timeout_seconds=60) as session,
    ):
        await session.initialize()
        yield Client(session, heard)


async def until_ready(url: str, tools: int) -> None:
    """Until the gateway knows all tools, however few of them it shows."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    counted: object = "no answer"
    while time.monotonic() < deadline_s:
        try:
            async with client(url) as visitor:
                counted = (await visitor.call("registry_summary", {}))["structuredContent"]["tools"]
        except (OSError, ExceptionGroup, KeyError) as error:
            counted = error
        if isinstance(counted, int) and counted >= tools:
            return
        await asyncio.sleep(RETRY_S)
    raise TimeoutError(f"the gateway does not have its {tools} tools after {START_TIMEOUT_S:g} s: {counted}")
