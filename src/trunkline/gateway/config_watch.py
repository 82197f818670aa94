"""Notices that a configuration file has changed, by a `stat` every second.

Polling works where change notifications do not: on network file systems, on mounted volumes, and where a file is
renamed or a link is pointed elsewhere.
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
    """Calls `on_change` when the file has changed, but not while `put_off` says so.

    With `read_before` the file was read a moment ago: a very recent change may have come after that, so it counts.
    """

    def __init__(
        self,
        path: Path,
        on_change: Callable[[], None],
        every_s: float = EVERY_S,
        *,
        read_before: bool = False,
        put_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._put_off = put_off
        self._every_s = every_s
        self._seen = _signature(path)
        self._known = None if read_before and _is_fresh(path) else self._seen
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every_s, self._look)

    @property
    def is_changed(self) -> bool:
        """Whether the file is not what it was when it last counted; one that is gone changes nothing."""
        return _signature(self._path) not in (None, self._known)

    def _look(self) -> None:
        """A change counts once it has stood still for a turn: half a file is no configuration."""
        self._timer = self._loop.call_later(self._every_s, self._look)
        before, self._seen = self._seen, _signature(self._path)
        if self._seen is not None and self._seen == before and self._seen != self._known and not self._put_off():
            self._known = self._seen
            self._on_change()

    def close(self) -> None:
        self._timer.cancel()


def _signature(path: Path) -> _Signature | None:
    """What tells one state of a file from another; None while it is not there, as some editors have it for a moment."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a watch is nothing but stat
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _is_fresh(path: Path) -> bool:
    """Whether it was written, or moved to its place, within the last minute (or in the future, by a wrong clock)."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a watch is nothing but stat
    except OSError:
        return True
    return time.time() - max(status.st_mtime, status.st_ctime) < _FRESH_S
