"""Folders for one run only, that nobody else can enter, and those that are left of gateways that were killed.

Each is locked as long as its gateway lives. The lock goes with the process, so whatever is not locked is nobody's.
"""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from trunkline.runtime.children import Children, start_failed
from trunkline.runtime.tree_removal import remove_tree

_LONGEST_PARENT: Final = 60
"""A socket's whole path has 103 bytes on some systems, and what is inside adds its own name to the folder's."""
_NEW_S: Final = 60.0
"""A folder this young may be one that is just about to be locked."""


class PrivateFolder:
    """A folder with a short path, whose name begins with `prefix`. Raises OSError where none can be made."""

    def __init__(self, prefix: str) -> None:
        parent = tempfile.gettempdir()
        parent = parent if len(os.fsencode(parent)) <= _LONGEST_PARENT else "/tmp"
        _remove_left_once(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = _open(self.path)
        _locked(self._lock)

    def remove(self) -> None:
        """With everything in it. Asked again, it does nothing."""
        if self._lock >= 0:
            remove_tree(self.path)
            os.close(self._lock)
            self._lock = -1


@functools.cache
def _remove_left_once(parent: str, prefix: str) -> None:
    remove_left(parent, prefix)


def remove_left(parent: str, prefix: str) -> None:
    """Remove the folders of gateways that are gone."""
    try:
        found = [entry.path for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:
        return
    for path in found:
        try:
            _remove_if_left(path)
        except OSError:
            continue  # somebody else's, or gone already


def _remove_if_left(path: str) -> None:
    lock = _open(path)
    try:
        status = os.fstat(lock)
        if status.st_uid == os.getuid() and time.time() - status.st_mtime > _NEW_S and _locked(lock):
            remove_tree(path)
    finally:
        os.close(lock)


def _open(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# The private folder of one agent's run: what its gateway and the agent need of files, gone with the run.
#
# It is gone also when the gateway is killed: the supervisor, which ends the run's processes then, removes it after them.
# Should both be killed at once, the next start removes it.

PREFIX: Final = "trunkline-r-"


class RunFolder(PrivateFolder):
    """`label` says whose it is. Raises GatewayError where none can be made."""

    def __init__(self, children: Children, label: str) -> None:
        try:
            super().__init__(PREFIX)
        except OSError as error:
            raise start_failed(label, f"no folder can be made for its run: {error}", retryable=True) from None
        self._children = children
        try:
            children.hold(self.path, label)
        except BaseException:
            super().remove()
            raise

    def remove(self) -> None:
        """With everything in it; what still uses it should have ended."""
        super().remove()
        self._children.release(self.path)
