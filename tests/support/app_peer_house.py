"""A real gateway with an app listener and a client, for tests in which apps misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.app_peer import AppPeer
from tests.support.client import HttpClient
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.waiting import until

TOOLS = ("T:echo", "T:hang", "T:fault")


class House:
    """A gateway that apps dial, a client of it, and two apps: `Good`, and `T`, which does what a test says."""

    def __init__(self, gateway: Gateway, client: HttpClient, port: int) -> None:
        self.gateway = gateway
        self.client = client
        self.port = port

    async def dial(self, name: str = "T", tools: tuple[str, ...] = TOOLS, **more: Any) -> AppPeer:
        app = await AppPeer.dial(self.port)
        assert (await app.register(name, tools, **more))["type"] == "registered"
        return app

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.client.call(tool, arguments, **more))

    async def good_works(self) -> None:
        assert (await self.client.call("Good_echo", {"a": 1})).structured == {"a": 1}

    async def works_again(self, name: str = "T") -> None:
        async with await self.dial(name, (f"{name}:echo",)) as app:
            app.serve()
            assert (await self.client.call(f"{name}_echo", {"again": 1})).structured == {"again": 1}


@contextlib.asynccontextmanager
async def house(
    folder: Path, *, limits: dict[str, Any] | None = None, prelude: str = "", **keys: Any
) -> AsyncIterator[House]:
    port = free_port()
    entry = {"desktop": {"kind": "app", "listen": f"127.0.0.1:{port}", **keys}}
    with Gateway(folder, entry, limits=limits or {}, prelude=prelude) as gateway:
        async with gateway.client() as client:
            here = House(gateway, client, port)
            await until(lambda: listens(port), "the gateway listens for apps")
            async with await here.dial("Good", ("Good:echo",)) as good:
                good.serve()
                yield here


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True
