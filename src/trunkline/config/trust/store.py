"""The list of files that their user trusts: kept in the user's own state folder, whatever any file says of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trunkline.config.found import PLUGINS, home_of, is_there
from trunkline.config.gateway import STATE_DIR
from trunkline.runtime.state_files import make_private_folder, read_private, write_private

_NAME: Final = "trusted.json"
_DAMAGED: Final = "trusted.json.damaged"
_KEYS: Final = ("digest", "since", "also")
_LOCK: Final = "trusted.lock"
_MOST_BYTES: Final = 16 * 1024 * 1024
_LOCK_TIMEOUT_S: Final = 10.0
_LOCK_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Trusted:
    """The fingerprint of a file as it was trusted, and when that was. `also` is another one that is as good: while we
    edit the file, what it says before and after."""

    digest: str
    since: str
    also: str = ""

    def covers(self, digest: str) -> bool:
        return digest in (self.digest, self.also)


@dataclass(frozen=True, slots=True)
class Kept:
    """By path. `fault` says why the list cannot be used, which then is empty; `is_ours` whether it is a file that only
    this user can have written."""

    files: Mapping[str, Trusted]
    fault: str = ""
    is_ours: bool = True


def trust_key(path: Path) -> str:
    """The real path of a file. A link in place of the file itself, or of `.awf`, is not followed: where relative paths
    in the file lead, and what its programs find, is decided by the folder it is found in."""
    path = path.absolute()
    kept = PLUGINS if path.parts[-2:] == PLUGINS.parts else Path(path.name)
    return os.path.join(os.path.realpath(path.parents[len(kept.parts) - 1]), kept)  # noqa: PTH118


class TrustStore:
    """`environ` says whose it is: the user with this HOME."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = home_of(environ) / STATE_DIR.removeprefix("~/")
        self.path = self.folder / _NAME

    def keep_below(self, roots: Iterable[Path | None]) -> None:
        """Where agents may write around the folder, it is there, and so can be hidden from them: what is not there
        yet, they could make."""
        if any(root is not None and self.folder.is_relative_to(root.resolve()) for root in roots):
            with contextlib.suppress(OSError):
                make_private_folder(self.folder)

    def read(self) -> Kept:
        """What is trusted. Where the list is damaged, or could be somebody else's, nothing is."""
        data = read_private(self.path, _MOST_BYTES)
        if data is None:
            fault = "it is no plain file that only you can write" if is_there(self.path) else ""
            return Kept({}, fault, is_ours=not fault)
        try:
            return Kept(_files_in(json.loads(data)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return Kept({}, "it is damaged")

    def trust(self, path: Path, digest: str, *, also: str = "") -> None:
        """Trust a file as it is with this fingerprint. Raises OSError."""
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with self._changing() as files:
            files[trust_key(path)] = Trusted(digest, since, also)

    def revoke(self, path: Path) -> bool:
        """Trust it no longer; whether it was trusted. Raises OSError."""
        with self._changing() as files:
            return files.pop(trust_key(path), None) is not None

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, Trusted]]:
        """The list, to be changed while nobody else does. A damaged one is put aside."""
        make_private_folder(self.folder)
        with self._locked():
            kept = self.read()
            if not kept.is_ours:
                raise OSError(f"{kept.fault}; move it away")
            if kept.fault:
                self.path.replace(self.path.with_name(_DAMAGED))
            files = dict(kept.files)
            yield files
            if files != kept.files or kept.fault:
                listed = {name: asdict(one) for name, one in sorted(files.items())}
                write_private(self.path, json.dumps({"version": 1, "files": listed}, indent=1).encode())

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.folder / _LOCK, flags, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT_S
            while not _lock(descriptor):
                if time.monotonic() > deadline:
                    raise OSError(f"another `trunkline` keeps `{self.path}`")
                time.sleep(_LOCK_PAUSE_S)
            yield
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _files_in(said: Any) -> dict[str, Trusted]:
    if said["version"] != 1:
        raise ValueError
    files: dict[str, Any] = said["files"]
    return {name: Trusted(*(_text(one[key]) for key in _KEYS)) for name, one in files.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
