"""The configuration file on disk while it is edited: nobody ever sees half of it, and nobody's change is lost.

Our own edits wait for each other by a lock on the file itself. Other programs know nothing of the lock; whatever they
wrote meanwhile is noticed before the file is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

from trunkline.config.tree import MAX_BYTES
from trunkline.core.errors import (
    CONFIG_SYNTAX,
    CONFIG_TOO_LARGE,
    CONFIG_UNREADABLE,
    NOT_EDITED,
    Code,
    GatewayError,
    Problem,
)

_LOCK_TIMEOUT_S: Final = 10.0
_LOCK_PAUSE_S: Final = 0.02
_BOM: Final = "\ufeff"
_ANYBODY_MAY_WRITE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class LockedFile:
    """A file that is being edited: its text, and the way to replace it."""

    def __init__(self, path: Path, shown: Path, data: bytes) -> None:
        self._path = path
        self._shown = shown
        self._data = data
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise _error(shown, CONFIG_SYNTAX, "The file is not UTF-8 text", "save it as UTF-8") from None
        self._bom = _BOM if text.startswith(_BOM) else ""
        self.text = text.removeprefix(_BOM)

    def replace(self, text: str) -> None:
        """Put new text in the place of the old: all of it or, with a GatewayError, none."""
        try:
            self._replace((self._bom + text).encode())
        except OSError as error:
            raise _not_written(self._shown, error) from None

    def _replace(self, data: bytes) -> None:
        status = self._path.stat()
        if not status.st_mode & _ANYBODY_MAY_WRITE or not os.access(self._path, os.W_OK):
            raise _error(self._shown, NOT_EDITED, "The file is read-only", f"allow writing: `chmod u+w {self._shown}`")
        with _scratch_file(self._path, data, stat.S_IMODE(status.st_mode)) as scratch:
            if (status.st_uid, status.st_gid) != _owner(scratch):
                with contextlib.suppress(OSError):  # only root may give files away
                    os.chown(scratch, status.st_uid, status.st_gid)
            if self._path.read_bytes() != self._data:
                message = "Another program changed the file at the same moment"
                raise _error(self._shown, NOT_EDITED, message, "try again")
            scratch.replace(self._path)
        _sync_folder(self._path.parent)


@contextlib.contextmanager
def open_locked(path: Path) -> Generator[LockedFile]:
    """The file, locked against other edits of ours. A link is followed: the file it leads to is edited."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        descriptor = _open_locked(real)
    except OSError as error:
        raise _not_read(path, error) from None
    if descriptor is None:
        raise _error(path, NOT_EDITED, "Another `trunkline` is editing the file", "try again in a moment")
    try:
        yield LockedFile(real, path, _read(descriptor, path))
    finally:
        os.close(descriptor)


def create_file(path: Path, text: str, *, private: bool) -> None:
    """Write a file that is not there yet; one that appears meanwhile is left alone. A `private` one is its owner's."""
    real = os.path.realpath(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(real, flags, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(Path(real).parent)
    except FileExistsError:
        raise _error(path, NOT_EDITED, "Another program created the file at the same moment", "try again") from None
    except OSError as error:
        raise _not_written(path, error) from None


def _open_locked(path: Path) -> int | None:
    """The file with its lock, or None when somebody else keeps it. Raises OSError."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        # without O_NONBLOCK, opening a named pipe would wait for somebody to write into it
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if _lock(descriptor) and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        # locked by another edit, or replaced by one while we waited for the lock
        os.close(descriptor)
        if time.monotonic() > deadline:
            return None
        time.sleep(_LOCK_PAUSE_S)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: other changes are still noticed before the file is replaced
        return True
    return True


def _read(descriptor: int, shown: Path) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _error(shown, CONFIG_TOO_LARGE, f"The file is larger than {MAX_BYTES:,} bytes")
    return data


@contextlib.contextmanager
def _scratch_file(path: Path, data: bytes, mode: int) -> Generator[Path]:
    """A file beside `path` that holds the data and is safely on disk; it is gone afterwards, if it was not moved."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    scratch = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def _owner(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _not_read(path: Path, error: OSError) -> GatewayError:
    return _error(path, CONFIG_UNREADABLE, f"The file cannot be read: {error.strerror or error}")


def _not_written(path: Path, error: OSError) -> GatewayError:
    hint = ""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"you need permission to write to `{path.absolute().parent}`"
    if error.errno == errno.EBUSY:
        hint = "the file is a mount point here; edit the original instead"
    return _error(path, NOT_EDITED, f"The file cannot be written: {error.strerror or error}", hint)


def _error(path: Path, code: Code, message: str, hint: str = "") -> GatewayError:
    return GatewayError(Problem(code=code, message=message, where=str(path), hint=hint))
