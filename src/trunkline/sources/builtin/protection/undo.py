"""Compares the protected paths with a snapshot, and undoes the changes that matter.

What is new goes into quarantine, what was there before is put back. Of a git configuration only dangerous keys matter,
and only these are restored.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from trunkline.config.sandbox import SCRATCH_PREFIX
from trunkline.sources.builtin.protection.git import (
    BadGitConfig,
    GitConfigEntry,
    format_git_config,
    is_dangerous,
    parse_git_config,
    repository_named,
)
from trunkline.sources.builtin.protection.nofollow import link_to, parent_of, read_at, write_at
from trunkline.sources.builtin.protection.protected_paths import GIT, HOOKS, programs_using
from trunkline.sources.builtin.protection.quarantine import Quarantine, QuarantinedItem
from trunkline.sources.builtin.protection.scanner import YOUNG_NS, ProtectedFile, is_passed_over
from trunkline.sources.builtin.protection.snapshots import (
    LARGEST_KEPT_BYTES,
    ContentStore,
    ProtectionSnapshot,
    digest_of,
)

ChangeType = Literal["new", "changed", "gone"]
_EXECUTABLE: Final = 0o111
_CONFIG_MODE: Final = 0o644
_MOST_MOVED: Final = 50
"""By one command: making thousands of such files must not push everything older out of the quarantine."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """`now` is None for what is gone, `before` for what is new. `keys` are dangerous ones of a git configuration."""

    path: str
    how: ChangeType
    before: ProtectedFile | None
    now: ProtectedFile | None
    keys: tuple[str, ...] = ()


# -- comparing --------------------------------------------------------------------------------------------------------


def compare(
    before: ProtectionSnapshot,
    now: Mapping[str, ProtectedFile],
    read: Callable[[str], bytes | None],
    base: str,
    was_missed: Callable[[str, ProtectedFile], bool],
) -> Iterator[FileChange]:
    """The changes below `base`. `read` gets a stored content by digest; `was_missed` says whether something may have
    been there before, unseen."""
    for path, record in now.items():
        known = before.records.get(path)
        if was_missed(path, record) if known is None else _is_same(known, record, before.taken_ns):
            continue
        keys = _changed_keys(path, known, record, read, base) if record.kind == "config" else ()
        if keys or record.kind != "config":
            yield FileChange(path, "new" if known is None else "changed", known, record, keys)
    inside = f"{base.rstrip('/')}/"
    for path, known in before.records.items():
        if path in now or not path.startswith(inside) or _is_still_there(path, known):
            continue
        if known.kind != "config" or _dangerous_entries(path, read(known.content), base):
            yield FileChange(path, "gone", known, None)


def _is_same(before: ProtectedFile, now: ProtectedFile, taken_ns: int) -> bool:
    if before.kind != now.kind:
        return False
    if before.stamp == now.stamp and taken_ns - now.stamp.changed_ns > YOUNG_NS:
        return True
    if before.kind == "folder":
        return before.stamp.identity == now.stamp.identity
    if before.kind == "other":
        return before.stamp == now.stamp
    same_mode = not (before.stamp.mode ^ now.stamp.mode) & _EXECUTABLE
    return same_mode and before.content != "" and before.content == now.content


def _is_still_there(path: str, known: ProtectedFile) -> bool:
    """A scan that was incomplete may not have come to it."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_ino == known.stamp.inode and status.st_ctime_ns == known.stamp.changed_ns


def _changed_keys(
    path: str, before: ProtectedFile | None, now: ProtectedFile, read: Callable[[str], bytes | None], base: str
) -> tuple[str, ...]:
    """The dangerous keys in which two git configurations differ."""
    old = _dangerous_entries(path, read(before.content), base) if before is not None and before.kind == "config" else []
    new = _dangerous_entries(path, read(now.content), base)
    if old == new:
        return ()
    differing = {(entry.name, entry.value) for entry in old} ^ {(entry.name, entry.value) for entry in new}
    return tuple(dict.fromkeys(name for name, _ in sorted(differing, key=str))) or ("the order of keys",)


