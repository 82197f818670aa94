"""Listens on TCP ports and Unix sockets, and cleans up afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import LISTEN_FAILED, GatewayError, Problem

_BACKLOG: Final = 1024
LISTENING_SOCKETS: Final[set[Path]] = set()
"""The paths of all Unix sockets that this process listens on: nothing in a sandbox may reach them."""
_ANSWER_S: Final = 1.0
_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class Listener:
    """A port or a Unix socket that is open. `where` is its address for messages, with the actual port."""

    def __init__(self, where: str, server: asyncio.Server, unix_socket: UnixSocket | None = None) -> None:
        self.where = where
        self._server = server
        self._unix_socket = unix_socket

    @classmethod
    async def open(cls, address: BindAddress | Path, connected: Callable[[], asyncio.Protocol], key: str) -> Listener:
        """Start to listen; raises GatewayError if that fails. `key` is the setting that holds the address."""
        loop = asyncio.get_running_loop()
        if isinstance(address, Path):
            unix_socket = UnixSocket(address, key)
            server = await loop.create_unix_server(connected, sock=unix_socket.socket, backlog=_BACKLOG)
            return cls(str(address), server, unix_socket)
        try:
            server = await loop.create_server(connected, address.host, address.port, backlog=_BACKLOG)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            hint = f"another program may be using it: choose another port with `{key}`"
            raise GatewayError(
                Problem(code=LISTEN_FAILED, message=f"Cannot listen on {address}: {reason}", hint=hint)
            ) from None
        bound = BindAddress(address.host, server.sockets[0].getsockname()[1])
        return cls(str(bound), server)

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        self._server.close()
        if self._unix_socket is not None:
            self._unix_socket.remove()


class UnixSocket:
    """A Unix socket that only its owner can connect to, bound but not listening yet.

    It never replaces the socket of a living program; `remove` deletes its file unless it has been replaced. `key` is
    the setting that holds the path. Raises GatewayError if it cannot be bound.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        try:
            _remove_stale_socket(path, key)
            self.socket.bind(str(path))
            path.chmod(0o600)  # before listening, so that others can never connect
            self._identity = _identity(path)
        except OSError as error:
            self.socket.close()
            raise _problem(path, key, error.strerror or str(error)) from None
        except GatewayError:
            self.socket.close()
            raise
        LISTENING_SOCKETS.add(path)

    def remove(self) -> None:
        LISTENING_SOCKETS.discard(self.path)
        self.socket.close()
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def _remove_stale_socket(path: Path, key: str) -> None:
    """Remove a socket that a killed gateway left behind. Raises GatewayError for anything else that is there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _problem(path, key, "a file that is not a socket is there")
    before = _identity(path)
    if _answers(path):
        raise _problem(path, key, "another program is listening there")
    if _identity(path) == before:
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    """Whether a program listens on this socket; True when in doubt."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        return status.st_dev, status.st_ino
    return None


def _problem(path: Path, key: str, reason: str) -> GatewayError:
    hint = f"choose another path with `{key}`"
    return GatewayError(Problem(code=LISTEN_FAILED, message=f"Cannot listen on `{path}`: {reason}", hint=hint))


def peer_has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has closed its end, or will send no more: a transport that is paused does not say."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, _GONE)
    return bool(poll.poll(0))
