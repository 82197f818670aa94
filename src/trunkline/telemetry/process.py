"""Memory, CPU, open files and start time of this process, under the names every Prometheus client uses."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

Reading = tuple[str, Literal["counter", "gauge"], str, float]

_PROC: Final = Path("/proc/self")
_STARTED_AT: Final = time.time()


def process_readings(proc: Path = _PROC) -> Iterator[Reading]:
    """What this platform can tell: everything where /proc exists, CPU and start time anywhere."""
    yield "process_cpu_seconds_total", "counter", "User and system CPU time spent", time.process_time()
    yield "process_start_time_seconds", "gauge", "Start of the process, in seconds since the epoch", _STARTED_AT
    try:
        virtual_pages, resident_pages = (proc / "statm").read_text().split()[:2]
        open_fds = sum(1 for _ in (proc / "fd").iterdir())
    except (OSError, ValueError):
        return
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    yield "process_resident_memory_bytes", "gauge", "Memory in RAM", int(resident_pages) * page_bytes
    yield "process_virtual_memory_bytes", "gauge", "Address space", int(virtual_pages) * page_bytes
    yield "process_open_fds", "gauge", "Open file descriptors", open_fds
