"""Reads and writes files below a folder without following links, as a command may lay one at any moment."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Generator
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def parent_of(base: str, path: str, *, change: bool = False, make: bool = False) -> Generator[tuple[int, str]]:
    """The open parent folder of a path below `base`, and its last name. Raises OSError if a link is on the way.

    `change` makes the parent writable for as long as this lasts; `make` also makes missing folders.
    """
    *above, name = [part for part in path[len(base.rstrip("/")) :].split("/") if part]
    fd = os.open(base, _FOLDER)
    try:
        for part in above:
            if make:
                with contextlib.suppress(FileExistsError), _writable(fd):
                    os.mkdir(part, dir_fd=fd)
            fd, before = os.open(part, _FOLDER, dir_fd=fd), fd
            os.close(before)
        with _writable(fd) if change or make else contextlib.nullcontext():
            yield fd, name
    finally:
        os.close(fd)


@contextlib.contextmanager
def _writable(folder: int) -> Generator[None]:
    """A command may have made it read-only for its owner, to keep what it has put there."""
    status = os.fstat(folder)
    is_closed = status.st_uid == os.geteuid() and status.st_mode & stat.S_IRWXU != stat.S_IRWXU
    if is_closed:
        os.fchmod(folder, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
    try:
        yield
    finally:
        if is_closed:
            os.fchmod(folder, stat.S_IMODE(status.st_mode))


def read_at(base: str, path: str, most_bytes: int) -> bytes | None:
    """The content of a regular file; None for anything else, and for a larger one."""
    try:
        with parent_of(base, path) as (folder, name):
            fd = os.open(name, _READ, dir_fd=folder)
            with os.fdopen(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                data = file.read(most_bytes + 1)
    except OSError:
        return None
    return data if len(data) <= most_bytes else None


def link_at(base: str, path: str) -> str:
    """The target of a link; empty for anything else."""
    try:
        with parent_of(base, path) as (folder, name):
            return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def write_at(base: str, path: str, data: bytes, mode: int, *, make: bool = False) -> None:
    """Replace a file or a link with a file, in one step. Raises OSError."""
    with _replacing(base, path, make) as (folder, scratch):
        fd = os.open(scratch, _CREATE, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(fd, stat.S_IMODE(mode))


def link_to(base: str, path: str, target: str, *, make: bool = False) -> None:
    """Replace a file or a link with a link, in one step. Raises OSError."""
    with _replacing(base, path, make) as (folder, scratch):
        os.symlink(target, scratch, dir_fd=folder)


@contextlib.contextmanager
def _replacing(base: str, path: str, make: bool) -> Generator[tuple[int, str]]:
    with parent_of(base, path, change=True, make=make) as (folder, name):
        scratch = f".trunkline.{secrets.token_hex(8)}"
        try:
            yield folder, scratch
            os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch, dir_fd=folder)
            raise


def open_up(base: str, path: str) -> None:
    """Give the owner of a folder full access to it."""
    with contextlib.suppress(OSError), parent_of(base, path) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=folder)
