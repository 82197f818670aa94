"""State that is kept between runs, in files that only their owner can read and write.

Every gateway has a folder of its own below `state_dir`, named after its configuration file. The state is optional:
nothing found there, however odd, may prevent a gateway from starting.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

GATEWAYS: Final = "gateways"
_KEY_LENGTH: Final = 16
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def gateways_folder(state_dir: Path) -> Path:
    """The folder that holds the folders of all gateways."""
    return state_dir / GATEWAYS


def gateway_key(config: Path) -> str:
    """The name of a configuration file's state folder, the same for every path to that file.

    A link in place of the file itself is not followed: mounted configuration is a link that changes with every update,
    while the gateway stays the same.
    """
    path = Path(os.path.realpath(config.parent), config.name)
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:_KEY_LENGTH]


def make_private_folder(folder: Path) -> None:
    """Make a folder, and its missing parents, that only the owner can enter. Raises OSError."""
    missing = [above for above in folder.parents if not above.exists()]
    for above in (*reversed(missing), folder):
        above.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file atomically, readable by its owner only. Raises OSError."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


def read_private(path: Path, limit_bytes: int) -> bytes | None:
    """The content of a private file; None if it is missing, not a plain file, too large, or another user could have
    written it, because its content decides where tokens are sent."""
    try:
        # without O_NONBLOCK, opening a named pipe would block until something is written
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if not is_ours(descriptor):
        os.close(descriptor)
        return None
    try:
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError:
        return None
    return data if len(data) <= limit_bytes else None


def is_ours(descriptor: int) -> bool:
    """Whether an open file is a plain file that only this user can have written."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE
