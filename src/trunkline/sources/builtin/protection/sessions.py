"""Who runs commands below which folder at this moment, in whichever process, and what was at its places before.

Each command has a file of its own, locked for as long as it runs. A command that begins while another runs takes over
what that one has seen before: what there is by now may be the other one's work. A file that nobody has locked is left
of a gateway that was killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trunkline.runtime.state_files import is_ours, make_private_folder
from trunkline.sources.builtin.protection.kept import Record
from trunkline.sources.builtin.protection.tree import YOUNG_NS, Stamp

_WAIT_S: Final = 30.0
TO_THE_END_S: Final = 900.0
"""Others may have very much to take back, and who gave up leaves what his command has planted."""
_LOOK_S: Final = 0.01
_SUFFIX: Final = ".json"
_NO_LOCK: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO)
"""What stands in place of the lock is none, as a command can make it where it reaches the folder: none begins there."""


@dataclass(slots=True)
class Before:
    """What was at the places below these folders when a command began."""

    bases: tuple[str, ...]
    records: dict[str, Record] = field(default_factory=dict[str, Record])
    complete: bool = True
    taken_ns: int = 0
    unlisted: set[str] = field(default_factory=set[str])
    """Folders of this user that he has closed to himself."""
    mounted: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    pinned: tuple[str, ...] = ()
    """What its sandbox keeps it from changing and from moving, as `Mounts` says."""

    def covers(self, path: str) -> bool:
        return any(path.startswith(f"{base.rstrip('/')}/") for base in self.bases)

    def has_mounted(self, path: str) -> bool:
        """Whether this was read-only for the command, and still is what it was."""
        if path not in self.mounted:
            return False
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            return (status.st_dev, status.st_ino) == self.mounted[path]
        return False

    def overlaps(self, other: Before) -> bool:
        """Whether what the one can move may lie where the other works."""
        return any(base in other.bases or other.covers(base) for base in self.bases) or any(
            self.covers(base) for base in other.bases
        )

    def may_have_missed(self, path: str, record: Record) -> bool:
        """Whether it may have been there, unseen; told from its own time alone."""
        return not self.complete and record.stamp.changed_ns < self.taken_ns - YOUNG_NS

    def without(self, planted: Sequence[str]) -> bool:
        """Have not seen these, nor what is in them. Says whether any of it was."""
        within = tuple(f"{path}/" for path in planted)
        gone = [path for path in self.records if path in planted or path.startswith(within)]
        for path in gone:
            del self.records[path]
        return bool(gone)

    def taking_over(self, other: Before) -> None:
        """Have seen what another one has seen before the command that is still running."""
        if self.overlaps(other):
            self.taken_ns = min(self.taken_ns, other.taken_ns)
        strange = [path for path in self.records if other.covers(path) and path not in other.records]
        for path in strange:
            if self.records[path].listed and not other.may_have_missed(path, self.records[path]):
                del self.records[path]
        for path, record in other.records.items():
            if self.covers(path) and (record.listed or path in self.records):
                self.records[path] = record


class Sessions:
    """The files of all commands, in one private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def alone(self, wait_s: float | None = None) -> Generator[None]:
        """While this lasts, no other command begins or is looked at. Raises OSError, also where it takes too long."""
        make_private_folder(self._folder)
        fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            wait_s = _WAIT_S if wait_s is None else wait_s
            deadline = time.monotonic() + wait_s
            while not _locked(fd):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"others have looked at protected places for more than {wait_s:g} s")
                time.sleep(_LOOK_S)
            yield
        finally:
            os.close(fd)

    def others(self, *, forget: bool = True) -> tuple[list[Before], list[Before]]:
        """What commands that run now have seen before, and what those have that were never ended: once, unless nobody
        is to `forget` them. Only while alone."""
        running: list[Before] = []
        left: list[Before] = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError, ValueError):
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                with os.fdopen(fd, "rb") as file:
                    is_left = _locked(fd)
                    if is_left and forget:
                        path.unlink()
                    before = _read(file.read()) if is_ours(fd) else None
                    if is_left and before is not None:
                        left.append(before)
                    elif not is_left:
                        running.append(before or Before(("/",), complete=False, taken_ns=time.time_ns()))
        return running, left

    def never_seen(self, planted: Sequence[str]) -> None:
        """What somebody has planted is nothing that other commands have seen before, and none of theirs to put back.
        Only while alone."""
        for path in self._folder.glob(f"*{_SUFFIX}") if planted else ():
            with contextlib.suppress(OSError), path.open("r+b") as file:
                before = _read(file.read())
                if before is not None and before.without(planted):
                    file.seek(0)
                    file.write(_written(before))
                    file.truncate()

    def may_change(self, path: str) -> bool:
        """Whether a command that runs now may have to do with what is at this path, or is led to by it. Waits for
        nobody: whoever begins or ends counts as one that may."""
        paths = {os.path.abspath(path), os.path.realpath(path)}  # noqa: PTH100
        try:
            with self.alone(0):
                running, _ = self.others(forget=False)
        except OSError as error:
            return error.errno not in _NO_LOCK
        return any(one.covers(name) and not one.has_mounted(name) for one in running for name in paths)

    def begin(self, before: Before) -> Session:
        """Only while alone. Raises OSError."""
        return Session(self._folder, before)


class Session:
    """One command that runs, until it is closed."""

    def __init__(self, folder: Path, before: Before) -> None:
        self._path = folder / f"{secrets.token_hex(8)}{_SUFFIX}"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _locked(self._fd)
            with open(self._fd, "wb", closefd=False) as file:
                file.write(_written(before))
        except BaseException:
            self.close()  # else it would seem to run for as long as this process does
            raise

    def refresh(self, before: Before) -> None:
        """What others know by now to have been planted was not there before. Only while alone."""
        with contextlib.suppress(OSError):
            said = _read(os.pread(self._fd, os.fstat(self._fd).st_size, 0))
            if said is not None:
                before.records = said.records

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = -1


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _written(before: Before) -> bytes:
    records = {
        path: [record.place, record.kind, list(record.stamp), record.listed, record.content]
        for path, record in before.records.items()
    }
    said = [before.bases, before.complete, before.taken_ns, records, before.mounted, before.pinned]
    return json.dumps(said).encode()


def _read(data: bytes) -> Before | None:
    """None for what was not written to its end."""
    try:
        said: Any = json.loads(data)
        bases, complete, taken_ns, written, mounted, pinned = said
        records = {
            path: Record(place, kind, Stamp(*stamp), listed, content)
            for path, (place, kind, stamp, listed, content) in written.items()
        }
        identities = {path: (device, inode) for path, (device, inode) in mounted.items()}
        if not all(isinstance(path, str) for path in (*bases, *pinned)):
            return None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return Before(tuple(bases), records, complete, taken_ns, mounted=identities, pinned=tuple(pinned))
