"""A Unix socket to listen on: bound for its owner only, never taken from a program that lives, gone at the end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from trunkline.core.errors import LISTEN_FAILED, GatewayError, Problem

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