def _dangerous_entries(path: str, data: bytes | None, base: str) -> list[GitConfigEntry]:
    """A text that git would refuse counts as one dangerous entry."""
    if data is None:
        return [GitConfigEntry("", None, "the whole file", None)]
    try:
        entries = parse_git_config(data)
    except BadGitConfig:
        return [GitConfigEntry("", None, "the whole file", data.decode("utf-8", "replace"))]
    return [entry for entry in entries if _matters(entry, path, base)]


def _matters(entry: GitConfigEntry, path: str, base: str) -> bool:
    return (is_dangerous(entry) and not _is_work_tree_below(entry, path, base)) or _is_out_of_sight(entry, path, base)


def _is_work_tree_below(entry: GitConfigEntry, path: str, base: str) -> bool:
    """Whether it names a working tree below `base`, as configurations of submodules do."""
    if entry.name != "core.worktree" or not entry.value or "\0" in entry.value:
        return False
    tree = os.path.realpath(os.path.join(os.path.dirname(path), entry.value))  # noqa: PTH118, PTH120
    return f"{tree}/".startswith(f"{base.rstrip('/')}/")


def _is_out_of_sight(entry: GitConfigEntry, path: str, base: str) -> bool:
    """Whether it names a repository that a command can write to and whose hooks are not compared."""
    named = repository_named(entry).partition("\0")[0]
    if not named:
        return False
    named = os.path.expanduser(named)  # noqa: PTH111 - git does so, too
    if named.startswith(("/proc/", "/dev/")):
        return True
    holder = path.rpartition("/")[0].removesuffix(f"/{GIT}")
    for folder in (base, *(() if f"/{GIT}/" in holder else (holder,))):
        *above, name = os.path.realpath(os.path.join(folder, named)).split("/")  # noqa: PTH118
        inside = above[len(base.rstrip("/").split("/")) :] if "/".join(above).startswith(base) else []
        if is_passed_over([*inside, "" if name == GIT else name]) or any(
            part.startswith(SCRATCH_PREFIX) for part in above
        ):
            return True
    return False


def with_dangerous_keys_restored(path: str, before: bytes | None, now: bytes | None, base: str) -> bytes | None:
    """The git configuration `now` with its dangerous keys as they were `before`; None if that cannot be made."""
    if now is None:
        return before
    try:
        entries, old = parse_git_config(now), [] if before is None else parse_git_config(before)
    except BadGitConfig:
        return before
    harmless = [entry for entry in entries if not _matters(entry, path, base)]
    own = [entry for entry in old if _matters(entry, path, base)]
    if before is not None and harmless == [entry for entry in old if entry not in own]:
        return before
    return format_git_config([*own, *harmless])


# -- undoing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UndoneChange:
    """What was done about one change. `id` is that of the quarantined item, empty if there is none; `restored` says
    whether the former content is back, `failed` why the change could not be undone."""

    path: str
    how: str
    id: str = ""
    keys: tuple[str, ...] = ()
    restored: bool = False
    failed: str = ""


