"""Snapshots of the protected paths with what they hold, and the registry of the commands that run now.

Each running command, in whichever process, has a file of its own, which holds its snapshot and is locked for as long as
the command runs. A command that begins meanwhile merges that snapshot into its own, since what is there by now may be
the other one's work. A file without a lock was left by a gateway that was killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trunkline.config.settings import STATE_DIR
from trunkline.runtime.state_files import is_ours, make_private_folder, read_private, write_private
from trunkline.sources.builtin.protection.nofollow import link_at, read_at
from trunkline.sources.builtin.protection.scanner import YOUNG_NS, FileStamp, ProtectedFile, ScanResult

STATE: Final = "protected"
COMMANDS: Final = "commands"
TO_THE_END_S: Final = 900.0
"""Others may have a great deal to undo, and giving up would leave what the command has planted."""
_WAIT_S: Final = 30.0
_POLL_S: Final = 0.01
_SUFFIX: Final = ".json"
Identity = tuple[int, int]  # device and inode
_NO_LOCK: Final = (errno.EISDIR, errno.ELOOP, errno.ENXIO)
"""Something other than a file stands in place of the lock, as a command can arrange: no command begins there."""


LARGEST_KEPT_BYTES: Final = 1 << 20
MOST_KEPT_BYTES: Final = 32 << 20
"""Of one tree. Whatever exceeds it is compared by its times only, and cannot be put back."""
_OLD_S: Final = 86_400.0
_PRUNE_S: Final = 600.0


class ContentStore:
    """Contents by digest, in a private folder. Digests are remembered while a file's stamp stays the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[FileStamp, str]] = {}
        self._pruned_at = 0.0

    def records(self, base: str, scan: ScanResult) -> dict[str, ProtectedFile]:
        """Everything that a scan has found, with its content, which is stored."""
        now_ns, left = time.time_ns(), MOST_KEPT_BYTES
        records: dict[str, ProtectedFile] = {}
        for path, file in scan.items.items():
            known = self._known.get(path)
            if known is None or known[0] != file.stamp or not self._has(file, known[1]):
                known = file.stamp, self._content(base, path, file, left)
            if now_ns - file.stamp.changed_ns > YOUNG_NS:
                self._known[path] = known
            left -= file.stamp.size if file.kind in ("file", "config") else 0
            records[path] = ProtectedFile(file.protected_path, file.kind, file.stamp, file.listed, known[1])
        for path in self._known.keys() - scan.items.keys():
            del self._known[path]
        return records

    def _has(self, file: ProtectedFile, content: str) -> bool:
        """Whether it is still stored: other gateways use the same folder, and remove what is old."""
        return not content or file.kind == "link" or (self._folder / content).exists()

    def _content(self, base: str, path: str, file: ProtectedFile, left_bytes: int) -> str:
        if file.kind == "link":
            return link_at(base, path)
        if file.kind in ("other", "folder") or file.stamp.size > min(LARGEST_KEPT_BYTES, left_bytes):
            return ""
        data = read_at(base, path, LARGEST_KEPT_BYTES)
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


# -- snapshots --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProtectiveMounts:
    """What a sandbox mounts read-only, each path with the identity that it had in the snapshot, and the folders that
    nobody may move there."""

    read_only: dict[str, Identity] = field(default_factory=dict[str, Identity])
    pinned: tuple[str, ...] = ()


@dataclass(slots=True)
class ProtectionSnapshot:
    """What was at the protected paths below these folders when a command began."""

    bases: tuple[str, ...]
    records: dict[str, ProtectedFile] = field(default_factory=dict[str, ProtectedFile])
    complete: bool = True
    taken_ns: int = 0
    unlisted: set[str] = field(default_factory=set[str])
    """The user's own folders that the user cannot list."""
    mounts: ProtectiveMounts = field(default_factory=ProtectiveMounts)

    def covers(self, path: str) -> bool:
        return any(path.startswith(f"{base.rstrip('/')}/") for base in self.bases)

    def has_mounted(self, path: str) -> bool:
        """Whether this was read-only for the command, and is still the same file or folder."""
        return path in self.mounts.read_only and identity_of(path) == self.mounts.read_only[path]

    def overlaps(self, other: ProtectionSnapshot) -> bool:
        """Whether one command can move something that the other one works in."""
        return any(base in other.bases or other.covers(base) for base in self.bases) or any(
            map(self.covers, other.bases)
        )

    def may_have_missed(self, path: str, record: ProtectedFile) -> bool:
        """Whether it may have been there, unseen; judged by its own time alone."""
        return not self.complete and record.stamp.changed_ns < self.taken_ns - YOUNG_NS

    def remove(self, planted: Sequence[str]) -> bool:
        """Drop these paths and everything below them. Returns whether there was any."""
        below = tuple(f"{path}/" for path in planted)
        dropped = [path for path in self.records if path in planted or path.startswith(below)]
        for path in dropped:
            del self.records[path]
        return bool(dropped)

    def merge(self, other: ProtectionSnapshot) -> None:
        """Take over what was there before another command began that is still running."""
        if self.overlaps(other):
            self.taken_ns = min(self.taken_ns, other.taken_ns)
        for path in [path for path in self.records if other.covers(path) and path not in other.records]:
            if self.records[path].listed and not other.may_have_missed(path, self.records[path]):
                del self.records[path]
        for path, record in other.records.items():
            if self.covers(path) and (record.listed or path in self.records):
                self.records[path] = record


