"""What a child may use, bounded by the kernel: a cgroup (v2) of its own for each, where one is delegated to us.

Being allowed to write, as root is everywhere, is no delegation: the mark of systemd is, and without it nothing is
touched. Loaded by the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # REFAC
    from trunkline.runtime.process_trees import Tree
import time

from trunkline.runtime.process_trees import NEVER
from trunkline.runtime.processes import read_proc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # REFAC
    from trunkline.runtime.process_trees import Descendants, Groups, Tree
    from trunkline.runtime.processes import Process

    Limits = tuple[int, int]  # bytes of memory and number of processes; 0 for any
    Exceeded = tuple[str, int, int]  # of what, how much there was, how much there may be

_MOUNT = "/sys/fs/cgroup"
_MEMBERSHIP = "/proc/self/cgroup"
_MARKS = ("user.delegate", "trusted.delegate")
_NEEDED = {"memory", "pids"}
_LEAF = "trunkline-gateway"  # where the gateway itself goes: a cgroup that bounds others may have no processes
_RUN = "trunkline-run-"
_MOVE_ROUNDS = 100
# The kernel counts threads, so for processes it has a wall far beyond the limit, which holds until a look.
_TASKS_EACH = 128
_FEWEST_TASKS = 4096


class Cgroups:
    """One for each child with limits. `on_fault` hears why a delegated cgroup could not be used."""

    def __init__(
        self, run: str, on_fault: Callable[[str], None], mount: str = _MOUNT, membership: str = _MEMBERSHIP
    ) -> None:
        self._run = run
        self._on_fault = on_fault
        self._mount = mount
        self._membership = membership
        self._home: str | None = None  # where those of this run are; empty when there cannot be any
        self._lock = -1
        self._limits: dict[int, Limits] = {}
        self._left: set[int] = set()  # to be removed, once the last process in it is gone

    def __contains__(self, child: int) -> bool:
        return child in self._limits

    def make(self, child: int, limits: Limits) -> list[int]:
        """A cgroup for a child that is about to start, as the descriptor that it enters by; none where we have none."""
        if self._home is None:
            self._home = self._settle()
        if not self._home:
            return []
        self._remove_left()
        folder = f"{self._home}/{child}"
        try:
            os.mkdir(folder)
            self._left.add(child)
            _bound(folder, limits)
            door = os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return []
        self._left.discard(child)
        self._limits[child] = limits
        return [door]

    def keep(self, tree: Tree) -> None:
        """It runs: unless it could not enter its cgroup, which then bounds nothing."""
        if tree.id in self and tree.leader_alive:
            where = _read(f"/proc/{tree.leader}/cgroup").decode(errors="replace").split()
            if where and not any(f"{_RUN}{self._run}/{tree.id}/" in f"{path}/" for path in where):
                self.remove(tree.id)

    def exceeded(self, child: int) -> Exceeded | None:
        memory_bytes, processes = self._limits.get(child, (0, 0))
        if memory_bytes and _events(f"{self._home}/{child}/memory.events.local").get(b"oom", b"0") != b"0":
            return "memory", memory_bytes, memory_bytes
        if processes:
            count = sum(
                len(_read(f"{folder}/cgroup.procs").split()) for folder, _, _ in os.walk(f"{self._home}/{child}")
            )
            if count > processes:
                return "processes", count, processes
        return None

    def kill(self, child: int) -> None:
        """All of it in one step, however fast it forks; where the kernel cannot do that, the caller's signals do."""
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
        """Once all processes are gone. What is left all the same, the next start removes."""
        if self._home:
            _remove(self._home)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _remove_left(self) -> None:
        self._left = {child for child in self._left if not _remove(f"{self._home}/{child}")}

    def _settle(self) -> str:
        """The folder for this run, in what is delegated; empty when nothing is, or it cannot be used."""
        delegated, ours = find_delegated(self._mount, _read(self._membership))
        if not delegated:
            return ""
        home = f"{delegated}/{_RUN}{self._run}"
        try:
            if ours:
                _move_to_leaf(delegated)
            _write(f"{delegated}/cgroup.subtree_control", b"+memory +pids")
            _remove_those_of_the_dead(delegated)
            os.mkdir(home)
            self._lock = _try_lock(home)
            _write(f"{home}/cgroup.subtree_control", b"+memory +pids")
        except OSError as error:
            _remove(home)
            self._on_fault(
                f"`limits` are watched and not enforced by the kernel: its cgroup {delegated} is no use: {error}"
            )
            return ""
        return home


def find_delegated(mount: str, membership: bytes) -> tuple[str, bool]:
    """The folder of the cgroup that is delegated to us, empty when there is none, and whether we are in it ourselves,
    not in a subgroup. `membership` is what /proc tells of a process."""
    path = next((line[3:] for line in membership.splitlines() if line.startswith(b"0::/")), b"")
    own = mount + os.fsdecode(path).rstrip("/")
    if not path or b".." in path.split(b"/"):
        return "", False
    if _is_delegated(own):
        return own, True
    above, _, name = own.rpartition("/")
    # With a dot it is a unit beside others, such as a terminal's scope: what is above belongs to their manager.
    if own != mount and "." not in name and _is_delegated(above):
        return above, False
    return "", False


def _is_delegated(folder: str) -> bool:
    if not any(_is_marked(folder, mark) for mark in _MARKS):
        return False
    return _NEEDED.issubset(_read(f"{folder}/cgroup.controllers").decode().split()) and os.access(folder, os.W_OK)


def _is_marked(folder: str, mark: str) -> bool:
    try:
        return os.getxattr(folder, mark) == b"1"
    except OSError:
        return False


def _move_to_leaf(delegated: str) -> None:
    """The gateway and whatever else is in there."""
    leaf = f"{delegated}/{_LEAF}"
    if not os.path.isdir(leaf):
        os.mkdir(leaf)
    for _ in range(_MOVE_ROUNDS):  # somebody may be forking meanwhile
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
            _write(f"{folder}/memory.swap.max", b"0")  # what is swapped out counts, and there is no limit of the sum
        _write(f"{folder}/memory.max", b"%d" % memory_bytes)
    if processes:
        _write(f"{folder}/pids.max", b"%d" % max(_FEWEST_TASKS, processes * _TASKS_EACH))


def _remove_those_of_the_dead(delegated: str) -> None:
    """What supervisors left behind that were killed: their locks are gone with them."""
    for name in os.listdir(delegated):
        if name.startswith(_RUN):
            lock = _try_lock(f"{delegated}/{name}")
            if lock >= 0:
                _remove(f"{delegated}/{name}")
                os.close(lock)


def _try_lock(folder: str) -> int:
    """A lock that lasts as long as its holder; -1 where another has it."""
    import fcntl

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return -1
    return fd


def _remove(folder: str) -> bool:
    """With all below it, as far as no process is there; whether it is gone."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            continue
    return not os.path.exists(folder)


def _events(path: str) -> dict[bytes, bytes]:
    return dict(line.split() for line in _read(path).splitlines())


def _read(path: str) -> bytes:
    """To its end: such a file gives less at a time than is asked for. Empty when it is gone."""
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


# What a child may use together with everything it started: memory and processes, looked at again and again.
#
# Memory of one that has a cgroup is bounded there by the kernel, and all that is to be seen is that it was.
#
# Loaded by the supervisor only, so it stays with light imports.

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
