"""Which processes belong to which child of the supervisor, and how to signal them.

`Descendants` finds every process below the supervisor; `Groups` is what is left where that is not possible. Loaded by
the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import os
import signal
import time

from trunkline.runtime.processes import (
    Process,
    by_parent,
    living_from,
    process_table,
    signal_group,
    signal_process,
    signal_processes,
    with_descendants,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Phase = Literal["running", "closing", "terminating", "killing"]
import resource

from trunkline.runtime.processes import child_in_tag, read_proc, tag_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    # REFAC
    from trunkline.runtime.processes import Process
    # REFAC


# A mark on all that comes from one child, which clearing an environment or leaving a session does not take off.
#
# It is a limit (RLIMIT_LOCKS) that Linux passes on with every fork and exec, shows to everybody, and has not applied to
# anything since 2.4. A program may lower its limits, but has no reason to lower this one.
#
# Loaded by the supervisor only, so it stays with light imports.

_RLIMIT_LOCKS = 10  # RLIMIT_LOCKS, for which Python has no name
_LINE = b"Max file locks"
_HARD = 4  # of the words of such a line
_BITS = 32
_OPEN = (1 << _BITS) - 1  # the lower half, while no gateway has its own children in it
_MOST = (1 << 31) - 1


class OwnerMarks:
    """The upper half of the number is for our children; for those of a gateway behind this one, the lower."""

    def __init__(self) -> None:
        self._own = resource.getrlimit(_RLIMIT_LOCKS)[1]

    def of(self, child: int) -> int | None:
        """The mark of a child; None where there is no room for one."""
        if child > _MOST:
            return None
        if self._own == resource.RLIM_INFINITY:
            return child << _BITS | _OPEN
        return self._own - _OPEN + child if self._own & _OPEN == _OPEN else None

    def child_of(self, pid: int) -> int | None:
        """The child of ours whose mark a process has."""
        report = read_proc(f"/proc/{pid}/limits")
        hard = next((line.split()[_HARD] for line in report.splitlines() if line.startswith(_LINE)), b"")
        if not hard.isdigit():
            return None
        upper, lower = divmod(int(hard), _OPEN + 1)
        if self._own == resource.RLIM_INFINITY:
            return upper
        return lower if self._own == upper << _BITS | _OPEN else None


def set_owner_mark(mark: int) -> None:
    """Put it on this process and all that comes from it."""
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))
    except (OSError, ValueError):
        return  # this system has no such limit: what belongs to whom is told by the rest


NEVER = float("inf")
_SURVEY_RETRIES = 4
_STRAY_S = 0.2  # far longer than an exec takes


class Tree:
    """One child and everything it started. `leader` is the process we made; its pid is also its group and session."""

    __slots__ = ("due", "exec_pipe", "give_up_at", "id", "leader", "leader_alive", "phase", "term_s")

    def __init__(self, id: int, leader: int, exec_pipe: int) -> None:  # noqa: A002 (it is the tree's id)
        self.id = id
        self.leader = leader
        self.leader_alive = True
        self.exec_pipe = exec_pipe
        self.phase: Phase = "running"
        self.due = NEVER  # when the phase ends or is looked at again
        self.give_up_at = NEVER  # when SIGTERM, or SIGKILL, has had its time
        self.term_s = NEVER


class Descendants:
    """Linux: the supervisor is a subreaper, so every process of every tree is below it, whatever it did to get away.

    What still has its parents belongs to their tree. An orphan belongs to the tree it was seen in, else to the one that
    its environment or its mark names, else to that its session was seen in, else (it wiped all) to the last one left.
    """

    kill_limit_s = 10.0  # what survives SIGKILL this long belongs to another user or hangs in the kernel

    def __init__(self, run: str, trees: dict[int, Tree]) -> None:
        self._trees = trees
        self._marks = OwnerMarks()
        self._owners = Owners(run, trees, self._marks)
        self._strays: dict[int, float] = {}  # orphans without an owner, and since when

    def mark(self, child: int) -> int | None:
        """What a child puts on itself before anything else."""
        return self._marks.of(child)

    def signal(self, tree: Tree, number: int) -> bool:
        """Signal all of a tree; False when nothing of it is left. Number 0 only looks."""
        members, certain = self._survey(tree)
        for _ in range(_SURVEY_RETRIES):
            if members or certain:
                break
            members, certain = self._survey(tree)
        if number:
            signal_processes(members, number)
        return bool(members) or not certain

    def members(self) -> dict[int | None, list[Process]]:
        """The processes of every tree that are alive now; and, as None, those of whom that cannot be told."""
        table = process_table()
        roots = self._owners.roots(table)
        below = by_parent(table)
        found: dict[int | None, list[Process]] = {None: living_from(self._unowned(roots), below)}
        return found | {tree: self._members(tree, roots, below) for tree in self._trees}

    def kill_everything(self) -> None:
        table = process_table()
        own = os.getpid()
        signal_processes(with_descendants([p for p in table.values() if p.parent == own], table), signal.SIGKILL)

    def _survey(self, tree: Tree) -> tuple[list[Process], bool]:
        """What of a tree is alive, and whether "nothing" would be certain.

        The table is not read at one instant, so a process that forks and ends meanwhile could hide its child. It then
        shows as a zombie of ours, because nobody else reaps an orphan. And a process in the middle of an exec has no
        environment for a moment. A table with either proves nothing.
        """
        table = process_table()
        roots = self._owners.roots(table)
        members = self._members(tree.id, roots, by_parent(table))
        own = os.getpid()
        some_died = self._reap_orphans([process for process in table.values() if process.parent == own])
        some_are_new = self._note_strays([process.pid for process in self._unowned(roots)])
        return members, not (some_died or some_are_new)

    def _members(
        self, tree: int, roots: dict[int | None, list[Process]], below: dict[int, list[Process]]
    ) -> list[Process]:
        members = living_from(roots.get(tree, ()), below)
        self._owners.note(tree, members)
        if None in roots and not self._unowned(roots):
            return living_from(roots.get(tree, []) + roots[None], below)  # a guess, so it is not noted
        return members

    def _unowned(self, roots: dict[int | None, list[Process]]) -> list[Process]:
        """Whose owner nobody can guess either."""
        return [] if len(self._trees) == 1 else roots.get(None, [])

    def _reap_orphans(self, children: Iterable[Process]) -> bool:
        """Take those that are dead by now; whether there were any. The supervisor takes leaders, and reports them."""
        leaders = {tree.leader for tree in self._trees.values() if tree.leader_alive}
        orphans = [process.pid for process in children if process.pid not in leaders]
        dead = [pid for pid in orphans if os.waitpid(pid, os.WNOHANG)[0]]
        return bool(dead)

    def _note_strays(self, pids: list[int]) -> bool:
        """Whether one of them has not been without an owner for long enough to be believed."""
        now = time.monotonic()
        self._strays = {pid: self._strays.get(pid, now) for pid in pids}
        return any(now - since < _STRAY_S for since in self._strays.values())


class Groups:
    """Anywhere: a tree is the process group of its leader. What leaves the group is out of reach."""

    kill_limit_s = 1.0  # zombies that nobody reaps look alive from here, so there is no point in waiting long

    def __init__(self, trees: dict[int, Tree]) -> None:
        self._trees = trees

    def signal(self, tree: Tree, number: int) -> bool:
        if signal_group(tree.leader, number):
            return True
        return tree.leader_alive and signal_process(tree.leader, number)  # it has not made its group yet

    def mark(self, child: int) -> int | None:
        """Of no use without a way to find who has it."""
        return None

    def members(self) -> dict[int | None, list[Process]]:
        """Nobody tells."""
        return {}

    def kill_everything(self) -> None:
        for tree in self._trees.values():
            self.signal(tree, signal.SIGKILL)


# Whose a process is that lost its parents: by what it carries, and by what was seen of it before.
#
# Loaded by the supervisor only, so it stays with light imports.

_FORGET_S = 30.0  # a number that nobody has had for so long may be somebody else's by now


class Owners:
    """Of all processes below the supervisor, which tree each is of."""

    def __init__(self, run: str, trees: Mapping[int, Tree], marks: OwnerMarks) -> None:
        self._run = run
        self._trees = trees
        self._own = os.getpid()
        self._own_session = os.getsid(0)
        self._marks = marks
        self._seen: dict[int, tuple[int, int]] = {}  # by pid: when it started, and its tree
        self._sessions: dict[int, tuple[int, float]] = {}  # and pids, which may become sessions: their tree, until when

    def roots(self, table: dict[int, Process]) -> dict[int | None, list[Process]]:
        """From which processes on everything is of a tree; and, as None, the orphans of whom that cannot be told."""
        self._seen = {pid: seen for pid, seen in self._seen.items() if self._holds(pid, seen, table)}
        leaders = {tree.leader: tree for tree in self._trees.values()}
        found: dict[int | None, list[Process]] = {}
        for process in table.values():
            seen = self._seen.get(process.pid)
            if seen is not None:
                found.setdefault(seen[1], []).append(process)
            elif process.parent == self._own:
                found.setdefault(self._owner(process, leaders), []).append(process)
        now = time.monotonic()
        self._sessions = {
            session: (tree, until)
            for session, (tree, until) in self._sessions.items()
            if until > now and tree in self._trees
        }
        return found

    def note(self, tree: int, members: Iterable[Process]) -> None:
        """These are of a tree, whatever becomes of their parents."""
        until = time.monotonic() + _FORGET_S
        for process in members:
            self._seen[process.pid] = (process.started, tree)
            self._sessions[process.pid] = (tree, until)
            if process.session != self._own_session:
                self._sessions[process.session] = (tree, until)

    def _holds(self, pid: int, seen: tuple[int, int], table: dict[int, Process]) -> bool:
        started, tree = seen
        return pid in table and table[pid].started == started and tree in self._trees

    def _owner(self, orphan: Process, leaders: dict[int, Tree]) -> int | None:
        leader = leaders.get(orphan.pid)
        if leader is not None and leader.leader_alive:
            return leader.id
        named = child_in_tag(tag_of(orphan.pid), self._run)
        if named in self._trees:
            return named
        marked = self._marks.child_of(orphan.pid)
        if marked in self._trees:
            return marked
        if orphan.session in leaders:
            return leaders[orphan.session].id
        tree, _ = self._sessions.get(orphan.session, (None, 0.0))
        return tree if tree in self._trees else None
