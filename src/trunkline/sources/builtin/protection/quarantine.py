"""What was taken from protected places: kept in a private folder until somebody takes it back.

Nothing is deleted but the oldest, once there is too much. What cannot be brought here (it is too large, or the disk is
full) stays beside its place, under a name that nobody believes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from trunkline.runtime.state_files import make_private_folder, read_private, write_private
from trunkline.runtime.tree_removal import remove_tree
from trunkline.sources.builtin.protection.handles import parent_of

FOLDER: Final = "quarantine"
MOST: Final = 200
MOST_BYTES: Final = 256 << 20
LARGEST_BYTES: Final = 64 << 20
_MOST_ENTRIES: Final = 10_000
_ABOUT: Final = "about.json"
_THING: Final = "thing"
_ABOUT_BYTES: Final = 1 << 20
_LONGEST_NAME: Final = 150
"""Bytes of a name that stay, where file systems take 255 in all."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One thing that was taken from `path`, below `base`. `left` is the digest of what stands there since, and empty
    where nothing does. `thing` is where it is; `why` and `keys` say what it could have had run."""

    id: str
    base: str
    path: str
    how: str
    why: str
    keys: tuple[str, ...] = ()
    left: str = ""
    at: float = 0.0
    bytes: int = 0
    thing: str = ""

    @property
    def shown(self) -> str:
        return self.path[len(self.base.rstrip("/")) + 1 :]


class Quarantine:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(
        self, base: str, path: str, how: str, why: str, keys: tuple[str, ...] = (), *, leave: bool = False
    ) -> Taken:
        """Move it here, or `leave` it beside its place, of which nothing is recorded. Raises OSError where it can be
        neither moved nor renamed."""
        taken = Taken(self._new_id(), base, path, how, why, keys, at=time.time())
        with parent_of(base, path, change=True) as (parent, name):
            beside = f"{os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])}.quarantined-{taken.id}"
            os.rename(name, beside, src_dir_fd=parent, dst_dir_fd=parent)
            if leave:
                return replace(taken, id="", thing=os.path.join(os.path.dirname(path), beside))  # noqa: PTH118, PTH120
            try:
                taken = self._bring(taken, parent, beside)
            except OSError:
                taken = replace(taken, thing=os.path.join(os.path.dirname(path), beside))  # noqa: PTH118, PTH120
        self.record(taken)
        self._prune(taken.id)
        return taken

    def copy(self, base: str, path: str, data: bytes, why: str, keys: tuple[str, ...]) -> Taken:
        """Keep a copy of what is about to be rewritten. Raises OSError."""
        taken = Taken(self._new_id(), base, path, "changed", why, keys, at=time.time(), bytes=len(data))
        folder = self._folder / taken.id
        make_private_folder(folder)
        write_private(folder / _THING, data)
        taken = replace(taken, thing=str(folder / _THING))
        self.record(taken)
        self._prune(taken.id)
        return taken

    def record(self, taken: Taken) -> None:
        """What is known of it; without room for that, the name beside its place has to say it."""
        with contextlib.suppress(OSError):
            make_private_folder(self._folder / taken.id)
            write_private(self._folder / taken.id / _ABOUT, json.dumps(asdict(taken)).encode())

    def all(self) -> list[Taken]:
        """The oldest first."""
        found: list[Taken] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                taken = _read(read_private(Path(entry.path, _ABOUT), _ABOUT_BYTES))
                if taken is not None and taken.id == entry.name:
                    found.append(taken)
        return sorted(found, key=lambda taken: taken.at)

    def put_back(self, taken: Taken) -> None:
        """Move it to its place, where nothing may be. Raises OSError."""
        with parent_of(taken.base, taken.path, make=True) as (parent, name):
            _refuse_existing(parent, name)
            try:
                os.rename(taken.thing, name, dst_dir_fd=parent)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(taken.thing, f"/proc/self/fd/{parent}/{name}" if _has_proc() else taken.path)
        self.forget(taken)

    def forget(self, taken: Taken) -> None:
        remove_tree(self._folder / taken.id)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        while True:
            name = secrets.token_hex(3)
            if not (self._folder / name).exists():
                return name

    def _bring(self, taken: Taken, parent: int, name: str) -> Taken:
        size = _size(parent, name)
        if size > LARGEST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        folder = self._folder / taken.id
        make_private_folder(folder)
        thing = str(folder / _THING)
        try:
            os.rename(name, thing, src_dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            source = os.path.join(os.path.dirname(taken.path), name)  # noqa: PTH118, PTH120
            _copy(f"/proc/self/fd/{parent}/{name}" if _has_proc() else source, thing)
            remove_tree(source) if os.path.isdir(source) and not os.path.islink(source) else os.unlink(  # noqa: PTH112, PTH114
                name, dir_fd=parent
            )
        return replace(taken, thing=thing, bytes=size)

    def _prune(self, newest: str) -> None:
        kept = self.all()
        total = sum(taken.bytes for taken in kept)
        for taken in kept:
            if len(kept) <= MOST and total <= MOST_BYTES:
                return
            if taken.id != newest:
                self.forget(taken)
                kept = [other for other in kept if other.id != taken.id]
                total -= taken.bytes


def _copy(source: str, target: str) -> None:
    """As it is, across file systems. Raises OSError."""
    try:
        if stat.S_ISDIR(os.lstat(source).st_mode):
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target, follow_symlinks=False)
    except shutil.Error as error:
        raise OSError(errno.EIO, str(error)) from None
    except OSError:
        remove_tree(target)
        raise


def _size(parent: int, name: str) -> int:
    """How many bytes there are in all; more than may be taken where there are too many files."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    total, count = 0, 0
    for _, _, names, fd in os.fwalk(name, dir_fd=parent):
        for file in names:
            with contextlib.suppress(OSError):
                total += os.stat(file, dir_fd=fd, follow_symlinks=False).st_size
            count += 1
            if total > LARGEST_BYTES or count > _MOST_ENTRIES:
                return LARGEST_BYTES + 1
    return total


def _refuse_existing(parent: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.stat(name, dir_fd=parent, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _has_proc() -> bool:
    return os.path.isdir("/proc/self/fd")  # noqa: PTH112


def _read(data: bytes | None) -> Taken | None:
    try:
        said: dict[str, Any] = json.loads(data or b"")
        keys: list[str] = said.pop("keys")
        return Taken(**said, keys=tuple(keys))
    except (ValueError, TypeError, KeyError):
        return None
