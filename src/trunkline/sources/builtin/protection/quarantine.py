"""The quarantine: what was taken from protected paths, kept in a private folder until the user accepts it.

Nothing is deleted but the oldest items, once there are too many. What cannot be moved here (it is too large, or
the disk is full) stays beside its path, under a name that no program looks for.
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

from trunkline.core.errors import NOT_ACCEPTED, GatewayError, Problem
from trunkline.runtime.state_files import make_private_folder, read_private, write_private
from trunkline.runtime.tree_removal import remove_tree
from trunkline.sources.builtin.protection.nofollow import link_at, parent_of, read_at
from trunkline.sources.builtin.protection.snapshots import (
    LARGEST_KEPT_BYTES,
    STATE,
    CommandRegistry,
    commands_folder,
    digest_of,
)

FOLDER: Final = "quarantine"
MOST: Final = 200
MOST_BYTES: Final = 256 << 20
LARGEST_BYTES: Final = 64 << 20
_MOST_ENTRIES: Final = 10_000
_ABOUT: Final = "about.json"
_THING: Final = "thing"
_ABOUT_BYTES: Final = 1 << 20
_LONGEST_NAME: Final = 150
"""Bytes of a name that are kept, where file systems allow 255 in all."""


@dataclass(frozen=True, slots=True)
class QuarantinedItem:
    """Something taken from `path`, below `base`. `thing` is where it is now, `left` the digest of what was put in its
    place, empty if nothing was; `why` and `keys` say what it could have made programs do. Stored as JSON."""

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
        """The path below `base`."""
        return self.path[len(self.base.rstrip("/")) + 1 :]


class Quarantine:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(
        self, base: str, path: str, how: str, why: str, keys: tuple[str, ...] = (), *, leave: bool = False
    ) -> QuarantinedItem:
        """Move it here, or `leave` it beside its path without a record. Raises OSError if it can be neither moved
        nor renamed."""
        item = QuarantinedItem(self._new_id(), base, path, how, why, keys, at=time.time())
        with parent_of(base, path, change=True) as (parent, name):
            beside = f"{os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])}.quarantined-{item.id}"
            os.rename(name, beside, src_dir_fd=parent, dst_dir_fd=parent)
            beside_path = os.path.join(os.path.dirname(path), beside)  # noqa: PTH118, PTH120
            if leave:
                return replace(item, id="", thing=beside_path)
            try:
                item = self._bring(item, parent, beside)
            except OSError:
                item = replace(item, thing=beside_path)
        return self._added(item)

    def copy(self, base: str, path: str, data: bytes, why: str, keys: tuple[str, ...]) -> QuarantinedItem:
        """Keep a copy of a file that is about to be rewritten. Raises OSError."""
        item = QuarantinedItem(self._new_id(), base, path, "changed", why, keys, at=time.time(), bytes=len(data))
        thing = self._folder / item.id / _THING
        make_private_folder(thing.parent)
        write_private(thing, data)
        return self._added(replace(item, thing=str(thing)))

    def _added(self, item: QuarantinedItem) -> QuarantinedItem:
        self.record(item)
        self._prune(item.id)
        return item

    def record(self, item: QuarantinedItem) -> None:
        """Write down what is known of it; without room for that, the name beside its path has to say it."""
        with contextlib.suppress(OSError):
            make_private_folder(self._folder / item.id)
            write_private(self._folder / item.id / _ABOUT, json.dumps(asdict(item)).encode())

    def all(self) -> list[QuarantinedItem]:
        """The oldest first."""
        found: list[QuarantinedItem] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                with contextlib.suppress(ValueError, TypeError, KeyError):  # of what was not written completely
                    fields: dict[str, Any] = json.loads(read_private(Path(entry.path, _ABOUT), _ABOUT_BYTES) or b"")
                    keys: list[str] = fields.pop("keys")
                    item = QuarantinedItem(**fields, keys=tuple(keys))
                    found += [item] if item.id == entry.name else []
        return sorted(found, key=lambda item: item.at)

    def put_back(self, item: QuarantinedItem) -> None:
        """Move it to its path, where nothing may be. Raises OSError."""
        with parent_of(item.base, item.path, make=True) as (parent, name):
            with contextlib.suppress(FileNotFoundError):
                os.stat(name, dir_fd=parent, follow_symlinks=False)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            try:
                os.rename(item.thing, name, dst_dir_fd=parent)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(item.thing, _path_in(parent, name, item.path))
        self.forget(item)

    def forget(self, item: QuarantinedItem) -> None:
        remove_tree(self._folder / item.id)

    def _new_id(self) -> str:
        while (self._folder / (name := secrets.token_hex(3))).exists():
            pass
        return name

    def _bring(self, item: QuarantinedItem, parent: int, name: str) -> QuarantinedItem:
        size = _size(parent, name)
        if size > LARGEST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        folder = self._folder / item.id
        make_private_folder(folder)
        thing = str(folder / _THING)
        try:
            os.rename(name, thing, src_dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            source = os.path.join(os.path.dirname(item.path), name)  # noqa: PTH118, PTH120
            _copy(_path_in(parent, name, source), thing)
            if os.path.isdir(source) and not os.path.islink(source):  # noqa: PTH112, PTH114
                remove_tree(source)
            else:
                os.unlink(name, dir_fd=parent)
        return replace(item, thing=thing, bytes=size)

    def _prune(self, newest: str) -> None:
        kept = self.all()
        total, count = sum(item.bytes for item in kept), len(kept)
        for item in kept:
            if count <= MOST and total <= MOST_BYTES:
                return
            if item.id != newest:
                self.forget(item)
                total, count = total - item.bytes, count - 1


def _path_in(parent: int, name: str, otherwise: str) -> str:
    """A path by way of the open folder, where the system has such paths."""
    return f"/proc/self/fd/{parent}/{name}" if os.path.isdir("/proc/self/fd") else otherwise  # noqa: PTH112


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
    """The total number of bytes; more than are allowed if there are too many files."""
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


# -- accepting a change -----------------------------------------------------------------------------------------------


def all_quarantined(state_dirs: list[Path]) -> list[tuple[Path, QuarantinedItem]]:
    """All items in these folders, the oldest first."""
    found = [(state_dir, item) for state_dir in state_dirs for item in Quarantine(state_dir / FOLDER).all()]
    return sorted(found, key=lambda pair: pair[1].at)


def accept_change(state_dir: Path, item: QuarantinedItem, *, force: bool, home: Path) -> QuarantinedItem | None:
    """Put an item back. What is at its path now is quarantined in its turn, and returned. Raises GatewayError if a
    command runs below that folder, or the path was changed by someone else and `force` is not set."""
    quarantine = Quarantine(state_dir / FOLDER)
    registry = CommandRegistry(commands_folder(str(home), state_dir / STATE))
    try:
        with registry.lock():
            running, _ = registry.others(forget=False)
            if any(other.covers(item.path) for other in running):
                raise _refused(item, "an agent's command runs below that folder", "wait until it has ended")
            standing = _content_at(item)
            if standing != item.left and not force:
                raise _refused(item, "that path has changed since", "compare the two; `--force` restores it anyway")
            replaced = None if standing == "" else quarantine.take(item.base, item.path, "changed", "accepted instead")
            try:
                quarantine.put_back(item)
            except OSError:
                if replaced is not None:
                    quarantine.put_back(replaced)
                raise
            return replaced
    except OSError as error:
        raise _refused(item, error.strerror or str(error), "") from error


def _content_at(item: QuarantinedItem) -> str:
    """What is at the path now, as `left` would say it; empty for nothing."""
    try:
        with parent_of(item.base, item.path) as (parent, name):
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(status.st_mode):
        return link_at(item.base, item.path)
    data = read_at(item.base, item.path, LARGEST_KEPT_BYTES)
    return "something else" if data is None else digest_of(data)


def _refused(item: QuarantinedItem, why: str, hint: str) -> GatewayError:
    message = f"`{item.id}` was not restored: {why}"
    return GatewayError(Problem(code=NOT_ACCEPTED, message=message, where=item.path, hint=hint))
