"""What /proc says: process trees, memory, CPU time, how busy the machine is with other things, and what it is."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from contextlib import suppress
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
QUIET_CORES = 0.15  # below this much use the machine counts as quiet
LOOK_S = 0.12  # how long to look before saying so


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, ppid, …; nothing if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat_fields(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, to_visit = [], [root]
    while to_visit:
        pid = to_visit.pop()
        found.append(pid)
        to_visit += children.get(pid, [])
    return found


def adopt_orphans() -> None:
    """From now on what our descendants leave behind becomes our child, so that `end_descendants` finds it."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def end_descendants() -> None:
    for pid in tree(os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def cpu_s(pids: list[int]) -> float:
    """What these have used so far, with those of their children that they have seen end."""
    found = [fields for pid in pids if (fields := _stat_fields(pid))]
    return sum(int(ticks) for fields in found for ticks in fields[11:15]) / TICKS_PER_S


def rss_mb(pids: list[int]) -> float:
    return sum(_status_kb(pid, "VmRSS:") for pid in pids) / 1024


def _status_kb(pid: int, key: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(key)), 0)


def busy_s() -> float:
    """CPU seconds the whole machine has spent, time stolen by the hypervisor included."""
    counts = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = counts[3], counts[4]
    return (sum(counts) - idle - waiting) / TICKS_PER_S


def own_s() -> float:
    """CPU seconds of this process, its ended children and its living descendants."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for pid in tree(os.getpid())[1:]:
        if fields := _stat_fields(pid):
            total += (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / TICKS_PER_S
    return total


class Disturbance:
    """How many cores others used while something of ours ran."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._clock_s = busy_s(), own_s(), time.monotonic()

    def cores(self) -> float:
        others_s = (busy_s() - self._busy_s) - (own_s() - self._own_s)
        return max(0.0, others_s / (time.monotonic() - self._clock_s))


class Quiet:
    """Waits for a quiet machine before a window, but in all no longer than its budget."""

    def __init__(self, budget_s: float, longest_s: float = 2.0) -> None:
        self.budget_s, self.longest_s = budget_s, longest_s

    def wait(self) -> None:
        began_s = time.monotonic()
        limit_s = min(self.budget_s, self.longest_s)
        while time.monotonic() - began_s < limit_s:
            before_s = busy_s()
            time.sleep(LOOK_S)
            if (busy_s() - before_s) / LOOK_S < QUIET_CORES:
                return  # looking costs nothing from the budget, only waiting does
            self.budget_s -= LOOK_S


def describe() -> str:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "CPU"
    )
    system = next((line[13:].strip('"') for line in _lines("/etc/os-release") if line.startswith("PRETTY_NAME=")), "")
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    kernel = platform.release().split("-")[0]
    return f"{cores} cores of {cpu}, {memory_gb:.0f} GB; {system}, Linux {kernel}; CPython {platform.python_version()}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
