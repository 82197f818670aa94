"""Whose a process is that lost its parents: by what it carries, and by what was seen of it before.

Loaded by the supervisor only, so it stays with light imports.
"""

from __future__ import annotations

import os
import time

from trunkline.runtime.platform import child_in_tag, tag_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trunkline.runtime.owner_mark import OwnerMarks
    from trunkline.runtime.platform import Process
    from trunkline.runtime.trees import Tree

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
