"""The list of trusted files. It is in the user's own state folder, whatever a configuration says."""

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

from trunkline.config.files import PLUGINS, home_folder
from trunkline.config.settings import STATE_DIR
from trunkline.core.errors import STATE_NOT_WRITTEN, GatewayError, Problem
from trunkline.runtime.state_files import make_private_folder, read_private, write_private

_MOST_BYTES: Final = 16 * 1024 * 1024
_LOCK_TIMEOUT_S: Final = 10.0
_LOCK_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class TrustedFile:
    """The fingerprint of a trusted file and when it was trusted. `also` is a second valid fingerprint, for the time in
    which Trunkline edits the file."""

    digest: str
    since: str
    also: str = ""


@dataclass(frozen=True, slots=True)
class TrustedFiles:
    """The trusted files by path; none if the list cannot be used, for the reason in `fault`. `is_ours` says whether
    only this user can have written it."""

    files: Mapping[str, TrustedFile]
    fault: str = ""
    is_ours: bool = True


def trust_key(path: Path) -> str:
    """The real path of a file. A link in place of the file itself, or of `.awf`, is not resolved: the folder that a
    file is found in decides what its relative paths mean."""
    path = path.absolute()
    kept = PLUGINS if path.parts[-2:] == PLUGINS.parts else Path(path.name)
    return os.path.join(os.path.realpath(path.parents[len(kept.parts) - 1]), kept)  # noqa: PTH118


class TrustStore:
    """The list of the user whose environment this is."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.folder = home_folder(environ) / STATE_DIR.removeprefix("~/")
        self.path = self.folder / "trusted.json"

    def keep_below(self, roots: Iterable[Path | None]) -> None:
        """Create the folder where agents may write around it, so that it can be hidden from them."""
        if any(root is not None and self.folder.is_relative_to(root.resolve()) for root in roots):
            with contextlib.suppress(OSError):
                make_private_folder(self.folder)

    def read(self) -> TrustedFiles:
        """The trusted files; none if the list is damaged or may be written by others."""
        data = read_private(self.path, _MOST_BYTES)
        if data is None:
            fault = "it is not a regular file that only you can write to" if os.path.lexists(self.path) else ""
            return TrustedFiles({}, fault, is_ours=not fault)
        try:
            return TrustedFiles(_parse(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return TrustedFiles({}, "it is damaged")

    def trust(self, path: Path, digest: str, *, also: str = "") -> None:
        """Trust a file as it is with this fingerprint. Raises GatewayError if the list cannot be written."""
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with self._changing() as files:
            files[trust_key(path)] = TrustedFile(digest, since, also)

    def revoke(self, path: Path) -> bool:
        """Stop trusting a file and return whether it was trusted. Raises GatewayError like `trust`."""
        with self._changing() as files:
            return files.pop(trust_key(path), None) is not None

    @contextlib.contextmanager
    def _changing(self) -> Generator[dict[str, TrustedFile]]:
        """The list, locked while it is changed. A damaged one is put aside."""
        try:
            make_private_folder(self.folder)
            with self._locked():
                kept = self.read()
                if not kept.is_ours:
                    raise OSError(f"{kept.fault}; move it away")
                if kept.fault:
                    self.path.replace(self.path.with_name("trusted.json.damaged"))
                files = dict(kept.files)
                yield files
                if files != kept.files or kept.fault:
                    listed = {name: asdict(one) for name, one in sorted(files.items())}
                    write_private(self.path, json.dumps({"version": 1, "files": listed}, indent=1).encode())
        except OSError as error:
            message = f"The list of trusted files cannot be written: {error.strerror or error}"
            hint = "name the file with `-c` instead"
            problem = Problem(code=STATE_NOT_WRITTEN, message=message, where=str(self.path), hint=hint)
            raise GatewayError(problem) from error

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.folder / "trusted.lock", flags, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT_S
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise OSError(f"another `trunkline` has locked `{self.path}`")
                time.sleep(_LOCK_PAUSE_S)
            yield
        finally:
            os.close(descriptor)


def _parse(data: bytes) -> dict[str, TrustedFile]:
    document: Any = json.loads(data)
    listed: dict[str, Any] = document["files"]
    files = {name: TrustedFile(one["digest"], one["since"], one["also"]) for name, one in listed.items()}
    texts: list[object] = [text for file in files.values() for text in (file.digest, file.since, file.also)]
    if document["version"] != 1 or not all(isinstance(text, str) for text in texts):
        raise ValueError
    return files
