"""Removes a folder with everything in it, even if parts are write-protected; follows no link.

Loaded by the supervisor, so it imports as little as possible.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

_USABLE = stat.S_IRWXU


def remove_tree(folder: str | bytes | Path) -> None:
    """Remove a folder as far as possible; it need not exist. Leaves trees that are nested too deeply to be walked."""
    import shutil

    try:
        path = os.fsencode(folder)
        _make_usable(path)  # some programs write-protect folders, such as package caches: nothing in them could go
        for parent, names, _ in os.walk(path):
            for name in names:
                _make_usable(os.path.join(parent, name))
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        return  # the next start tries again


def _make_usable(path: bytes) -> None:
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode) and mode & _USABLE != _USABLE:
            os.chmod(path, _USABLE)
    except OSError:
        return  # gone already, or not ours: the rest is removed all the same


def is_folder_of_ours(folder: bytes, device: int, inode: int) -> bool:
    """Whether the path still is this very folder and belongs to this user."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    same = (status.st_dev, status.st_ino) == (device, inode)
    return same and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
