"""Which gateways run on this machine: each leaves a record of where it listens, and a lock for as long as it lives.

The lock is the truth. The system drops it with the process, however that ends, so a record without a held lock is
one that a killed gateway left behind, and nobody believes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from trunkline.runtime.state_files import gateways_folder, is_ours, make_private_folder, read_private, write_private

RECORD: Final = "running.json"
LOCK: Final = "running.lock"
_RECORD_BYTES: Final = 64 * 1024
_MAX_FOLDERS: Final = 4096
_LOCK_TRIES: Final = 5
_LOCK_PAUSE_S: Final = 0.01
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class Running(msgspec.Struct, frozen=True):
    """A gateway that runs: `url` is its `/mcp`, `socket` the path of its Unix socket or nothing."""

    pid: int
    url: str
    config: str
    version: str
    started: str
    socket: str = ""


class Announcement:
    """The record of this process, and the lock that makes it true. Without one, `reason` says why not."""

    def __init__(self, folder: Path, lock: int | None, reason: str = "") -> None:
        self._folder = folder
        self._lock = lock
        self.reason = reason

    def close(self) -> None:
        """Take the record back. The lock's file stays: a removed one could be locked twice, by its old and new self."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        with contextlib.suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)
        os.close(lock)


def running_record(*, host: str, port: int, socket: Path | None, config: Path, version: str) -> Running:
    """What this process tells others about itself. An address that means all of them is told as one to dial."""
    host = _WILDCARDS.get(host, host)
    return Running(
        pid=os.getpid(),
        url=f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp",
        config=str(config),
        version=version,
        started=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        socket=str(socket or ""),
    )


def announce_running(folder: Path, record: Running) -> Announcement:
    """Tell others that this gateway runs. It never fails: a gateway that cannot be found by itself is still a gateway.

    The first gateway of a configuration file has the record; a second one beside it is reached by its URL.
    """
    lock: int | None = None
    try:
        make_private_folder(folder)
        lock = _open_lock(folder, os.O_RDWR | os.O_CREAT)
        if lock is None:
            return Announcement(folder, None, f"`{folder / LOCK}` is not a file of this user")
        if not _take(lock):
            os.close(lock)
            return Announcement(folder, None, "another gateway runs for the same configuration file")
        (folder / RECORD).unlink(missing_ok=True)
        write_private(folder / RECORD, msgspec.json.encode(record))
    except OSError as error:
        if lock is not None:
            os.close(lock)
        return Announcement(folder, None, f"`{folder}` cannot be written: {error.strerror or error}")
    return Announcement(folder, lock)


def find_running(folder: Path) -> Running | None:
    """The gateway that runs for this folder. Whatever lies there, this returns."""
    if not _alive(folder):
        return None
    data = read_private(folder / RECORD, _RECORD_BYTES)
    if data is None:
        return None
    try:
        record = msgspec.json.decode(data, type=Running)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return record if _sound(record) else None


def all_running(state_dir: Path) -> list[Running]:
    """Every gateway that runs with this state folder, the oldest first."""
    try:
        folders = list(islice(gateways_folder(state_dir).iterdir(), _MAX_FOLDERS))
    except OSError:
        return []
    found = [record for folder in folders if (record := find_running(folder)) is not None]
    return sorted(found, key=lambda record: (record.started, record.pid))


def _alive(folder: Path) -> bool:
    """Whether somebody holds the lock: whoever can take it shows that nobody does."""
    try:
        lock = _open_lock(folder, os.O_RDONLY)
    except (OSError, ValueError):
        return False
    if lock is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def _open_lock(folder: Path, flags: int) -> int | None:
    lock = os.open(folder / LOCK, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if is_ours(lock):
        return lock
    os.close(lock)
    return None


def _take(lock: int) -> bool:
    """A few tries: somebody who just looks whether we run holds the lock for a moment too."""
    for attempt in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 < _LOCK_TRIES:
                time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def _sound(record: Running) -> bool:
    try:
        parts = urlsplit(record.url)
        dialable = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
    return dialable and record.pid > 0 and record.url.isprintable() and "\0" not in record.socket
