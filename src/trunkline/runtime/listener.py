"""A port or a Unix socket that is listened on, with everything that must be undone at its end."""

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


# A Unix socket to listen on: bound for its owner only, never taken from a program that lives, gone at the end.

LISTENING: Final[set[Path]] = set()
"""The sockets that this process has, of all its gateways: nothing in a sandbox may see them."""
_ANSWER_S: Final = 1.0


class UnixSocket:
    """A bound socket that does not listen yet. `remove` takes its file away, unless another has taken its place.

    `key` is where its path is configured. Raises GatewayError where it cannot be had.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        try:
            _clear_the_way(path, key)
            self.socket.bind(str(path))
            path.chmod(0o600)  # before anybody is listened to, so that there is no moment when others could come in
            self._identity = _identity(path)
        except OSError as error:
            self.socket.close()
            raise _problem(path, key, error.strerror or str(error)) from None
        except GatewayError:
            self.socket.close()
            raise
        LISTENING.add(path)

    def remove(self) -> None:
        LISTENING.discard(self.path)
        self.socket.close()
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def _clear_the_way(path: Path, key: str) -> None:
    """A socket on which nobody answers was left by a gateway that was killed. Anything else stays."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _problem(path, key, "something that is no socket is there")
    before = _identity(path)
    if _answers(path):
        raise _problem(path, key, "another program listens there")
    if _identity(path) == before:
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    """Whether somebody listens; in doubt, yes."""
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


# Whether a peer has gone whose bytes nobody reads at the moment: a transport that is paused does not say.

_GONE: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Also where it only says that it will send no more, as at the end of what is read."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, _GONE)
    return bool(poll.poll(0))
