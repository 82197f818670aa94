"""Which processes belong to which child of the supervisor, and how to signal them.

`Descendants` finds every process below the supervisor; `Groups` is what is left where that is not possible. Loaded by
the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import os
import signal
import time

from trunkline.links.platform import (
    Process,
    child_in_tag,
    process_table,
    signal_group,
    signal_process,
    signal_processes,
    tag_of,
    with_descendants,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Phase = Literal["running", "closing", "terminating", "killing"]

NEVER = float("inf")
_SURVEY_RETRIES = 4
_STRAY_S = 0.2  # far longer than an exec takes


class Tree:
    """One child and everything it started. `leader` is the process we made; its pid is also its group and session."""

    __slots__ = ("due", "exec_pipe", "give_up_at", "id", "leader", "leader_alive", "phase", "sessions", "term_s")

    def __init__(self, id: int, leader: int, exec_pipe: int) -> None:  # noqa: A002 (it is the tree's id)
        self.id = id
        self.leader = leader
        self.leader_alive = True
        self.exec_pipe = exec_pipe
        self.phase: Phase = "running"
        self.due = NEVER  # when the phase ends or is looked at again
        self.give_up_at = NEVER  # when SIGTERM, or SIGKILL, has had its time
        self.term_s = NEVER
        self.sessions: set[int] = {leader}  # seen in this tree so far


class Descendants:
    """Linux: the supervisor is a subreaper, so every process of every tree is below it, whatever it did to get away.

    What still has its parents belongs to their tree. An orphan belongs to the tree its environment names, else to the
    tree its session was seen in, else (it wiped both) to the last tree left.
    """

    kill_limit_s = 10.0  # what survives SIGKILL this long belongs to another user or hangs in the kernel

    def __init__(self, run: str, trees: dict[int, Tree]) -> None:
        self._run = run
        self._trees = trees
        self._own_session = os.getsid(0)
        self._strays: dict[int, float] = {}  # orphans without an owner, and since when

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

    def members(self) -> dict[int, list[Process]]:
        """The processes of every tree that are alive now."""
        table = process_table()
        own = os.getpid()
        tops: dict[int, list[Process]] = {}
        for process in table.values():
            owner = self._owner(process) if process.parent == own else None
            if owner is not None:
                tops.setdefault(owner, []).append(process)
        return {owner: with_descendants(processes, table) for owner, processes in tops.items()}

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
        own = os.getpid()
        owners = {process: self._owner(process) for process in table.values() if process.parent == own}
        members = with_descendants([process for process, owner in owners.items() if owner == tree.id], table)
        tree.sessions.update(process.session for process in members if process.session != self._own_session)
        some_died = self._reap_orphans(owners)
        some_are_new = self._note_strays([process.pid for process, owner in owners.items() if owner is None])
        return members, not (some_died or some_are_new)

    def _owner(self, top: Process) -> int | None:
        """The tree that a direct child of the supervisor belongs to; None when that cannot be told."""
        for tree in self._trees.values():
            if tree.leader_alive and tree.leader == top.pid:
                return tree.id
        named = child_in_tag(tag_of(top.pid), self._run)
        if named in self._trees:
            return named
        for tree in self._trees.values():
            if top.session in tree.sessions:
                return tree.id
        return next(iter(self._trees)) if len(self._trees) == 1 else None

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

    def members(self) -> dict[int, list[Process]]:
        """Nobody tells."""
        return {}

    def kill_everything(self) -> None:
        for tree in self._trees.values():
            self.signal(tree, signal.SIGKILL)
