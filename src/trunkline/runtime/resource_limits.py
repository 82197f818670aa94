"""Enforces memory and process limits on a child together with everything it started.

Where systemd has delegated a cgroup (v2) to us, each limited child gets one of its own and the kernel enforces its
limits. Otherwise usage is measured again and again. Loaded by the supervisor, so it imports as little as possible.
"""

from __future__ import annotations

import os
import time

from trunkline.runtime.process_trees import NEVER
from trunkline.runtime.processes import read_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.runtime.process_trees import Descendants, ProcessGroups, ProcessTree
    from trunkline.runtime.processes import Process

    Limits = tuple[int, int]  # bytes of memory and number of processes; 0 for no limit
    Exceeded = tuple[str, int, int]  # which limit, the usage, the limit

LOOK_PAUSE_S = 0.25
_UNOWNED_LOOKS = 4  # a process without an owner for this many checks is not just between fork and exec
_REST = 20  # checks take at most one part in this many of the supervisor's time
_MOUNT = "/sys/fs/cgroup"
_MEMBERSHIP = "/proc/self/cgroup"
_MARKS = ("user.delegate", "trusted.delegate")
_NEEDED = {"memory", "pids"}
_LEAF = "trunkline-gateway"  # where the gateway itself goes: a cgroup with limited children may have no processes
_RUN = "trunkline-run-"
_MOVE_ROUNDS = 100
# The kernel counts threads, not processes, so it gets a bound far above the limit, as a stopgap until the next check.
_TASKS_EACH = 128
_MIN_TASKS = 4096


class Cgroups:
    """A cgroup for each child with limits. `on_fault` is told why a delegated cgroup could not be used.

    Write access, which root has everywhere, is no delegation: without systemd's mark nothing is touched.
    """

    def __init__(
        self, run: str, on_fault: Callable[[str], None], mount: str = _MOUNT, membership: str = _MEMBERSHIP
    ) -> None:
        self._run = run
        self._on_fault = on_fault
        self._mount = mount
        self._membership = membership
        self._home: str | None = None  # the folder of this run's cgroups; empty when there cannot be any
        self._lock = -1
        self._limits: dict[int, Limits] = {}
        self._left: set[int] = set()  # cgroups to remove once their last process has ended

    def __contains__(self, child: int) -> bool:
        return child in self._limits

    def make(self, child: int, limits: Limits) -> list[int]:
        """Create a child's cgroup; returns the descriptor by which the child enters it, or nothing without cgroups."""
        if self._home is None:
            self._home = self._make_home()
        if not self._home:
            return []
        self._remove_left()
        folder = f"{self._home}/{child}"
        try:
            os.mkdir(folder)
            self._left.add(child)
            _bound(folder, limits)
            entry_fd = os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return []
        self._left.discard(child)
        self._limits[child] = limits
        return [entry_fd]

    def keep(self, tree: ProcessTree) -> None:
        """Called once the child runs: drops its cgroup if the child could not enter it."""
        if tree.id in self and tree.leader_alive:
            where = _read(f"/proc/{tree.leader}/cgroup").decode(errors="replace").split()
            if where and not any(f"{_RUN}{self._run}/{tree.id}/" in f"{path}/" for path in where):
                self.remove(tree.id)

    def exceeded(self, child: int) -> Exceeded | None:
        """The limit that a child has exceeded, if any."""
        memory_bytes, processes = self._limits.get(child, (0, 0))
        if memory_bytes:
            events = dict(line.split() for line in _read(f"{self._home}/{child}/memory.events.local").splitlines())
            if events.get(b"oom", b"0") != b"0":
                return "memory", memory_bytes, memory_bytes
        if processes:
            count = sum(
                len(_read(f"{folder}/cgroup.procs").split()) for folder, _, _ in os.walk(f"{self._home}/{child}")
            )
            if count > processes:
                return "processes", count, processes
        return None

    def kill(self, child: int) -> None:
        """Kill everything in a cgroup at once, however fast it forks. Old kernels cannot; the caller signals too."""
        if child in self:
            try:
                _write(f"{self._home}/{child}/cgroup.kill", b"1")
            except OSError:
                return

    def remove(self, child: int) -> None:
        if self._limits.pop(child, None) is not None:
            self._left.add(child)
            self._remove_left()

    def end(self) -> None:
        """Remove all cgroups, once their processes have ended. The next start removes what could not be removed."""
        if self._home:
            _remove(self._home)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _remove_left(self) -> None:
        self._left = {child for child in self._left if not _remove(f"{self._home}/{child}")}

    def _make_home(self) -> str:
        """The folder for this run's cgroups; empty when none is delegated or it cannot be used."""
        delegated, ours = find_delegated(self._mount, _read(self._membership))
        if not delegated:
            return ""
        home = f"{delegated}/{_RUN}{self._run}"
        try:
            if ours:
                _move_to_leaf(delegated)
            _write(f"{delegated}/cgroup.subtree_control", b"+memory +pids")
            _remove_abandoned(delegated)
            os.mkdir(home)
            self._lock = _try_lock(home)
            _write(f"{home}/cgroup.subtree_control", b"+memory +pids")
        except OSError as error:
            _remove(home)
            self._on_fault(
                f"`limits` are checked periodically, not enforced by the kernel: cannot use cgroup {delegated}: {error}"
            )
            return ""
        return home


