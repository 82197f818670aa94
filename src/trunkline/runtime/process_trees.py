"""Finds the processes that belong to each child of the supervisor, and signals them.

`Descendants` finds every process below the supervisor; `ProcessGroups` is the fallback where that is impossible. An
orphan is attributed by its environment, by a mark that it cannot easily remove, and by where it was seen before.
Loaded by the supervisor, so it imports as little as possible.
"""

from __future__ import annotations

import os
import resource
import signal
import time

from trunkline.runtime.processes import (
    Process,
    child_in_tag,
    children_by_parent,
    living_descendants,
    process_table,
    read_proc,
    signal_group,
    signal_process,
    signal_processes,
    tag_of,
    with_descendants,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    Phase = Literal["running", "closing", "terminating", "killing"]

NEVER = float("inf")
_SURVEY_RETRIES = 4
_STRAY_S = 0.2  # far longer than an exec takes
_FORGET_S = 30.0  # after this long, an unused session id may have been reused
_RLIMIT_LOCKS = 10  # Python has no name for it
_MARK_BITS = 32
_UNUSED_HALF = (1 << _MARK_BITS) - 1  # the lower half, unless an inner gateway has put its own children there
_MAX_CHILD_ID = (1 << 31) - 1


class ProcessTree:
    """One child and everything it started. `leader` is the forked process; its pid is also its group and session."""

    __slots__ = ("due", "exec_pipe", "give_up_at", "id", "leader", "leader_alive", "phase", "term_s")

    def __init__(self, id: int, leader: int, exec_pipe: int) -> None:  # noqa: A002 (it is the tree's id)
        self.id = id
        self.leader = leader
        self.leader_alive = True
        self.exec_pipe = exec_pipe
        self.phase: Phase = "running"
        self.due = NEVER  # when the phase ends or is checked again
        self.give_up_at = NEVER  # when SIGTERM, or SIGKILL, has had long enough
        self.term_s = NEVER


class Descendants:
    """Process trees on Linux: the supervisor is a subreaper, so no process of a tree can leave the supervisor's own.

    A process whose parent is alive belongs to its parent's tree. An orphan belongs to the tree it was seen in, else to
    the one that its environment or its mark names, else to the one its session was seen in, else to the only one left.
    """

    kill_limit_s = 10.0  # what survives SIGKILL this long belongs to another user or hangs in the kernel

    def __init__(self, run: str, trees: dict[int, ProcessTree]) -> None:
        self._trees = trees
        self._marks = OwnerMarks()
        self._owners = ProcessOwners(run, trees, self._marks)
        self._strays: dict[int, float] = {}  # orphans without an owner, and when they were first seen

    def mark(self, child: int) -> int | None:
        """The owner mark that a child sets on itself before anything else."""
        return self._marks.of(child)

    def signal(self, tree: ProcessTree, number: int) -> bool:
        """Signal every process of a tree; False when none is left. Signal 0 only checks."""
        members, certain = self._survey(tree)
        retries = _SURVEY_RETRIES
        while not members and not certain and retries:
            members, certain = self._survey(tree)
            retries -= 1
        if number:
            signal_processes(members, number)
        return bool(members) or not certain

    def members(self) -> dict[int | None, list[Process]]:
        """The living processes of every tree; under None, those whose tree is unknown."""
        table = process_table()
        roots = self._owners.roots(table)
        below = children_by_parent(table)
        found: dict[int | None, list[Process]] = {None: living_descendants(self._unowned(roots), below)}
        return found | {tree: self._members(tree, roots, below) for tree in self._trees}

    def kill_everything(self) -> None:
        table = process_table()
        own = os.getpid()
        signal_processes(with_descendants([p for p in table.values() if p.parent == own], table), signal.SIGKILL)

    def _survey(self, tree: ProcessTree) -> tuple[list[Process], bool]:
        """The living processes of a tree, and whether an empty answer would be certain.

        The process table is not read at one instant, so a process that forks and exits meanwhile could hide its child.
        It then shows as our zombie, because nobody else reaps an orphan. And a process in the middle of an exec has no
        environment for a moment. A table that shows either proves nothing.
        """
        table = process_table()
        roots = self._owners.roots(table)
        members = self._members(tree.id, roots, children_by_parent(table))
        own = os.getpid()
        some_died = self._reap_orphans([process for process in table.values() if process.parent == own])
        some_are_new = self._note_strays([process.pid for process in self._unowned(roots)])
        return members, not (some_died or some_are_new)

    def _members(
        self, tree: int, roots: dict[int | None, list[Process]], below: dict[int, list[Process]]
    ) -> list[Process]:
        members = living_descendants(roots.get(tree, ()), below)
        self._owners.note(tree, members)
        if None in roots and not self._unowned(roots):
            return living_descendants(roots.get(tree, []) + roots[None], below)  # a guess, so it is not recorded
        return members

    def _unowned(self, roots: dict[int | None, list[Process]]) -> list[Process]:
        """Orphans that cannot be attributed, not even to the only tree there is."""
        return [] if len(self._trees) == 1 else roots.get(None, [])

    def _reap_orphans(self, children: Iterable[Process]) -> bool:
        """Reap dead orphans; True if there were any. Leaders are left to the supervisor, which reports them."""
        leaders = {tree.leader for tree in self._trees.values() if tree.leader_alive}
        orphans = [process.pid for process in children if process.pid not in leaders]
        dead = [pid for pid in orphans if os.waitpid(pid, os.WNOHANG)[0]]
        return bool(dead)

    def _note_strays(self, pids: list[int]) -> bool:
        """Record unattributed orphans; True if one is so new that it may just be in the middle of an exec."""
        now = time.monotonic()
        self._strays = {pid: self._strays.get(pid, now) for pid in pids}
        return any(now - since < _STRAY_S for since in self._strays.values())


class ProcessGroups:
    """Process trees on any system: a tree is the process group of its leader. What leaves the group is out of reach."""

    kill_limit_s = 1.0  # zombies look alive from here until they are reaped, so waiting longer is pointless

    def __init__(self, trees: dict[int, ProcessTree]) -> None:
        self._trees = trees

    def signal(self, tree: ProcessTree, number: int) -> bool:
        if signal_group(tree.leader, number):
            return True
        return tree.leader_alive and signal_process(tree.leader, number)  # it has not made its group yet

    def mark(self, child: int) -> int | None:
        """No mark: it could not be read back here."""
        return None

    def members(self) -> dict[int | None, list[Process]]:
        """Nothing: this system does not list processes."""
        return {}

    def kill_everything(self) -> None:
        for tree in self._trees.values():
            self.signal(tree, signal.SIGKILL)


class OwnerMarks:
    """Marks on all processes that come from one child, which survive a cleared environment and a new session.

    The mark is a resource limit (RLIMIT_LOCKS) that Linux hands down with every fork and exec, shows to everyone, and
    has not enforced since 2.4. A program may lower it, but has no reason to. Its upper half is for our own children,
    the lower half for those of a gateway that runs below this one.
    """

    def __init__(self) -> None:
        self._own = resource.getrlimit(_RLIMIT_LOCKS)[1]

    def of(self, child: int) -> int | None:
        """The mark of a child; None if no half is free for one."""
        if child > _MAX_CHILD_ID:
            return None
        if self._own == resource.RLIM_INFINITY:
            return child << _MARK_BITS | _UNUSED_HALF
        return self._own - _UNUSED_HALF + child if self._own & _UNUSED_HALF == _UNUSED_HALF else None

    def child_of(self, pid: int) -> int | None:
        """The child whose mark a process carries; None when it is not one of ours."""
        lines = read_proc(f"/proc/{pid}/limits").splitlines()
        hard_limit = next((line.split()[4] for line in lines if line.startswith(b"Max file locks")), b"")
        if not hard_limit.isdigit():
            return None
        upper, lower = divmod(int(hard_limit), _UNUSED_HALF + 1)
        if self._own == resource.RLIM_INFINITY:
            return upper
        return lower if self._own == upper << _MARK_BITS | _UNUSED_HALF else None


def set_owner_mark(mark: int) -> None:
    """Mark this process and everything that will come from it."""
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))
    except (OSError, ValueError):
        return  # this system has no such limit; tags and sessions still tell processes apart


class ProcessOwners:
    """Attributes the processes below the supervisor to trees."""

    def __init__(self, run: str, trees: Mapping[int, ProcessTree], marks: OwnerMarks) -> None:
        self._run = run
        self._trees = trees
        self._own = os.getpid()
        self._own_session = os.getsid(0)
        self._marks = marks
        self._seen: dict[int, tuple[int, int]] = {}  # by pid: its start time and its tree
        self._sessions: dict[int, tuple[int, float]] = {}  # by session, or pid that may become one: tree and expiry

    def roots(self, table: dict[int, Process]) -> dict[int | None, list[Process]]:
        """The topmost processes of each tree; under None, orphans whose tree is unknown."""
        self._seen = {
            pid: (started, tree)
            for pid, (started, tree) in self._seen.items()
            if pid in table and table[pid].started == started and tree in self._trees
        }
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
        """Remember that these belong to a tree, even if they lose their parents."""
        until = time.monotonic() + _FORGET_S
        for process in members:
            self._seen[process.pid] = (process.started, tree)
            self._sessions[process.pid] = (tree, until)
            if process.session != self._own_session:
                self._sessions[process.session] = (tree, until)

    def _owner(self, orphan: Process, leaders: dict[int, ProcessTree]) -> int | None:
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
