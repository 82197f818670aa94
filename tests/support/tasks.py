"""Servers that run tools as tasks, as tests use them: entries for the configuration, processes that end, clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.client import META, Client, HttpClient, ModernClient, encode, modern_headers
from tests.support.gateway import TRUNKLINE, Gateway, stdio_gateway
from tests.support.peers.direct import ModernStdioClient
from tests.support.ports import free_port
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until, wait_until

TASKS = META + "tasks"
CAPABILITIES = {"extensions": {TASKS: {}}}
DECLARED = {"_meta": {META + "clientCapabilities": CAPABILITIES}}
HERE = Path(__file__).parent
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
Heard = Callable[[], Awaitable[dict[str, Any]]]


def over_stdio(name: str, server: str = "task_server.py", **keys: Any) -> dict[str, Any]:
    return {name: {"kind": "mcp_stdio", "command": sys.executable, "args": [str(HERE / server), name], **keys}}


class HttpTasks:
    """A task server over HTTP; `with` ends it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> HttpTasks:
        self.process = subprocess.Popen([sys.executable, str(HERE / "task_server.py"), self.name, str(self.port)])
        wait_until(self._listens, "the server listens")
        return self

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def entry(self, **keys: Any) -> dict[str, Any]:
        return {self.name: {"kind": "mcp_http", "url": f"http://127.0.0.1:{self.port}/mcp", **keys}}


@contextlib.contextmanager
def task_servers(transport: str, *names: str) -> Iterator[list[dict[str, Any]]]:
    """The entries of several servers that give their tasks the same ids."""
    if transport == "stdio":
        yield [over_stdio(name) for name in names]
        return
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(HttpTasks(name)).entry() for name in names]


class TaskHouse:
    """Two servers on one wire that give their tasks the same ids, and a gateway in front of them."""

    def __init__(self, transport: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.entries = stack.enter_context(task_servers(transport, "a", "b"))
        self.gateway = stack.enter_context(shared_gateway(Gateway(folder, *self.entries, start_wait=START_WAIT_S)))

    def client(self, frontend: str, folder: Path) -> Client:
        """A client of 2026-07-28 at a frontend, joined to the gateway, or of one of its own before these servers."""
        if frontend == "http":
            return ModernClient(self.gateway.port)
        if frontend == "joined":
            command = [TRUNKLINE, "stdio", "--url", f"http://127.0.0.1:{self.gateway.port}/mcp"]
            return ModernStdioClient(command, folder / "relay.log")
        plain = stdio_gateway(folder, *self.entries, start_wait=START_WAIT_S)
        return ModernStdioClient(plain.command, plain.log_path)


async def make_task(client: Client, tool: str) -> str:
    made = (await client.request("tools/call", {"name": tool, **DECLARED})).result
    assert made["resultType"] == "task"
    return made["taskId"]


@contextlib.asynccontextmanager
async def listening(client: Client, task_ids: list[str], id_: Any = "mine") -> AsyncIterator[tuple[list[str], Heard]]:
    """The ids that are acknowledged, and what is heard afterwards, message by message."""
    params = {"notifications": {"taskIds": task_ids}, **DECLARED}
    opened = _listening_http if isinstance(client, HttpClient) else _listening_stdio
    async with opened(client, params, id_) as hear:

        async def heard() -> dict[str, Any]:
            async with asyncio.timeout(PATIENCE_S):
                message = await hear()
            assert message["params"]["_meta"][META + "subscriptionId"] == id_
            return message

        first = await heard()
        assert first["method"] == ACKNOWLEDGED
        yield first["params"]["notifications"].get("taskIds", []), heard


@contextlib.asynccontextmanager
async def _listening_http(client: ModernClient, params: dict[str, Any], id_: Any) -> AsyncIterator[Heard]:
    message = client.message("subscriptions/listen", params, id=id_)
    ear = ModernClient(client.port)
    ear.headers |= modern_headers("subscriptions/listen", message["params"])
    async with ear.start_post(encode(message)) as wire:
        events = wire.events(await wire.read_head())

        async def hear() -> dict[str, Any]:
            return json.loads(await anext(events))

        yield hear
        await events.aclose()


@contextlib.asynccontextmanager
async def _listening_stdio(client: ModernStdioClient, params: dict[str, Any], id_: Any) -> AsyncIterator[Heard]:
    waiting = asyncio.ensure_future(client.request("subscriptions/listen", params, id=id_))
    read = 0

    async def hear() -> dict[str, Any]:
        nonlocal read
        await until(lambda: len(client.notices) > read, "the next notification")
        read += 1
        return client.notices[read - 1]

    try:
        yield hear
    finally:
        client.cancel(id_)
        waiting.cancel()
        await asyncio.wait([waiting])