def find_delegated(mount: str, membership: bytes) -> tuple[str, bool]:
    """The folder of the cgroup that is delegated to us (empty when there is none), and whether we are in it directly
    rather than in a subgroup. `membership` is the content of `/proc/PID/cgroup`."""
    path = next((line[3:] for line in membership.splitlines() if line.startswith(b"0::/")), b"")
    own = mount + os.fsdecode(path).rstrip("/")
    if not path or b".." in path.split(b"/"):
        return "", False
    if _is_delegated(own):
        return own, True
    above, _, name = own.rpartition("/")
    # A name with a dot is a unit among others, such as a terminal's scope: the parent belongs to their manager.
    if own != mount and "." not in name and _is_delegated(above):
        return above, False
    return "", False


def _is_delegated(folder: str) -> bool:
    for mark in _MARKS:
        try:
            if os.getxattr(folder, mark) == b"1":
                controllers = _read(f"{folder}/cgroup.controllers").decode().split()
                return _NEEDED.issubset(controllers) and os.access(folder, os.W_OK)
        except OSError:
            continue
    return False


def _move_to_leaf(delegated: str) -> None:
    """Move the gateway, and whatever else is in the delegated cgroup, to a subgroup."""
    leaf = f"{delegated}/{_LEAF}"
    if not os.path.isdir(leaf):
        os.mkdir(leaf)
    for _ in range(_MOVE_ROUNDS):  # processes may fork meanwhile
        pids = _read(f"{delegated}/cgroup.procs").split()
        if not pids:
            return
        for pid in pids:
            try:
                _write(f"{leaf}/cgroup.procs", pid)
            except ProcessLookupError:
                continue


def _bound(folder: str, limits: Limits) -> None:
    memory_bytes, processes = limits
    if memory_bytes:
        _write(f"{folder}/memory.oom.group", b"1")
        if os.path.exists(f"{folder}/memory.swap.max"):
            _write(f"{folder}/memory.swap.max", b"0")  # swap counts too, and cgroups cannot limit the sum
        _write(f"{folder}/memory.max", b"%d" % memory_bytes)
    if processes:
        _write(f"{folder}/pids.max", b"%d" % max(_MIN_TASKS, processes * _TASKS_EACH))


def _remove_abandoned(delegated: str) -> None:
    """Remove the cgroups of supervisors that were killed: nobody holds their locks."""
    for name in os.listdir(delegated):
        if name.startswith(_RUN):
            lock = _try_lock(f"{delegated}/{name}")
            if lock >= 0:
                _remove(f"{delegated}/{name}")
                os.close(lock)


def _try_lock(folder: str) -> int:
    """The descriptor of a lock that ends with its holder; -1 when another process has it."""
    import fcntl

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return -1
    return fd


