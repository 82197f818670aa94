"""Reads and writes at protected places without following links, and stores what they held, to be restored later."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.runtime.state_files import make_private_folder, read_private, write_private
from trunkline.sources.builtin.protection.scanner import YOUNG_NS, FileStamp, Kind, PlaceScan, ScannedFile

LARGEST_KEPT_BYTES: Final = 1 << 20
MOST_KEPT_BYTES: Final = 32 << 20
"""Of one tree. Whatever exceeds it is compared by its times only, and cannot be put back."""
_OLD_S: Final = 86_400.0
_PRUNE_S: Final = 600.0
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


# -- one path below a folder, with no link on the way there or at its end ---------------------------------------------


@contextlib.contextmanager
def parent_of(base: str, path: str, *, change: bool = False, make: bool = False) -> Generator[tuple[int, str]]:
    """The open parent folder of a path below `base`, and its last name. Raises OSError where a link is on the way.

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


# -- what files held --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlaceRecord:
    """A file at a protected place. `content` is the digest of its bytes or the target of a link; empty if not known."""

    place: str
    kind: Kind
    stamp: FileStamp
    listed: bool
    content: str


class ContentStore:
    """Contents by digest, in a private folder. Digests are remembered while a file's stamp stays the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[FileStamp, str]] = {}
        self._pruned_at = 0.0

    def records(self, base: str, scan: PlaceScan) -> dict[str, PlaceRecord]:
        """Everything that a scan has found, with its content, which is stored."""
        now_ns, left = time.time_ns(), MOST_KEPT_BYTES
        records: dict[str, PlaceRecord] = {}
        for path, file in scan.items.items():
            known = self._known.get(path)
            if known is None or known[0] != file.stamp or not self._has(file, known[1]):
                known = file.stamp, self._content(base, file, left)
            if now_ns - file.stamp.changed_ns > YOUNG_NS:
                self._known[path] = known
            left -= file.stamp.size if file.kind in ("file", "config") else 0
            records[path] = PlaceRecord(file.place, file.kind, file.stamp, file.listed, known[1])
        for path in self._known.keys() - scan.items.keys():
            del self._known[path]
        return records

    def _has(self, file: ScannedFile, content: str) -> bool:
        """Whether it is still stored: other gateways use the same folder, and remove what is old."""
        return not content or file.kind == "link" or (self._folder / content).exists()

    def _content(self, base: str, file: ScannedFile, left_bytes: int) -> str:
        if file.kind == "link":
            return link_at(base, file.path)
        if file.kind in ("other", "folder") or file.stamp.size > min(LARGEST_KEPT_BYTES, left_bytes):
            return ""
        data = read_at(base, file.path, LARGEST_KEPT_BYTES)
        if data is None:
            return ""
        digest = digest_of(data)
        with contextlib.suppress(OSError):  # without a copy it can still be told from others
            if not (self._folder / digest).exists():
                make_private_folder(self._folder)
                write_private(self._folder / digest, data)
        return digest

    def get(self, digest: str) -> bytes | None:
        data = read_private(self._folder / digest, LARGEST_KEPT_BYTES) if digest else None
        return data if data is not None and digest_of(data) == digest else None

    def prune(self, wanted: set[str]) -> None:
        """Remove what nobody has wanted for a day: it may hold secrets."""
        now = time.time()
        if now - self._pruned_at < _PRUNE_S:
            return
        self._pruned_at = now
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                if entry.name not in wanted and now - entry.stat().st_mtime > _OLD_S:
                    os.unlink(entry.path)  # noqa: PTH108


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
