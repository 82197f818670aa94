"""Processes as the operating system shows them: descendants, zombies, open files. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
PROC = Path("/proc")
LASTING: set[int] = set()
"""Processes that outlive a test on purpose, because many tests share them: what is below them is theirs to end."""


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    command: str

    @property
    def zombie(self) -> bool:
        return self.state in "ZX"


def become_subreaper() -> None:
    """Orphans come to this process instead of to init, so that what escaped a gateway is still seen as a descendant."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def read_process(pid: int) -> Process | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text("utf-8", "replace")
        command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    state, parent = rest.split()[:2]
    return Process(pid, int(parent), state, command or f"[{name}]")


def is_childless(pid: int) -> bool:
    """The kernel's own list says so, which costs a look at one file a thread; most tests start nothing."""
    try:
        return not any((PROC / str(pid) / "task" / thread / "children").read_bytes() for thread in threads_of(pid))
    except OSError:
        return False


def threads_of(pid: int) -> list[str]:
    return os.listdir(PROC / str(pid) / "task")


def descendants(pid: int) -> list[Process]:
    """Everything below a process, zombies included."""
    if not PROC.is_dir() or is_childless(pid):
        return []
    everything = [process for entry in os.listdir(PROC) if entry.isdigit() and (process := read_process(int(entry)))]
    return below(everything, {pid})


def below(processes: list[Process], roots: set[int]) -> list[Process]:
    """Those of the processes that one of the roots started, directly or not."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = list(roots)
    while waiting:
        started = children.get(waiting.pop(), [])
        found += started
        waiting += [process.pid for process in started]
    return found


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.zombie


def reap(pid: int) -> None:
    """Take a zombie that was handed to this process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def open_files(pid: int | str = "self") -> dict[int, str]:
    folder = PROC / str(pid) / "fd"
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found[int(name)] = os.readlink(folder / name)
    return {fd: target for fd, target in found.items() if not target.endswith("/fd")}


def peak_memory_mib(pid: int) -> float:
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