def _remove(folder: str) -> bool:
    """Remove a cgroup and those below it; False while a process is left in one."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            continue
    return not os.path.exists(folder)


def _read(path: str) -> bytes:
    """A file's content, empty when it is gone. These files return less per read than was asked for."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _write(path: str, value: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)


class LimitWatch:
    """Checks the usage of limited children. `on_exceeded` is called for one over its limits, `on_fault` for processes
    that cannot be attributed to any child."""

    def __init__(
        self,
        processes: Descendants | ProcessGroups,
        cgroups: Cgroups,
        trees: dict[int, ProcessTree],
        on_exceeded: Callable[[ProcessTree, Exceeded], None],
        on_fault: Callable[[str], None],
    ) -> None:
        self.due = NEVER
        """When to check again."""
        self._processes = processes
        self._cgroups = cgroups
        self._trees = trees
        self._on_exceeded = on_exceeded
        self._on_fault = on_fault
        self._limits: dict[int, Limits] = {}
        self._unowned: dict[tuple[int, int], int] = {}  # in how many checks a process had no owner
        self._reported = False

    def watch(self, child: int, limits: Limits) -> None:
        """Check this child's usage from now on."""
        self._limits[child] = limits
        self.due = min(self.due, time.monotonic() + LOOK_PAUSE_S)

    def look(self) -> None:
        began = time.monotonic()
        self.due = began + LOOK_PAUSE_S  # first, so that a failure below is not retried at once
        self._limits = {child: limits for child, limits in self._limits.items() if child in self._trees}
        if not self._limits:
            self.due = NEVER
            return
        members = {} if all(child in self._cgroups for child in self._limits) else self._processes.members()
        faults: list[Exception] = []
        for child, limits in self._limits.items():
            try:
                self._look_at(child, limits, members)
            except Exception as fault:  # our own bug: the others are checked all the same
                faults.append(fault)
        self._report_unowned(members.get(None, ()))
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

    def _report_unowned(self, unowned: Sequence[Process]) -> None:
        """Report processes without an owner, once until there are none."""
        keys = [(process.pid, process.started) for process in unowned]
        self._unowned = {key: self._unowned.get(key, 0) + 1 for key in keys}
        lasting = [pid for (pid, _), looks in self._unowned.items() if looks >= _UNOWNED_LOOKS]
        if lasting and not self._reported:
            name = read_proc(f"/proc/{lasting[0]}/comm").removesuffix(b"\n")  # chosen by the process: any bytes
            shown = ascii(name.decode(errors="replace"))[1:-1] or "it has ended"
            others = f" and {len(lasting) - 1} more" if len(lasting) > 1 else ""
            self._on_fault(
                f"no `limits` apply to process {lasting[0]} ({shown}){others}: it hides which server started it; "
                "it will be ended together with the last server"
            )
        self._reported = bool(lasting)


def _exceeded(members: Sequence[Process], limits: Limits) -> Exceeded | None:
    memory_bytes, processes = limits
    if processes and len(members) > processes:
        return "processes", len(members), processes
    # Resident memory counts shared pages once per process and is cheap to read: the true sum is never larger.
    if memory_bytes and sum(map(_resident, members)) > memory_bytes:
        used = sum(map(_proportional, members))
        if used > memory_bytes:
            return "memory", used, memory_bytes
    return None


def _resident(process: Process) -> int:
    return _sum_of(read_proc(f"/proc/{process.pid}/status"), b"VmRSS:", b"VmSwap:")


def _proportional(process: Process) -> int:
    """Memory including a share of shared pages; all resident memory for a process that hides this."""
    report = read_proc(f"/proc/{process.pid}/smaps_rollup")
    return _sum_of(report, b"Pss:", b"SwapPss:") if report else _resident(process)


def _sum_of(report: bytes, *names: bytes) -> int:
    """The sum in bytes of lines like `Pss:    1234 kB`."""
    lines = (line.split() for line in report.splitlines() if line.startswith(names))
    return sum(int(fields[1]) << 10 for fields in lines)
