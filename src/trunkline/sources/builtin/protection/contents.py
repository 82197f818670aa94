"""What protected places hold, kept outside of the tree, so that it can be put back."""

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

# Reading, moving and writing at one path below a folder, without following a link on the way there or at its end.

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def parent_of(base: str, path: str, *, change: bool = False, make: bool = False) -> Generator[tuple[int, str]]:
    """The open folder of a path below `base`, and its last name. Raises OSError where the way has a link in it. Where
    something is to `change` in it, its owner may for as long as this lasts; `make` makes folders on the way."""
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
    """A command may have closed it to its owner, to keep what it has put there."""
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
    """A plain file; None for anything else, and one that is larger."""
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
    """Where a link leads; empty for what is none."""
    try:
        with parent_of(base, path) as (folder, name):
            return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def write_at(base: str, path: str, data: bytes, mode: int, *, make: bool = False) -> None:
    """Put a file there as a whole, in place of a file or a link. Raises OSError."""
    with parent_of(base, path, change=True, make=make) as (folder, name):
        scratch = _scratch()
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                os.fchmod(fd, stat.S_IMODE(mode))
            os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(scratch, dir_fd=folder)
            raise


def link_to(base: str, path: str, target: str, *, make: bool = False) -> None:
    """Put a link there, in place of a file or a link. Raises OSError."""
    with parent_of(base, path, change=True, make=make) as (folder, name):
        scratch = _scratch()
        os.symlink(target, scratch, dir_fd=folder)
        try:
            os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(scratch, dir_fd=folder)
            raise


def open_up(base: str, path: str) -> None:
    """Let its owner look into a folder."""
    with contextlib.suppress(OSError), parent_of(base, path) as (folder, name):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=folder)


def _scratch() -> str:
    return f".trunkline.{secrets.token_hex(8)}"


LARGEST_KEPT_BYTES: Final = 1 << 20
MOST_KEPT_BYTES: Final = 32 << 20
"""Of one tree. What is beyond is compared by its times, and cannot be put back."""
_OLD_S: Final = 86_400.0
_PRUNE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class PlaceRecord:
    """Something at a place, and `content`, which tells it from anything else that may be there: a digest, or where a
    link leads. It is empty where that is not known."""

    place: str
    kind: Kind
    stamp: FileStamp
    listed: bool
    content: str


class ContentStore:
    """Contents by their digests, in a private folder. Digests are remembered while a file's stamp stays the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[FileStamp, str]] = {}
        self._pruned_at = 0.0

    def records(self, base: str, found: PlaceScan) -> dict[str, PlaceRecord]:
        """All that one look has found, with what is in it."""
        now_ns, left = time.time_ns(), MOST_KEPT_BYTES
        records: dict[str, PlaceRecord] = {}
        for path, seen in found.items.items():
            known = self._known.get(path)
            if known is None or known[0] != seen.stamp or not self._has(seen, known[1]):
                known = seen.stamp, self._content(base, seen, left)
            if now_ns - seen.stamp.changed_ns > YOUNG_NS:
                self._known[path] = known
            left -= seen.stamp.size if seen.kind in ("file", "config") else 0
            records[path] = PlaceRecord(seen.place, seen.kind, seen.stamp, seen.listed, known[1])
        for path in self._known.keys() - found.items.keys():
            del self._known[path]
        return records

    def _has(self, seen: ScannedFile, content: str) -> bool:
        """Whether it is still there to be put back: others use the same folder, and remove what is old."""
        return not content or seen.kind == "link" or (self._folder / content).exists()

    def _content(self, base: str, seen: ScannedFile, left_bytes: int) -> str:
        if seen.kind == "link":
            return link_at(base, seen.path)
        if seen.kind in ("other", "folder") or seen.stamp.size > min(LARGEST_KEPT_BYTES, left_bytes):
            return ""
        data = read_at(base, seen.path, LARGEST_KEPT_BYTES)
        return "" if data is None else self.keep(data)

    def keep(self, data: bytes) -> str:
        digest = digest_of(data)
        path = self._folder / digest
        with contextlib.suppress(OSError):  # it can be told from others all the same
            if not path.exists():
                make_private_folder(self._folder)
                write_private(path, data)
        return digest

    def get(self, digest: str) -> bytes | None:
        data = read_private(self._folder / digest, LARGEST_KEPT_BYTES) if digest else None
        return data if data is not None and digest_of(data) == digest else None

    def prune(self, wanted: set[str]) -> None:
        """Remove what nobody has wanted for a day: there may be secrets in it."""
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
