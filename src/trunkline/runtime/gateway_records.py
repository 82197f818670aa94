"""Records of the gateways that run on this machine: where each listens, and a lock that it holds while it lives.

The system releases the lock with the process, however that ends, so a record whose lock is not held was left behind by
a killed gateway and is ignored.
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


class RunningGateway(msgspec.Struct, frozen=True):
    """The record of a running gateway. `url` is that of its `/mcp`, `socket` the path of its Unix socket, if any."""

    pid: int
    url: str
    config: str
    version: str
    started: str
    socket: str = ""


class Announcement:
    """The record of this process and the lock that validates it. Without a lock, `reason` says why."""

    def __init__(self, folder: Path, lock: int | None, reason: str = "") -> None:
        self._folder = folder
        self._lock = lock
        self.reason = reason

    def close(self) -> None:
        """Remove the record. The lock file stays: if it were removed, the old and a new file could both be locked."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        with contextlib.suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)
        os.close(lock)


def running_record(*, host: str, port: int, socket: Path | None, config: Path, version: str) -> RunningGateway:
    """The record of this process. A wildcard host is replaced with one that clients can connect to."""
    host = _WILDCARDS.get(host, host)
    return RunningGateway(
        pid=os.getpid(),
        url=f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp",
        config=str(config),
        version=version,
        started=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        socket=str(socket or ""),
    )


def announce_running(folder: Path, record: RunningGateway) -> Announcement:
    """Publish the record of this gateway. Never fails: a gateway without a record can still be reached by its URL.

    Only the first gateway of a configuration file has a record.
    """
    lock: int | None = None
    try:
        make_private_folder(folder)
        lock = _open_lock(folder, os.O_RDWR | os.O_CREAT)
        if lock is None:
            return Announcement(folder, None, f"`{folder / LOCK}` does not belong to this user")
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


def find_running(folder: Path) -> RunningGateway | None:
    """The running gateway that has this state folder, if any. Never raises, whatever the folder contains."""
    if not _alive(folder):
        return None
    data = read_private(folder / RECORD, _RECORD_BYTES)
    if data is None:
        return None
    try:
        record = msgspec.json.decode(data, type=RunningGateway)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return record if _is_valid(record) else None


def all_running(state_dir: Path) -> list[RunningGateway]:
    """All running gateways below `state_dir`, the oldest first."""
    try:
        folders = list(islice(gateways_folder(state_dir).iterdir(), _MAX_FOLDERS))
    except OSError:
        return []
    found = [record for folder in folders if (record := find_running(folder)) is not None]
    return sorted(found, key=lambda record: (record.started, record.pid))


def _alive(folder: Path) -> bool:
    """Whether a gateway holds the lock of this folder."""
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
    """Take the lock, with a few tries: a process that checks whether we run holds it for a moment."""
    for attempt in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt + 1 < _LOCK_TRIES:
                time.sleep(_LOCK_PAUSE_S)
        else:
            return True
    return False


def _is_valid(record: RunningGateway) -> bool:
    try:
        parts = urlsplit(record.url)
        dialable = parts.scheme == "http" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
    return dialable and record.pid > 0 and record.url.isprintable() and "\0" not in record.socket
