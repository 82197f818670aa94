"""How many processes there are: of the whole system, which costs next to nothing, and of one command, which costs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from trunkline.links.platform import process_table, with_descendants

_LOAD: Final = Path("/proc/loadavg")


def tasks_in_system() -> int | None:
    """Processes and threads of the whole system; None where it does not tell."""
    try:
        return int(_LOAD.read_bytes().split()[3].partition(b"/")[2])  # "0.13 0.24 0.75 1/96 23213"
    except (OSError, IndexError, ValueError):
        return None


def processes_below(supervisor: int, *, but_of: Collection[int]) -> int:
    """Living processes below a supervisor, without those that are known to come from the leaders in `but_of`."""
    table = process_table()
    tops = [
        process
        for process in table.values()
        if process.parent == supervisor and process.pid not in but_of and process.session not in but_of
    ]
    return len(with_descendants(tops, table))


class Crowd:
    """Watches for somebody who starts processes without end: `count` is asked only once the system has grown a lot."""

    def __init__(self, limit: int, count: Callable[[], int]) -> None:
        self._limit = limit
        self._count = count
        self._before = tasks_in_system()

    def too_large(self) -> bool:
        if self._before is None:
            return False
        now = tasks_in_system() or 0
        if now - self._before <= self._limit:
            return False
        self._before = now  # where others are growing, the next exact count is that much later
        return self._count() > self._limit
