"""What a child may use together with everything it started: memory and processes, looked at again and again.

Memory of one that has a cgroup is bounded there by the kernel, and all that is to be seen is that it was.

Loaded by the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import time

from trunkline.runtime.platform import read_proc
from trunkline.runtime.trees import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.runtime.cgroups import Cgroups
    from trunkline.runtime.platform import Process
    from trunkline.runtime.trees import Descendants, Groups, Tree

    Limits = tuple[int, int]  # bytes of memory and number of processes; 0 for any
    Exceeded = tuple[str, int, int]  # of what, how much there was, how much there may be

LOOK_PAUSE_S = 0.25
_UNOWNED_LOOKS = 4  # so many are behind what is only between its fork and its exec
_REST = 20  # a look costs at most one part in so many of this process's time


class LimitWatch:
    """Those children whose use is bounded. `on_exceeded` hears of one that is over its bounds, `on_fault` of processes
    that count for nobody."""

    def __init__(
        self,
        census: Descendants | Groups,
        cgroups: Cgroups,
        trees: dict[int, Tree],
        on_exceeded: Callable[[Tree, Exceeded], None],
        on_fault: Callable[[str], None],
    ) -> None:
        self.due = NEVER
        """When to look again."""
        self._census = census
        self._cgroups = cgroups
        self._trees = trees
        self._on_exceeded = on_exceeded
        self._on_fault = on_fault
        self._limits: dict[int, Limits] = {}
        self._unowned: dict[tuple[int, int], int] = {}  # in how many looks one process was nobody's
        self._told = False

    def watch(self, child: int, limits: Limits) -> None:
        self._limits[child] = limits
        self.due = min(self.due, time.monotonic() + LOOK_PAUSE_S)

    def look(self) -> None:
        began = time.monotonic()
        self.due = began + LOOK_PAUSE_S  # first: what fails below is not tried again at once
        self._limits = {child: limits for child, limits in self._limits.items() if child in self._trees}
        if not self._limits:
            self.due = NEVER
            return
        members = {} if all(child in self._cgroups for child in self._limits) else self._census.members()
        faults: list[Exception] = []
        for child, limits in self._limits.items():
            try:
                self._look_at(child, limits, members)
            except Exception as fault:  # a bug of ours: the others are looked at all the same
                faults.append(fault)
        self._tell_unowned(members.get(None, ()))
        now = time.monotonic()
        self.due = now + max(LOOK_PAUSE_S, _REST * (now - began))
        if faults:
            raise faults[0]

    def _look_at(self, child: int, limits: Limits, members: dict[int | None, list[Process]]) -> None:
        tree = self._trees[child]
        if tree.phase != "running":
            return
        bounded = child in self._cgroups
        exceeded = self._cgroups.exceeded(child) if bounded else _exceeded(members.get(child, ()), limits)
        if exceeded is not None:
            self._on_exceeded(tree, exceeded)

    def _tell_unowned(self, unowned: Sequence[Process]) -> None:
        """Once, until there are none any more."""
        keys = [(process.pid, process.started) for process in unowned]
        self._unowned = {key: self._unowned.get(key, 0) + 1 for key in keys}
        lasting = [pid for (pid, _), looks in self._unowned.items() if looks >= _UNOWNED_LOOKS]
        if lasting and not self._told:
            others = f" and {len(lasting) - 1} more" if len(lasting) > 1 else ""
            self._on_fault(
                f"no `limits` hold for process {lasting[0]} ({_name_of(lasting[0])}){others}: it hides which server "
                "started it, and ends with the last of them"
            )
        self._told = bool(lasting)


def _name_of(pid: int) -> str:
    """As it calls itself, which may be anything."""
    name = read_proc(f"/proc/{pid}/comm").removesuffix(b"\n")
    return ascii(name.decode(errors="replace"))[1:-1] or "it has ended"


def _exceeded(members: Sequence[Process], limits: Limits) -> Exceeded | None:
    memory_bytes, processes = limits
    if processes and len(members) > processes:
        return "processes", len(members), processes
    # What is resident counts shared pages once for each process, and is cheap to learn: the true sum is never more.
    if memory_bytes and sum(map(_resident, members)) > memory_bytes:
        used = sum(map(_proportional, members))
        if used > memory_bytes:
            return "memory", used, memory_bytes
    return None


def _resident(process: Process) -> int:
    return _sum_of(read_proc(f"/proc/{process.pid}/status"), b"VmRSS:", b"VmSwap:")


def _proportional(process: Process) -> int:
    """With its part of what it shares. A process that hides that counts with all that is resident."""
    report = read_proc(f"/proc/{process.pid}/smaps_rollup")
    return _sum_of(report, b"Pss:", b"SwapPss:") if report else _resident(process)


def _sum_of(report: bytes, *names: bytes) -> int:
    """Bytes, from lines like `Pss:    1234 kB`."""
    lines = (line.split() for line in report.splitlines() if line.startswith(names))
    return sum(int(fields[1]) << 10 for fields in lines)
