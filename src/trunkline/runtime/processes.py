"""What differs between systems about processes: who is alive below whom, and what the kernel promises on a death.

Linux tells everything through /proc and prctl. Elsewhere (and in portable mode) there are process groups only. The
supervisor loads this module, so it stays with light imports.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
import contextlib

TAG = "TRUNKLINE_CHILD"
"""The environment variable that says which child a process came from: `RUN.CHILD`, after those of outer gateways."""

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_ROUND_PAUSE_S = 0.01
_CLEAR_ROUNDS = 3  # one look may miss a process that is just forking or in the middle of an exec
_PROC_READ_BYTES = 4096


class Process:
    """One line of the process table."""

    __slots__ = ("dead", "group", "parent", "pid", "session", "started")

    def __init__(self, pid: int, parent: int, group: int, session: int, started: int, dead: bool) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.session = session
        self.started = started  # with the pid it is this process and no later one
        self.dead = dead


def sees_all_processes() -> bool:
    """Whether this system can find every descendant of a process, orphans included."""
    return sys.platform == "linux" and os.access("/proc/self/stat", os.R_OK)


def make_tag(run: str, child: int) -> str:
    """The value of TAG for one child. A gateway behind a gateway keeps the outer tag, so the outer finds its own."""
    outer = os.environ.get(TAG)
    own = f"{run}.{child}"
    return f"{outer}/{own}" if outer else own


def child_in_tag(tag: str, run: str) -> int | None:
    """Which child of this run a tag names; None when it is of another run."""
    for part in tag.split("/"):
        name, _, number = part.rpartition(".")
        if name == run and number.isdigit():
            return int(number)
    return None


def process_table() -> dict[int, Process]:
    table: dict[int, Process] = {}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        process = read_process(pid)
        if process is not None:
            table[pid] = process
    return table


def read_process(pid: int) -> Process | None:
    """One process as it is now; None when there is no such process."""
    line = read_proc(f"/proc/{pid}/stat")
    if not line:
        return None
    # The command's name may hold anything, so the fields are counted from its closing parenthesis.
    fields = line[line.rindex(b")") + 2 :].split()
    threads = int(fields[17])
    # A program whose first thread ended looks like a zombie while its other threads still run.
    dead = fields[0] in b"ZX" and threads <= 1
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), dead)


def tag_of(pid: int, within: int = sys.maxsize) -> str:
    """The tag in a process's environment; empty when it has none, or none within so many bytes, or hides it."""
    prefix = TAG.encode() + b"="
    environment = read_proc(f"/proc/{pid}/environ", within)
    if len(environment) >= within:
        environment = environment.rpartition(b"\0")[0]  # the last entry may be cut
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("ascii", "replace")
    return ""


def read_proc(path: str, most: int = sys.maxsize) -> bytes:
    """One file of /proc, not much more than `most` of it; empty when its process ended or hides it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        part = os.read(fd, _PROC_READ_BYTES)
        content = bytearray(part)
        while len(part) == _PROC_READ_BYTES and len(content) < most:
            part = os.read(fd, _PROC_READ_BYTES)
            content += part
    except OSError:
        return b""
    finally:
        os.close(fd)
    return bytes(content)


def with_descendants(roots: Iterable[Process], table: dict[int, Process]) -> list[Process]:
    """The living among the roots and everything below them."""
    return living_from(roots, by_parent(table))


def by_parent(table: dict[int, Process]) -> dict[int, list[Process]]:
    below: dict[int, list[Process]] = {}
    for process in table.values():
        below.setdefault(process.parent, []).append(process)
    return below


def living_from(roots: Iterable[Process], below: dict[int, list[Process]]) -> list[Process]:
    found: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        process = waiting.pop()
        if process.pid not in found:
            found[process.pid] = process
            waiting += below.get(process.pid, ())
    return [process for process in found.values() if not process.dead]


def signal_processes(processes: Iterable[Process], number: int, shared: frozenset[int] = frozenset()) -> None:
    """Signal each process once, by group: unlike a list of pids, a group cannot be outrun by forking.

    In our own group, and those that are `shared` with others, each is signalled for itself.
    """
    shared |= {os.getpgrp()}
    groups: set[int] = set()
    for process in processes:
        if process.group in shared:  # ours: not yet in a session of its own
            signal_process(process.pid, number)
        else:
            groups.add(process.group)
    for group in groups:
        _send(os.killpg, group, number)


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when nothing of it is left that can be signalled."""
    return _send(os.killpg, group, number)


