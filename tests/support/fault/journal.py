"""The files that a fault server writes for its test: a journal of events, and the ledger of executed calls."""

from __future__ import annotations

import json
import os
from typing import Any

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Journal:
    """JSON lines; several processes may append to one file, since each event is a single write."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, _FLAGS, 0o600) if path else -1

    def write(self, event: str, **fields: Any) -> None:
        if self._fd >= 0:
            record = {"event": event, "pid": os.getpid(), **fields}
            os.write(self._fd, json.dumps(record).encode() + b"\n")


class Ledger:
    """`start NONCE` and `done NONCE`, on disk before the server goes on: a call that ran is never missing here."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, _FLAGS, 0o600) if path else -1

    def note(self, step: str, nonce: str) -> None:
        if self._fd >= 0 and nonce:
            os.write(self._fd, f"{step} {nonce}\n".encode())
            os.fsync(self._fd)
