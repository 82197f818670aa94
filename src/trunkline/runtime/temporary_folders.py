"""Temporary folders that only this user can enter, and the removal of those that killed gateways left behind.

Each is locked while its gateway lives. The lock ends with the process, so a folder that is not locked is abandoned.
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

PREFIX: Final = "trunkline-r-"
_MAX_PARENT_BYTES: Final = 60
"""A socket's whole path may have 103 bytes on some systems, including the names of the folder and of the socket."""
_NEW_S: Final = 60.0
"""A folder this young may be about to be locked."""


class TemporaryFolder:
    """A folder with a short path, whose name begins with `prefix`. Raises OSError if it cannot be made."""

    def __init__(self, prefix: str) -> None:
        parent = tempfile.gettempdir()
        parent = parent if len(os.fsencode(parent)) <= _MAX_PARENT_BYTES else "/tmp"
        _remove_abandoned_once(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = _open(self.path)
        _try_lock(self._lock)

    def remove(self) -> None:
        """Remove the folder with everything in it. A second call does nothing."""
        if self._lock >= 0:
            remove_tree(self.path)
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(parent: str, prefix: str) -> None:
    """Remove the folders of gateways that were killed."""
    try:
        found = [entry.path for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:
        return
    for path in found:
        try:
            lock = _open(path)
        except OSError:
            continue  # another user's, or gone already
        try:
            status = os.fstat(lock)
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _NEW_S and _try_lock(lock):
                remove_tree(path)
        finally:
            os.close(lock)


_remove_abandoned_once: Final = functools.cache(remove_abandoned)


def _open(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class RunFolder(TemporaryFolder):
    """The private folder of one agent's run, removed with the run. Raises GatewayError if it cannot be made.

    If the gateway is killed, the supervisor removes it after ending the run's processes; if both are killed at once,
    the next start does.
    """

    def __init__(self, children: Children, label: str) -> None:
        try:
            super().__init__(PREFIX)
        except OSError as error:
            raise start_failed(label, f"cannot make a folder for its run: {error}", retryable=True) from None
        self._children = children
        try:
            children.hold(self.path, label)
        except BaseException:
            super().remove()
            raise

    def remove(self) -> None:
        """Remove the folder with everything in it; whatever uses it should have ended."""
        super().remove()
        self._children.release(self.path)
