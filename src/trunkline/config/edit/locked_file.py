"""Replaces a configuration file on disk atomically, without losing a change that another program makes.

Edits by Trunkline wait for each other with a lock on the file. A change by another program, which does not know the
lock, is noticed before the file is replaced.
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


class LockedFile:
    """A file that is locked for an edit: its text, and a method to replace it."""

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
        """Replace the text completely or, with a GatewayError, not at all."""
        try:
            self._replace((self._bom + text).encode())
        except OSError as error:
            raise _write_error(self._shown, error) from None

    def _replace(self, data: bytes) -> None:
        status = self._path.stat()
        if not status.st_mode & 0o222 or not os.access(self._path, os.W_OK):
            raise _error(self._shown, NOT_EDITED, "The file is read-only", f"allow writing: `chmod u+w {self._shown}`")
        with _scratch_file(self._path, data, stat.S_IMODE(status.st_mode)) as scratch:
            created = scratch.stat()
            if (status.st_uid, status.st_gid) != (created.st_uid, created.st_gid):
                with contextlib.suppress(OSError):  # only root may give files away
                    os.chown(scratch, status.st_uid, status.st_gid)
            if self._path.read_bytes() != self._data:
                message = "Another program changed the file at the same time"
                raise _error(self._shown, NOT_EDITED, message, "try again")
            scratch.replace(self._path)
        _sync_folder(self._path.parent)


@contextlib.contextmanager
def open_locked(path: Path) -> Generator[LockedFile]:
    """Lock a file and read it. A link is followed: the file it leads to is edited."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        descriptor = _open_locked(real)
    except OSError as error:
        raise _error(path, CONFIG_UNREADABLE, f"The file cannot be read: {error.strerror or error}") from None
    if descriptor is None:
        raise _error(path, NOT_EDITED, "Another `trunkline` is editing the file", "try again in a moment")
    try:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _error(path, CONFIG_TOO_LARGE, f"The file is larger than {MAX_BYTES:,} bytes")
        yield LockedFile(real, path, data)
    finally:
        os.close(descriptor)


def create_file(path: Path, text: str, *, private: bool) -> None:
    """Write a new file, which is an error if one exists. A `private` one is only readable by its owner."""
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
        raise _error(path, NOT_EDITED, "Another program created the file at the same time", "try again") from None
    except OSError as error:
        raise _write_error(path, error) from None


def _open_locked(path: Path) -> int | None:
    """The descriptor of the locked file, or None if another edit holds the lock. Raises OSError."""
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
        # locked by another edit, or replaced while this one waited
        os.close(descriptor)
        if time.monotonic() > deadline:
            return None
        time.sleep(_LOCK_PAUSE_S)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks; changes by others are still noticed before the file is replaced
        return True
    return True


@contextlib.contextmanager
def _scratch_file(path: Path, data: bytes, mode: int) -> Generator[Path]:
    """A temporary file beside `path` with the data, synced to disk. It is removed unless it was moved."""
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


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_error(path: Path, error: OSError) -> GatewayError:
    hint = ""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"you need permission to write to `{path.absolute().parent}`"
    if error.errno == errno.EBUSY:
        hint = "the file is a mount point here; edit the original instead"
    return _error(path, NOT_EDITED, f"The file cannot be written: {error.strerror or error}", hint)


def _error(path: Path, code: Code, message: str, hint: str = "") -> GatewayError:
    return GatewayError(Problem(code=code, message=message, where=str(path), hint=hint))
