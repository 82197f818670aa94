"""A port or a Unix socket that is listened on, with everything that must be undone at its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import LISTEN_FAILED, GatewayError, Problem
from trunkline.runtime.unix_socket import UnixSocket

_BACKLOG: Final = 1024


class Listener:
    """`where` is its address for people: with the port that was found, where any free one was asked for."""

    def __init__(self, where: str, server: asyncio.Server, unix_socket: UnixSocket | None = None) -> None:
        self.where = where
        self._server = server
        self._unix_socket = unix_socket

    @classmethod
    async def open(cls, address: BindAddress | Path, connected: Callable[[], asyncio.Protocol], key: str) -> Listener:
        """Listen; raises GatewayError where that cannot be. `key` is where the address is configured."""
        if isinstance(address, Path):
            return await cls._open_unix(address, connected, key)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(connected, address.host, address.port, backlog=_BACKLOG)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            hint = f"another program may hold it: choose another port with `{key}`"
            raise GatewayError(
                Problem(code=LISTEN_FAILED, message=f"Cannot listen on {address}: {reason}", hint=hint)
            ) from None
        bound = BindAddress(address.host, server.sockets[0].getsockname()[1])
        return cls(str(bound), server)

    @classmethod
    async def _open_unix(cls, path: Path, connected: Callable[[], asyncio.Protocol], key: str) -> Listener:
        unix_socket = UnixSocket(path, key)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(connected, sock=unix_socket.socket, backlog=_BACKLOG)
        return cls(str(path), server, unix_socket)

    def close(self) -> None:
        """Nobody new comes; those who came stay."""
        self._server.close()
        if self._unix_socket is not None:
            self._unix_socket.remove()
