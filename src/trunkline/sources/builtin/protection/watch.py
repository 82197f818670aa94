"""Looks at the protected places below the folders that commands can write to, before and after each command.

What a command has changed there is taken back before anybody is told how it ended. Everything here touches the disk:
not on the event loop.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.config.gateway import STATE_DIR
from trunkline.config.sandbox import OF_THE_KERNEL
from trunkline.runtime.state_files import make_private_folder
from trunkline.sources.builtin.protection.comparing import Difference, differences
from trunkline.sources.builtin.protection.handles import open_up
from trunkline.sources.builtin.protection.kept import Kept, Record
from trunkline.sources.builtin.protection.places import GIT, HOOKS, ProtectedPlaces
from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine
from trunkline.sources.builtin.protection.sessions import TO_THE_END_S, Before, Session, Sessions
from trunkline.sources.builtin.protection.tree import MOST_FOLDERS, YOUNG_NS, Found, Tree
from trunkline.sources.builtin.protection.undoing import Undoing, Undone

STATE: Final = "protected"
COMMANDS: Final = "commands"
MOST_MOUNTS: Final = 100
"""For each of them bubblewrap reads the list of all. What is beyond is compared like the rest."""
_OPENINGS: Final = 20
_ROUNDS: Final = 10
_MOST_TOLD: Final = 10

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mounts:
    """What is to be read-only in a sandbox, and the folders that nobody may move from their places there. Each is what
    it was when it was looked at."""

    read_only: dict[str, Identity]
    pinned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was undone, whether everything was looked at, and the paths of what was new and is gone."""

    undone: tuple[Undone, ...] = ()
    complete: bool = True
    planted: tuple[str, ...] = ()


class PlaceWatch:
    """`bases` are the folders with their places. `told` hears what is wrong with the watch itself."""

    def __init__(
        self,
        bases: Sequence[tuple[str, ProtectedPlaces]],
        state_dir: Path,
        told: Callable[[str], None],
        *,
        most_folders: int = MOST_FOLDERS,
        home: str = "",
    ) -> None:
        self._bases = bases
        self._most_folders = most_folders
        self._trees: list[Tree] = []
        self._state_dir = state_dir
        self._home = home
        self._told = told
        self._kept: dict[str, Kept] = {}

    def begin(self) -> WatchedCommand:
        """Look, before a command runs. Raises OSError."""
        self._find_trees()
        folder = self._folder()
        sessions = Sessions(commands_folder(self._home, folder))
        kept = self._kept.setdefault(str(folder), Kept(folder / "kept"))
        with sessions.alone():
            before, found = self._look(kept)
            running, left = sessions.others()
            for other in running:
                before.taking_over(other)
            for other in left:
                self._tell_of(other, before)
            mounts = _mounts(before, found, running, [root for tree in self._trees for root in _roots_in(tree)])
            before.mounted, before.pinned = mounts.read_only, mounts.pinned
            session = sessions.begin(before)
        return WatchedCommand(self, before, found, mounts, session, sessions, kept, Quarantine(folder.parent / FOLDER))

    def _find_trees(self) -> None:
        """A root may be a link that leads elsewhere by now; a sandbox that was made before is still where it was."""
        home = os.path.realpath(self._home) if self._home else ""
        state = (self._state_dir, Path(STATE_DIR.replace("~", home)))
        left_out = [*(os.path.realpath(folder) for folder in state), *OF_THE_KERNEL]
        for path, places in self._bases:
            base = os.path.realpath(path)
            if all(tree.base != base for tree in self._trees):
                tree = Tree(base, places, most_folders=self._most_folders, left_out=left_out, home=home)
                self._trees = [*self._trees, tree]

    def _folder(self) -> Path:
        """Where state is kept, or a folder for temporary files where none can be."""
        for parent in (self._state_dir, spare_folder()):
            try:
                make_private_folder(parent / STATE)
            except OSError as error:
                self._told(f"No state of protected places can be kept in {parent}: {error.strerror}")
                continue
            if os.access(parent / STATE, os.W_OK) and _is_own(parent) and _is_own(parent / STATE):
                return parent / STATE
        raise OSError("no folder for the state of protected places")

    def _look(self, kept: Kept) -> tuple[Before, list[Found]]:
        before = Before(tuple(tree.base for tree in self._trees), taken_ns=time.time_ns())
        found = [tree.look() for tree in self._trees]
        for tree, one in zip(self._trees, found, strict=True):
            before.records |= kept.records(tree.base, one)
            before.complete = before.complete and one.complete
            before.unlisted |= one.unlisted
        return before, found

    def undo(
        self,
        before: Before,
        seen: Sequence[Found],
        kept: Kept,
        quarantine: Quarantine,
        is_left: Callable[[Difference], bool],
    ) -> Outcome:
        """Look again, and take back what differs from what was `seen`, but for what `is_left`."""
        undone: list[Undone] = []
        planted: list[str] = []
        complete = True
        since_ns = before.taken_ns - YOUNG_NS
        for tree, old in zip(self._trees, seen, strict=False):  # there may be one more by now

            def was_missed(path: str, record: Record, old: Found = old, base: str = tree.base) -> bool:
                return old.was_missed(path, record.stamp, base, since_ns)

            undoing = Undoing(tree.base, before, kept, quarantine)
            is_whole = False
            for _ in range(_ROUNDS):  # there may have been more than one look takes in
                found = _opened(tree, before)
                now = kept.records(tree.base, found)
                found_now = differences(before, now, kept.get, tree.base, was_missed)
                different = [one for one in found_now if not is_left(one)]
                done = [one for one in undoing.all(different) if not (one.failed and one in undone)]
                planted += (
                    f"{tree.base.rstrip('/')}/{one.path}" for one in done if one.how == "new" and not one.failed
                )
                undone += done
                is_whole = found.complete
                if is_whole or not different:
                    break
            complete = complete and is_whole
        return Outcome(tuple(undone), complete, tuple(planted))

    def _tell_of(self, left: Before, now: Before) -> None:
        """A gateway was killed while a command of it ran. What changed may be its user's own work, so it stays."""
        kept = next(iter(self._kept.values()))
        for base in set(left.bases) & set(now.bases):
            found = differences(left, _below(now, base), kept.get, base, left.may_have_missed)
            paths = [one.path for one in found]
            if paths:
                names = ", ".join(paths[:10])
                self._told(
                    f"A gateway was killed while a command ran in {base}; changed since then, look at it: {names}"
                )


class WatchedCommand:
    """One command that may run now. `end` it, whatever became of it, once nothing of it runs any more."""

    def __init__(
        self,
        watch: PlaceWatch,
        before: Before,
        seen: Sequence[Found],
        mounts: Mounts,
        session: Session,
        sessions: Sessions,
        kept: Kept,
        quarantine: Quarantine,
    ) -> None:
        self.mounts = mounts
        self._watch = watch
        self._before = before
        self._seen = seen
        self._session = session
        self._sessions = sessions
        self._kept = kept
        self._quarantine = quarantine
        self._mounted = False

    def mounted(self) -> None:
        """The command gets what is to be read-only so."""
        self._mounted = True

    def end(self) -> Outcome:
        """Raises OSError where nothing could be compared."""
        try:
            with self._sessions.alone(TO_THE_END_S):
                self._session.refresh(self._before)
                outcome = self._watch.undo(
                    self._before, self._seen, self._kept, self._quarantine, self._is_from_outside
                )
                self._sessions.never_seen(outcome.planted)
                running, _ = self._sessions.others(forget=False)
                wanted = (before.records.values() for before in (self._before, *running))
                self._kept.prune({record.content for records in wanted for record in records})
                return outcome
        finally:
            self._session.close()

    def _is_from_outside(self, difference: Difference) -> bool:
        """Whether somebody outside of the sandbox did it, since nobody inside could. With another name somewhere, a
        file could be written by that."""
        if not self._mounted:
            return False
        known = [record for record in (difference.before, difference.now) if record is not None]
        if difference.how == "changed" and any(record.stamp.links > 1 for record in known):
            return False
        if difference.now is not None and self.mounts.read_only.get(difference.path) == difference.now.stamp.identity:
            return True
        return any(
            difference.path.startswith(f"{path}/") and _identity(path) == identity
            for path, identity in self.mounts.read_only.items()
        )


def may_be_planted(path: str, state_dir: Path, home: str) -> bool:
    """Whether a command that runs now, of whichever gateway of this user, may have changed the file at this path."""
    folders = [parent / STATE / COMMANDS for parent in (state_dir, spare_folder())]
    if home:
        folders.append(_commands_of_all(home))
    return any(Sessions(folder).may_change(path) for folder in folders if _takes_commands(folder))


def commands_folder(home: str, otherwise: Path) -> Path:
    """Where commands know of each other: for all gateways of a user the same, wherever they keep the rest."""
    folder = _commands_of_all(home)
    if home:
        with contextlib.suppress(OSError):
            make_private_folder(folder)
            if _is_own(folder) and os.access(folder, os.W_OK):
                return folder
    return otherwise / COMMANDS


