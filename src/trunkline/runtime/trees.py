"""Which processes belong to which child of the supervisor, and how to signal them.

`Descendants` finds every process below the supervisor; `Groups` is what is left where that is not possible. Loaded by
the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import os
import signal
import time

from trunkline.runtime.owner_mark import OwnerMarks
from trunkline.runtime.owners import Owners
from trunkline.runtime.platform import (
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