class ChangeUndoer:
    """Undoes the changes below one folder."""

    def __init__(self, base: str, before: ProtectionSnapshot, contents: ContentStore, quarantine: Quarantine) -> None:
        self._base = base
        self._old_paths = {record.protected_path for record in before.records.values()}
        self._contents = contents
        self._quarantine = quarantine
        self._taken = 0

    def all(self, changes: Iterable[FileChange]) -> Iterator[UndoneChange]:
        """What is new first: it may be in the way of what was there before."""
        by_how: Mapping[str, list[FileChange]] = {"new": [], "changed": [], "gone": []}
        for change in changes:
            by_how[change.how].append(change)
        done: set[str] = set()
        for change in by_how["new"]:
            path = self._whole(change)
            if path not in done:
                done.add(path)
                undone = self._undo(replace(change, path=path))
                # else another command has moved it meanwhile, which is compared when that one ends
                if not undone.failed or os.path.lexists(path):
                    yield undone
        for change in (*by_how["changed"], *by_how["gone"]):
            yield self._undo(change)

    def _whole(self, change: FileChange) -> str:
        """The whole protected folder, where none of it was there before."""
        assert change.now is not None
        protected_path = change.now.protected_path
        if change.now.kind == "config" or os.path.basename(protected_path).casefold() == HOOKS:  # noqa: PTH119
            return change.path  # there are harmless files beside it
        return change.path if protected_path in self._old_paths else protected_path

    def _undo(self, change: FileChange) -> UndoneChange:
        done = UndoneChange(self._relative(change.path), change.how, keys=change.keys)
        try:
            if change.now is not None and change.now.kind == "config":
                return self._undo_config(change, done)
            is_there = change.now is not None or os.path.lexists(change.path)
            item = self._take(change) if is_there else None
            done = replace(done, id="" if item is None else item.id)
            if change.before is not None:
                done = replace(done, restored=self._put_back(change.path, change.before))
                if item is not None and item.id and done.restored:
                    self._quarantine.record(replace(item, left=change.before.content))
        except OSError as error:
            return replace(done, failed=error.strerror or str(error))
        return done

    def _take(self, change: FileChange) -> QuarantinedItem:
        self._taken += 1
        why = programs_using(self._relative(change.path).split("/"))
        leave = self._taken > _MOST_MOVED
        return self._quarantine.take(self._base, change.path, change.how, why, change.keys, leave=leave)

    def _put_back(self, path: str, before: ProtectedFile) -> bool:
        """False if its content is not known, or its folder is gone."""
        within = os.path.dirname(before.protected_path) if path != before.protected_path else os.path.dirname(path)  # noqa: PTH120
        if not _is_folder(self._base, within):
            return False
        data = self._contents.get(before.content) if before.kind in ("file", "config") else None
        is_link = before.kind == "link" and before.content != ""
        if data is None and not is_link:
            return False
        if _is_folder(self._base, path):
            self._quarantine.take(self._base, path, "new", "a folder in place of a file")
        if data is None:
            link_to(self._base, path, before.content, make=True)
        else:
            write_at(self._base, path, data, before.stamp.mode, make=True)
        return True

    def _undo_config(self, change: FileChange, done: UndoneChange) -> UndoneChange:
        """Dangerous keys become what they were; remotes and branches stay as they are now. If there is no space for
        that, which a command can bring about, the configuration is taken as a whole, and written anew if possible."""
        path, old = change.path, change.before
        data = read_at(self._base, path, LARGEST_KEPT_BYTES)
        before = self._contents.get(old.content) if old is not None and old.kind == "config" else None
        wanted = with_dangerous_keys_restored(path, before, data, self._base)
        self._taken += 1
        item: QuarantinedItem | None = None
        restored = False
        if data is not None and wanted is not None and self._taken <= _MOST_MOVED:
            with contextlib.suppress(OSError):
                why = programs_using(self._relative(path).split("/"))
                item = self._quarantine.copy(self._base, path, data, why, change.keys)
                write_at(self._base, path, wanted, change.now.stamp.mode if change.now else _CONFIG_MODE)
                restored = True
        if item is None or not restored:
            item = self._take(change)
            if wanted is not None:
                with contextlib.suppress(OSError):
                    write_at(self._base, path, wanted, _CONFIG_MODE)
                    restored = True
        if restored and wanted is not None and item.id:
            self._quarantine.record(replace(item, left=digest_of(wanted)))
        return replace(done, id=item.id, restored=restored)

    def _relative(self, path: str) -> str:
        return path[len(self._base.rstrip("/")) + 1 :]


def _is_folder(base: str, path: str) -> bool:
    if path == base:
        return True
    try:
        with parent_of(base, path) as (parent, name):
            return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False