class CommandRegistry:
    """The files of all running commands, in one private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def lock(self, wait_s: float | None = None) -> Generator[None]:
        """While this lasts, no other command begins or ends. Raises OSError, including TimeoutError."""
        make_private_folder(self._folder)
        fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            wait_s = _WAIT_S if wait_s is None else wait_s
            deadline = time.monotonic() + wait_s
            while not _locked(fd):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"other commands have held the lock for more than {wait_s:g} s")
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(fd)

    def register(self, snapshot: ProtectionSnapshot) -> RunningCommand:
        """Only under the lock. Raises OSError."""
        return RunningCommand(self._folder, snapshot)

    def others(self, *, forget: bool = True) -> tuple[list[ProtectionSnapshot], list[ProtectionSnapshot]]:
        """The snapshots of commands that run now, and of those that were never ended; `forget` removes the latter. Only
        under the lock."""
        running: list[ProtectionSnapshot] = []
        abandoned: list[ProtectionSnapshot] = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError, ValueError):
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                with os.fdopen(fd, "rb") as file:
                    is_abandoned = _locked(fd)
                    if is_abandoned and forget:
                        path.unlink()
                    snapshot = _read(file.read()) if is_ours(fd) else None
                    if is_abandoned and snapshot is not None:
                        abandoned.append(snapshot)
                    elif not is_abandoned:
                        running.append(snapshot or ProtectionSnapshot(("/",), complete=False, taken_ns=time.time_ns()))
        return running, abandoned

    def remove_from_all(self, planted: Sequence[str]) -> None:
        """Remove what was planted from all snapshots, so that no other command puts it back. Only under the lock."""
        for path in self._folder.glob(f"*{_SUFFIX}") if planted else ():
            with contextlib.suppress(OSError), path.open("r+b") as file:
                snapshot = _read(file.read())
                if snapshot is not None and snapshot.remove(planted):
                    file.seek(0)
                    file.write(_written(snapshot))
                    file.truncate()

    def may_change(self, path: str) -> bool:
        """Whether a command that runs now may change what this path leads to. Waits for nobody: one that begins or ends
        at this moment counts as one that may."""
        paths = {os.path.abspath(path), os.path.realpath(path)}  # noqa: PTH100
        try:
            with self.lock(0):
                running, _ = self.others(forget=False)
        except OSError as error:
            return error.errno not in _NO_LOCK
        return any(one.covers(name) and not one.has_mounted(name) for one in running for name in paths)


class RunningCommand:
    """One command in the registry, until it is closed."""

    def __init__(self, folder: Path, snapshot: ProtectionSnapshot) -> None:
        self._path = folder / f"{secrets.token_hex(8)}{_SUFFIX}"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _locked(self._fd)
            with open(self._fd, "wb", closefd=False) as file:
                file.write(_written(snapshot))
        except BaseException:
            self.close()  # else it would seem to run for as long as this process does
            raise

    def refresh(self, snapshot: ProtectionSnapshot) -> None:
        """Drop from the snapshot what others have found to be planted since. Only under the lock."""
        with contextlib.suppress(OSError):
            current = _read(os.pread(self._fd, os.fstat(self._fd).st_size, 0))
            if current is not None:
                snapshot.records = current.records

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


def _written(snapshot: ProtectionSnapshot) -> bytes:
    records = {
        path: [record.protected_path, record.kind, list(record.stamp), record.listed, record.content]
        for path, record in snapshot.records.items()
    }
    mounts = snapshot.mounts
    fields = [snapshot.bases, snapshot.complete, snapshot.taken_ns, records, mounts.read_only, mounts.pinned]
    return json.dumps(fields).encode()


def _read(data: bytes) -> ProtectionSnapshot | None:
    """None for what was not written completely."""
    try:
        fields: Any = json.loads(data)
        bases, complete, taken_ns, written, mounted, pinned = fields
        records = {
            path: ProtectedFile(protected_path, kind, FileStamp(*stamp), listed, content)
            for path, (protected_path, kind, stamp, listed, content) in written.items()
        }
        identities = {path: (device, inode) for path, (device, inode) in mounted.items()}
        if not all(isinstance(path, str) for path in (*bases, *pinned)):
            return None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return ProtectionSnapshot(
        tuple(bases), records, complete, taken_ns, mounts=ProtectiveMounts(identities, tuple(pinned))
    )


def identity_of(path: str) -> Identity | None:
    """Device and inode; None for what is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


# -- the folders of the registry --------------------------------------------------------------------------------------


def may_be_planted(path: str, state_dir: Path, home: str) -> bool:
    """Whether a command that runs now, under any gateway of this user, may have changed the file at this path."""
    folders = [parent / STATE / COMMANDS for parent in (state_dir, spare_folder())]
    if home:
        folders.append(_shared_folder(home))
    return any(CommandRegistry(folder).may_change(path) for folder in folders if is_usable(folder))


def commands_folder(home: str, otherwise: Path) -> Path:
    """The registry's folder: the same for all gateways of a user where that is possible, wherever their state is."""
    folder = _shared_folder(home)
    if home:
        with contextlib.suppress(OSError):
            make_private_folder(folder)
            if _is_own(folder) and os.access(folder, os.W_OK):
                return folder
    return otherwise / COMMANDS


def _shared_folder(home: str) -> Path:
    return Path(STATE_DIR.replace("~", home), STATE, COMMANDS)


def spare_folder() -> Path:
    """The folder for state that `state_dir` does not take."""
    return Path(tempfile.gettempdir(), f"trunkline-protected-{os.getuid()}")


def spare_folders() -> list[Path]:
    """That folder, where it exists and belongs to this user."""
    spare = spare_folder()
    with contextlib.suppress(OSError):
        return [spare] if _is_own(spare) else []
    return []


def is_usable(folder: Path) -> bool:
    """Whether it is writable, and belongs to this user as its parent does. Anyone else's could hold everything up."""
    with contextlib.suppress(OSError):
        return _is_own(folder.parent) and _is_own(folder) and os.access(folder, os.W_OK)
    return False


def _is_own(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
