"""Watches a configuration file for changes, by a `stat` every second.

Polling works where change notifications do not: on network file systems and mounted volumes, and when a file is
replaced or a link is changed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

EVERY_S: Final = 1.0
_FRESH_S: Final = 60.0
_Signature = tuple[int, int, int, int]


class FileWatch:
    """Calls `on_change` when the file has changed, but not while `postponed` returns true.

    With `read_before` the file was read a moment ago: a very recent change may be later than that, so it is reported.
    """

    def __init__(
        self,
        path: Path,
        on_change: Callable[[], None],
        every_s: float = EVERY_S,
        *,
        read_before: bool = False,
        postponed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._postponed = postponed
        self._every_s = every_s
        self._seen = _signature(path)
        self._known = None if read_before and _is_fresh(path) else self._seen
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every_s, self._check)

    @property
    def is_changed(self) -> bool:
        """Whether the file differs from when it was last read; one that is gone does not count."""
        return _signature(self._path) not in (None, self._known)

    def _check(self) -> None:
        """Report a change once the file stays the same for a turn, so that no half-written file is read."""
        self._timer = self._loop.call_later(self._every_s, self._check)
        before, self._seen = self._seen, _signature(self._path)
        if self._seen is not None and self._seen == before and self._seen != self._known and not self._postponed():
            self._known = self._seen
            self._on_change()

    def close(self) -> None:
        self._timer.cancel()


def _signature(path: Path) -> _Signature | None:
    """What identifies a state of the file; None while it does not exist, as for a moment with some editors."""
    status = _status(path)
    return None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _is_fresh(path: Path) -> bool:
    """Whether it was written or moved here within the last minute (or in the future, by a wrong clock)."""
    status = _status(path)
    return status is None or time.time() - max(status.st_mtime, status.st_ctime) < _FRESH_S


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - called every second
    except OSError:
        return None