def signal_process(pid: int, number: int) -> bool:
    return _send(os.kill, pid, number)


def _send(kill: Callable[[int, int], None], target: int, number: int) -> bool:
    try:
        kill(target, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_run(
    run: str, leaders: Iterable[int], *, portable: bool, limit_s: float, shared: frozenset[int] = frozenset()
) -> bool:
    """Kill what a dead supervisor left behind. Blocks, for `limit_s` at most; False when something is still there.

    `shared` are process groups that others may be in.
    """
    sessions = frozenset(leaders)
    deadline = time.monotonic() + limit_s
    clear_rounds = 0
    while time.monotonic() < deadline:
        left = _kill_groups(sessions) if portable else _kill_tagged(run, sessions, shared)
        clear_rounds = 0 if left else clear_rounds + 1
        if clear_rounds == _CLEAR_ROUNDS:
            return True
        time.sleep(_ROUND_PAUSE_S)
    return False


def _kill_groups(groups: Iterable[int]) -> bool:
    left = [group for group in groups if signal_group(group, signal.SIGKILL)]
    return bool(left)


def _kill_tagged(run: str, sessions: frozenset[int], shared: frozenset[int]) -> bool:
    table = process_table()
    roots = [
        process
        for process in table.values()
        if not process.dead and (process.session in sessions or child_in_tag(tag_of(process.pid), run) is not None)
    ]
    processes = with_descendants(roots, table)
    signal_processes(processes, signal.SIGKILL, shared)
    return bool(processes)


class Prctl:
    """The Linux calls Python does not offer; loaded before any fork, so that a child only has to call."""

    def __init__(self) -> None:
        import ctypes

        self._call = ctypes.CDLL(None, use_errno=True).prctl
        self._call.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        self._name = ctypes.create_string_buffer(b"trunkline-super")  # 15 characters at most
        self._name_at = ctypes.addressof(self._name)

    def hide(self) -> None:
        """Keep other processes of the same user from this one's memory, files and environment. An exec ends it."""
        self._call(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def become_subreaper(self) -> None:
        """From now on, orphans below this process become its children instead of init's."""
        self._call(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def set_name(self) -> None:
        """What `ps` and `top` show for the supervisor."""
        self._call(_PR_SET_NAME, self._name_at, 0, 0, 0)

    def die_with(self, parent: int) -> None:
        """Have the kernel kill this process when its parent ends, also when that has happened already."""
        self._call(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)


# What other processes of the same user cannot read of this one: its environment, its memory, its open files.
#
# On Linux any of them could otherwise look at all that in /proc, and every server that we start is one of them. Elsewhere
# nothing changes.

_ENV_START = 50 - 3  # fields of /proc/PID/stat, the first of which behind the name is number 3
_ENV_END = 51 - 3


def hide_from_others() -> None:
    """Root may read everything all the same. Programs that we start are not hidden: an exec ends it."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):  # no /proc, or none that tells
        clear_environment_block()
    Prctl().hide()


def clear_environment_block() -> None:
    """Take the variables out of the memory that /proc/PID/environ shows, but for our own tag.

    They stay set: each is put elsewhere first, so that nothing refers to that memory any more. It is written through a
    file and not by address: where these numbers are wrong, that is an error and not the end of the process.
    """
    fields = read_proc("/proc/self/stat").rpartition(b")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    block = read_proc("/proc/self/environ")
    memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.pread(memory, end - start, start) != block:
            return
        for name, value in os.environ.items():
            os.putenv(name, value)
        tag = TAG.encode() + b"="
        kept = (entry if entry.startswith(tag) else bytes(len(entry)) for entry in block.split(b"\0"))
        os.pwrite(memory, b"\0".join(kept), start)
    finally:
        os.close(memory)
