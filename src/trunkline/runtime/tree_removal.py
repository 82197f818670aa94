"""Removes a folder with everything in it, however its owner has left it; follows no link.

The supervisor uses it too, as its last act: imports stay light until then.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

_USABLE = stat.S_IRWXU


def remove_tree(folder: str | bytes | Path) -> None:
    """As far as that is possible. What is gone already is fine."""
    import shutil

    try:
        _make_usable(os.fsencode(folder))
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        return  # nested deeper than can be walked: the next start tries again


def _make_usable(folder: bytes) -> None:
    """Programs write-protect folders (caches of packages), and then nothing in them can be removed."""
    _open_up(folder)
    for parent, names, _ in os.walk(folder):
        for name in names:
            _open_up(os.path.join(parent, name))


def _open_up(path: bytes) -> None:
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode) and mode & _USABLE != _USABLE:
            os.chmod(path, _USABLE)
    except OSError:
        return  # gone already, or not ours: no reason to keep the rest


def is_folder_of_ours(folder: bytes, device: int, inode: int) -> bool:
    """Whether that path still is this very folder, and this user's."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    same = (status.st_dev, status.st_ino) == (device, inode)
    return same and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
