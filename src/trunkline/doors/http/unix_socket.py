"""The Unix socket beside the port: bound for its owner only, never taken from a gateway that lives, gone at the end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

from trunkline.core.errors import LISTEN_FAILED, GatewayError, Problem

_ANSWER_S: Final = 1.0
_HINT: Final = "choose another path with `gateway.socket`"


class UnixSocket:
    """A bound socket that does not listen yet. `remove` takes its file away, unless another has taken its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        try:
            _clear_the_way(path)
            self.socket.bind(str(path))
            path.chmod(0o600)  # before anybody is listened to, so that there is no moment when others could come in
            self._identity = _identity(path)
        except OSError as error:
            self.socket.close()
            raise _problem(path, error.strerror or str(error)) from None
        except GatewayError:
            self.socket.close()
            raise

    def remove(self) -> None:
        self.socket.close()
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def _clear_the_way(path: Path) -> None:
    """A socket on which nobody answers was left by a gateway that was killed. Anything else stays."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _problem(path, "something that is no socket is there")
    before = _identity(path)
    if _answers(path):
        raise _problem(path, "another program listens there")
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


def _problem(path: Path, reason: str) -> GatewayError:
    return GatewayError(Problem(code=LISTEN_FAILED, message=f"Cannot listen on `{path}`: {reason}", hint=_HINT))
