"""What is kept on disk between runs: where it lies, and how it is read and written so that only its owner can.

Every gateway has a folder of its own under `state_dir`, named after its configuration file. The state is a comfort:
nothing found there, however odd, may stop a gateway from starting.
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
    """One name per configuration file, by whichever way its folder is reached.

    A link in place of the file itself is not followed: where configuration is mounted, it points somewhere else after
    every change, and the gateway is still the same.
    """
    path = Path(os.path.realpath(config.parent), config.name)
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:_KEY_LENGTH]


def make_private_folder(folder: Path) -> None:
    """The folder, readable to its owner only, as are those above it that were not there. Raises OSError."""
    missing = [above for above in folder.parents if not above.exists()]
    for above in (*reversed(missing), folder):
        above.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file as a whole, readable to its owner only: a reader sees the old text or the new. Raises OSError."""
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
    """What a file of ours says, or None where there is none.

    None too for anything that is no plain file, is too large, or that another user could have written: what stands
    there decides where tokens are sent.
    """
    try:
        # without O_NONBLOCK, opening a named pipe would wait for somebody to write into it
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
    """Whether an open file is a plain one that only this user can have written."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE
