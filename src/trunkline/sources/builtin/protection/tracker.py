"""Takes a snapshot of the protected paths before a command, and compares and undoes after it.

Everything here touches the disk: not on the event loop (`guard` calls it from a thread).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.config.sandbox import KERNEL_FOLDERS
from trunkline.config.settings import STATE_DIR
from trunkline.runtime.state_files import make_private_folder
from trunkline.sources.builtin.protection.nofollow import open_up
from trunkline.sources.builtin.protection.protected_paths import GIT, HOOKS, ProtectedPaths
from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine
from trunkline.sources.builtin.protection.scanner import (
    MOST_FOLDERS,
    YOUNG_NS,
    ProtectedFile,
    ProtectedPathScanner,
    ScanResult,
)
from trunkline.sources.builtin.protection.snapshots import (
    STATE,
    TO_THE_END_S,
    CommandRegistry,
    ContentStore,
    Identity,
    ProtectionSnapshot,
    ProtectiveMounts,
    RunningCommand,
    commands_folder,
    identity_of,
    is_usable,
    spare_folder,
)
from trunkline.sources.builtin.protection.undo import ChangeUndoer, FileChange, UndoneChange, compare

MOST_MOUNTS: Final = 100
"""For each of them bubblewrap reads the list of all. Paths beyond that are compared like the rest."""
_MOST_OPENINGS: Final = 20
_MOST_ROUNDS: Final = 10
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class UndoOutcome:
    """What was undone, whether everything was compared, and the paths that were new and are gone."""

    undone: tuple[UndoneChange, ...] = ()
    complete: bool = True
    planted: tuple[str, ...] = ()


class ChangeTracker:
    """Tracks changes of the `protected` paths below the folder `root`. `warn` gets what goes wrong with that."""

    def __init__(
        self,
        root: str,
        protected: ProtectedPaths,
        state_dir: Path,
        warn: Callable[[str], None],
        *,
        most_folders: int = MOST_FOLDERS,
        home: str = "",
    ) -> None:
        self._root = root
        self._protected = protected
        self._most_folders = most_folders
        self._scanners: list[ProtectedPathScanner] = []
        self._state_dir = state_dir
        self._home = home
        self._warn = warn
        self._contents: dict[str, ContentStore] = {}

    def begin(self) -> TrackedCommand:
        """Take a snapshot before a command runs, and register the command. Raises OSError."""
        self._find_base()
        folder = self._state_folder()
        registry = CommandRegistry(commands_folder(self._home, folder))
        contents = self._contents.setdefault(str(folder), ContentStore(folder / "kept"))
        with registry.lock():
            before = ProtectionSnapshot(tuple(scanner.base for scanner in self._scanners), taken_ns=time.time_ns())
            scans = [scanner.look() for scanner in self._scanners]
            for scanner, scan in zip(self._scanners, scans, strict=True):
                before.records |= contents.records(scanner.base, scan)
                before.complete = before.complete and scan.complete
                before.unlisted |= scan.unlisted
            running, abandoned = registry.others()
            for other in running:
                before.merge(other)
            for other in abandoned:
                self._warn_of(other, before)
            roots = [root for scanner in self._scanners for root in _roots_in(scanner)]
            before.mounts = _mounts(before, scans, running, roots)
            command = registry.register(before)
        quarantine = Quarantine(folder.parent / FOLDER)
        return TrackedCommand(self, before, scans, command, registry, contents, quarantine)

    def _find_base(self) -> None:
        """The root may be a link that leads elsewhere by now; a sandbox that was made before is still where it was."""
        home = os.path.realpath(self._home) if self._home else ""
        state = (self._state_dir, Path(STATE_DIR.replace("~", home)))
        left_out = [*(os.path.realpath(folder) for folder in state), *KERNEL_FOLDERS]
        base = os.path.realpath(self._root)
        if all(scanner.base != base for scanner in self._scanners):
            scanner = ProtectedPathScanner(
                base, self._protected, most_folders=self._most_folders, left_out=left_out, home=home
            )
            self._scanners = [*self._scanners, scanner]

    def _state_folder(self) -> Path:
        """The folder for state, or one for temporary files if that cannot be used."""
        for parent in (self._state_dir, spare_folder()):
            try:
                make_private_folder(parent / STATE)
            except OSError as error:
                self._warn(f"The state of protected paths cannot be kept in {parent}: {error.strerror}")
                continue
            if is_usable(parent / STATE):
                return parent / STATE
        raise OSError("no folder for the state of protected paths")

    def _warn_of(self, abandoned: ProtectionSnapshot, now: ProtectionSnapshot) -> None:
        """A gateway was killed while a command of it ran. What changed may be its user's own work, so it stays."""
        contents = next(iter(self._contents.values()))
        for base in set(abandoned.bases) & set(now.bases):
            below = {path: one for path, one in now.records.items() if path.startswith(f"{base.rstrip('/')}/")}
            changes = compare(abandoned, below, contents.get, base, abandoned.may_have_missed)
            names = ", ".join([change.path for change in changes][:_MOST_NAMED])
            if names:
                self._warn(f"A gateway was killed while a command ran in {base}; check what has changed since: {names}")

    def undo(self, command: TrackedCommand) -> UndoOutcome:
        """Scan again, and undo what differs from before the command, except for what was changed from outside."""
        before, contents = command.before, command.contents
        undone: list[UndoneChange] = []
        planted: list[str] = []
        complete = True
        since_ns = before.taken_ns - YOUNG_NS
        for scanner, old in zip(self._scanners, command.scans, strict=False):  # there may be one more by now

            def was_missed(path: str, record: ProtectedFile, old: ScanResult = old, base: str = scanner.base) -> bool:
                return old.was_missed(path, record.stamp, base, since_ns)

            undoer = ChangeUndoer(scanner.base, before, contents, command.quarantine)
            is_whole = False
            for _ in range(_MOST_ROUNDS):  # there may have been more than one scan takes in
                scan = _opened(scanner, before)
                now = contents.records(scanner.base, scan)
                all_changes = compare(before, now, contents.get, scanner.base, was_missed)
                changes = [change for change in all_changes if not command.is_from_outside(change)]
                done = [one for one in undoer.all(changes) if not (one.failed and one in undone)]
                new = [one.path for one in done if one.how == "new" and not one.failed]
                planted += (f"{scanner.base.rstrip('/')}/{path}" for path in new)
                undone += done
                is_whole = scan.complete
                if is_whole or not changes:
                    break
            complete = complete and is_whole
        return UndoOutcome(tuple(undone), complete, tuple(planted))


def _opened(scanner: ProtectedPathScanner, before: ProtectionSnapshot) -> ScanResult:
    """A scan of everything: folders that a command has closed to their owner are opened, as they may hold something."""
    scan = scanner.look(thoroughly=before.complete)
    for _ in range(_MOST_OPENINGS):
        closed = scan.unlisted - before.unlisted
        if not closed:
            break
        for path in closed:
            open_up(scanner.base, path)
        scan = scanner.look(thoroughly=before.complete)
    return scan


@dataclass(slots=True)
class TrackedCommand:
    """One command that may run now. Call `end`, however it went, once nothing of it runs any more."""

    tracker: ChangeTracker
    before: ProtectionSnapshot
    scans: Sequence[ScanResult]
    command: RunningCommand
    registry: CommandRegistry
    contents: ContentStore
    quarantine: Quarantine
    is_mounted: bool = False
    """Whether the command has the mounts."""

    def end(self) -> UndoOutcome:
        """Compare, and undo. Raises OSError if nothing could be compared."""
        try:
            with self.registry.lock(TO_THE_END_S):
                self.command.refresh(self.before)
                outcome = self.tracker.undo(self)
                self.registry.remove_from_all(outcome.planted)
                running, _ = self.registry.others(forget=False)
                wanted = (snapshot.records.values() for snapshot in (self.before, *running))
                self.contents.prune({record.content for records in wanted for record in records})
                return outcome
        finally:
            self.command.close()

    def is_from_outside(self, change: FileChange) -> bool:
        """Whether the change was made outside the sandbox, as inside it was impossible. A file with another hard link
        could be written through that one."""
        if not self.is_mounted:
            return False
        known = [record for record in (change.before, change.now) if record is not None]
        if change.how == "changed" and any(record.stamp.links > 1 for record in known):
            return False
        read_only = self.before.mounts.read_only
        if change.now is not None and read_only.get(change.path) == change.now.stamp.identity:
            return True
        return any(
            change.path.startswith(f"{path}/") and identity_of(path) == identity for path, identity in read_only.items()
        )


# -- mounts -----------------------------------------------------------------------------------------------------------


def _mounts(
    before: ProtectionSnapshot, scans: Sequence[ScanResult], running: Sequence[ProtectionSnapshot], roots: Sequence[str]
) -> ProtectiveMounts:
    """Only what lies in the root or a hidden folder there; and while another command runs here, only what that one has
    mounted and so cannot move. bubblewrap takes paths, and any other path could lead elsewhere once it mounts."""
    others = [other for other in running if other.overlaps(before)]
    if others:
        return _shared_mounts(before, others)
    read_only: dict[str, Identity] = {}
    pinned = set(roots)
    for base, scan in zip(before.bases, scans, strict=True):
        for path, identity in sorted(_candidates(before, scan), key=lambda item: (item[0].count("/"), item[0])):
            holder = os.path.dirname(path)  # noqa: PTH120
            above, _, name = holder.rpartition("/")
            is_near = holder == base or (above == base and name.startswith("."))
            if is_near and len(read_only) < MOST_MOUNTS:
                read_only[path] = identity
                pinned |= {holder} - {base}
        git = f"{base.rstrip('/')}/{GIT}"
        if git in scan.folders:
            pinned.add(git)
    return ProtectiveMounts(read_only, tuple(sorted(pinned)))


def _roots_in(scanner: ProtectedPathScanner) -> Iterator[str]:
    """The roots of other tools and the folders above them: if one is moved, others could follow a link instead."""
    for names in scanner.protected.roots:
        path = scanner.base
        for name in names:
            path = f"{path.rstrip('/')}/{name}"
            if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH112, PTH114
                break
            yield path


def _shared_mounts(before: ProtectionSnapshot, others: Sequence[ProtectionSnapshot]) -> ProtectiveMounts:
    """What all of these have mounted, and the folders on the way to those that they work in."""
    first = others[0]
    read_only = {
        path: identity
        for path, identity in first.mounts.read_only.items()
        if before.covers(path)
        and all(other.mounts.read_only.get(path) == identity for other in others)
        and first.has_mounted(path)
    }
    pinned = set(filter(before.covers, first.mounts.pinned)).intersection(*(other.mounts.pinned for other in others))
    ways = {base for other in others for base in other.bases}
    while ways:
        ways = {path for path in ways if before.covers(path)}
        pinned |= ways
        ways = {os.path.dirname(path) for path in ways}  # noqa: PTH120
    return ProtectiveMounts(read_only, tuple(sorted(pinned)))


def _candidates(before: ProtectionSnapshot, scan: ScanResult) -> Iterator[tuple[str, Identity]]:
    occupied = {record.protected_path for record in before.records.values()}
    own = {f"{base.rstrip('/')}/{GIT}/{HOOKS}" for base in before.bases}
    for path, identity in scan.folders.items():
        name = os.path.basename(path)  # noqa: PTH119
        # a repository whose hooks are git's own samples can be removed as a whole, so these are not mounted
        if name.casefold() != GIT and (name != HOOKS or path in own or path in occupied):
            yield path, identity
    for path, record in before.records.items():
        if record.protected_path == path and record.kind in ("file", "folder") and path in scan.items:
            yield path, record.stamp.identity