def _commands_of_all(home: str) -> Path:
    return Path(STATE_DIR.replace("~", home), STATE, COMMANDS)


def _mounts(before: Before, found: Sequence[Found], running: Sequence[Before], roots: Sequence[str]) -> Mounts:
    """Only what lies near, and while another command runs here, what that one has mounted itself and so cannot move:
    bubblewrap takes paths, and where any other path leads could change between now and then."""
    others = [other for other in running if other.overlaps(before)]
    if others:
        return _shared(before, others)
    read_only: dict[str, Identity] = {}
    pinned = set(roots)
    for base, one in zip(before.bases, found, strict=True):
        near = [(path, identity) for path, identity in _candidates(before, one) if _is_near(path, base)]
        for path, identity in sorted(near, key=lambda item: (item[0].count("/"), item[0])):
            if len(read_only) < MOST_MOUNTS:
                read_only[path] = identity
                pinned |= {os.path.dirname(path)} - {base}  # noqa: PTH120
        git = f"{base.rstrip('/')}/{GIT}"
        if git in one.folders:
            pinned.add(git)
    return Mounts(read_only, tuple(sorted(pinned)))


def _roots_in(tree: Tree) -> Iterator[str]:
    """The folders that others work in, and those above them: whoever moves one has the others follow a link of his."""
    for names in tree.places.roots:
        path = tree.base
        for name in names:
            path = f"{path.rstrip('/')}/{name}"
            if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114
                break
            yield path


def _shared(before: Before, others: Sequence[Before]) -> Mounts:
    """What all of these have mounted, and the ways to the folders that they work in."""
    first = others[0]
    read_only = {
        path: identity
        for path, identity in first.mounted.items()
        if before.covers(path)
        and all(other.mounted.get(path) == identity for other in others)
        and first.has_mounted(path)
    }
    pinned = {path for path in first.pinned if before.covers(path) and all(path in other.pinned for other in others)}
    ways = {base for other in others for base in other.bases}
    while ways:
        ways = {path for path in ways if before.covers(path)}
        pinned |= ways
        ways = {os.path.dirname(path) for path in ways}  # noqa: PTH120
    return Mounts(read_only, tuple(sorted(pinned)))


def _is_near(path: str, base: str) -> bool:
    """Whether it lies in the folder itself, or in one there that is full of such places."""
    holder = os.path.dirname(path)  # noqa: PTH120
    above, _, name = holder.rpartition("/")
    return holder == base or (above == base and name.startswith("."))


def _candidates(before: Before, found: Found) -> Iterator[tuple[str, Identity]]:
    full = {record.place for record in before.records.values()}
    own = {f"{base.rstrip('/')}/{GIT}/{HOOKS}" for base in before.bases}
    for path, identity in found.folders.items():
        name = os.path.basename(path)  # noqa: PTH119
        # where hooks are only git's own samples, nobody who removes the repository is to be kept from it
        if name.casefold() != GIT and (name != HOOKS or path in own or path in full):
            yield path, identity
    for path, record in before.records.items():
        if record.place == path and record.kind in ("file", "folder") and path in found.items:
            yield path, record.stamp.identity


def _opened(tree: Tree, before: Before) -> Found:
    """A look at all of it: what a command has closed to its own user is opened, as something may lie in there."""
    found = tree.look(thoroughly=before.complete)
    for _ in range(_OPENINGS):
        closed = found.unlisted - before.unlisted
        if not closed:
            break
        for path in closed:
            open_up(tree.base, path)
        found = tree.look(thoroughly=before.complete)
    return found


def spare_folder() -> Path:
    """Where state is kept that `state_dir` does not take."""
    return Path(tempfile.gettempdir(), f"trunkline-protected-{os.getuid()}")


def spare_folders() -> list[Path]:
    """That folder, where it is there and nobody else has made it."""
    spare = spare_folder()
    with contextlib.suppress(OSError):
        return [spare] if _is_own(spare) else []
    return []


def _takes_commands(folder: Path) -> bool:
    """Whether commands of this user can be told of in there. A folder of somebody else would hold everything up."""
    with contextlib.suppress(OSError):
        return _is_own(folder.parent) and _is_own(folder) and os.access(folder, os.W_OK)
    return False


def _is_own(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _identity(path: str) -> Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _below(before: Before, base: str) -> dict[str, Record]:
    return {path: record for path, record in before.records.items() if path.startswith(f"{base.rstrip('/')}/")}
