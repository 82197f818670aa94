"""How many processes there are: of the whole system, which costs next to nothing, and of one command, which costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from trunkline.runtime.platform import Process, process_table, read_process, tag_of, with_descendants

_LOAD: Final = Path("/proc/loadavg")
# Everybody waits for a look, and there may be thousands of environments, of megabytes each, only to make it slow.
_ENVIRONMENT_BYTES: Final = 32 << 10


def tasks_in_system() -> int | None:
    """Processes and threads of the whole system; None where it does not tell."""
    try:
        return int(_LOAD.read_bytes().split()[3].partition(b"/")[2])  # "0.13 0.24 0.75 1/96 23213"
    except (OSError, IndexError, ValueError):
        return None


def exceeds(limit: int, *, leader: int, supervisor: int, others: Mapping[str, int]) -> bool:
    """Whether a command has more processes than this: those of its leader's session, and whatever else is below the
    supervisor and not known to come from other commands, which are given as their leaders by tag.

    Where a session is flooded that is seen first, by a look at the youngest processes only.
    """
    if _session_exceeds(limit, leader):
        return True
    table = process_table()
    # One that is starting has no number yet, and the number of one that has ended may be ours by now.
    leaders = set(others.values()) - {0, leader}
    tops = [
        process
        for process in table.values()
        if process.parent == supervisor and not _is_of(process, leaders, tags=others)
    ]
    return len(with_descendants(tops, table)) > limit


def _is_of(process: Process, leaders: Collection[int], *, tags: Iterable[str]) -> bool:
    """Whether a process comes from one of these. An orphan tells by its tag only; one without may be anybody's.

    What is killed together with its command has no environment left to tell: it does not count any more.
    """
    if process.pid in leaders or process.session in leaders:
        return True
    tag = tag_of(process.pid, within=_ENVIRONMENT_BYTES)
    if not tag:
        now = read_process(process.pid)
        return now is None or now.dead
    return any(f"{tag}/".startswith(f"{other}/") for other in tags)


def _session_exceeds(limit: int, session: int) -> bool:
    pids = sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)  # noqa: PTH208
    count = 0
    for pid in pids[: 2 * limit]:
        process = read_process(pid)
        count += process is not None and process.session == session and not process.dead
        if count > limit:
            return True
    return False


class Crowd:
    """Watches for somebody who starts processes without end: `look` is asked only once the system has grown a lot."""

    def __init__(self, limit: int, look: Callable[[], bool]) -> None:
        self._limit = limit
        self._look = look
        self._before = tasks_in_system()

    def too_large(self) -> bool:
        if self._before is None:
            return False
        now = tasks_in_system() or 0
        if now - self._before <= self._limit:
            return False
        self._before = now  # where others are growing, the next look is that much later
        return self._look()
