"""Clients that connect to a socket: one task for each, all ended with the listener."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from trunkline.mcpserver.outgoing import close_within

_CLOSE_S: Final = 2.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listen(
    serve: Serve, host: str, port: int, path: str | os.PathLike[str] | None
) -> AsyncGenerator[tuple[str, int], None]:
    serving: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            await close_within(writer, _CLOSE_S)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(one(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

    if path is None:
        listener = await asyncio.start_server(connected, host, port)
    else:
        listener = await asyncio.start_unix_server(connected, path)
    try:
        yield (os.fspath(path), 0) if path is not None else listener.sockets[0].getsockname()[:2]
    finally:
        listener.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        if path is not None:
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108  (an instant, like the rest of the socket's end)
