"""Takes back what a command has done at protected places: what is new there goes into quarantine, what was there before
is put back."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from trunkline.config.sandbox import SCRATCH_PREFIX
from trunkline.sources.builtin.protection.contents import (
    LARGEST_KEPT_BYTES,
    ContentStore,
    PlaceRecord,
    digest_of,
    link_to,
    parent_of,
    read_at,
    write_at,
)
from trunkline.sources.builtin.protection.git_config import (
    BadGitConfig,
    GitConfigEntry,
    format_git_config,
    is_dangerous,
    parse_git_config,
    repository_named,
)
from trunkline.sources.builtin.protection.places import GIT, HOOKS, believers
from trunkline.sources.builtin.protection.quarantine import Quarantine, QuarantinedItem
from trunkline.sources.builtin.protection.scanner import YOUNG_NS, is_passed_over
from trunkline.sources.builtin.protection.snapshots import PlaceSnapshot

# What is new, changed or gone at protected places since a command began, and counts.

How = Literal["new", "changed", "gone"]
_EXECUTABLE: Final = 0o111
_WORKTREE: Final = "core.worktree"


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """`now` is None for what is gone, `before` for what is new. `keys` are those of a git configuration that count."""

    path: str
    how: How
    before: PlaceRecord | None
    now: PlaceRecord | None
    keys: tuple[str, ...] = ()


def compare(
    before: PlaceSnapshot,
    now: Mapping[str, PlaceRecord],
    read: Callable[[str], bytes | None],
    base: str,
    was_missed: Callable[[str, PlaceRecord], bool],
) -> Iterator[PlaceChange]:
    """`read` gives a content that was kept. `was_missed` says whether something may have been there before, unseen.
    Only below `base`."""
    for path, record in now.items():
        known = before.records.get(path)
        if was_missed(path, record) if known is None else _is_same(known, record, before.taken_ns):
            continue
        keys = _keys(path, known, record, read, base) if record.kind == "config" else ()
        if keys or record.kind != "config":
            yield PlaceChange(path, "new" if known is None else "changed", known, record, keys)
    inside = f"{base.rstrip('/')}/"
    for path, known in before.records.items():
        if path in now or not path.startswith(inside) or _is_there(path, known):
            continue
        if known.kind != "config" or _counting(path, read(known.content), base):
            yield PlaceChange(path, "gone", known, None)


def _is_same(before: PlaceRecord, now: PlaceRecord, taken_ns: int) -> bool:
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


def _is_there(path: str, known: PlaceRecord) -> bool:
    """What a look that came to no end has not come to."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_ino == known.stamp.inode and status.st_ctime_ns == known.stamp.changed_ns


# -- configurations of git ---------------------------------------------------------------------------------------------


def _keys(
    path: str, before: PlaceRecord | None, now: PlaceRecord, read: Callable[[str], bytes | None], base: str
) -> tuple[str, ...]:
    """The keys by which the two differ, as far as they count; a text that git would not take differs in all."""
    old = _counting(path, read(before.content), base) if before is not None and before.kind == "config" else []
    new = _counting(path, read(now.content), base)
    if old == new:
        return ()
    differing = {(entry.name, entry.value) for entry in old} ^ {(entry.name, entry.value) for entry in new}
    return tuple(dict.fromkeys(name for name, _ in sorted(differing, key=str))) or ("the order of keys",)


def _counting(path: str, data: bytes | None, base: str) -> list[GitConfigEntry]:
    if data is None:
        return [GitConfigEntry("", None, "the whole file", None)]
    try:
        entries = parse_git_config(data)
    except BadGitConfig:
        return [GitConfigEntry("", None, "the whole file", data.decode("utf-8", "replace"))]
    return [entry for entry in entries if _counts(entry, path, base)]


def _counts(entry: GitConfigEntry, path: str, base: str) -> bool:
    return (is_dangerous(entry) and not _stays_below(entry, path, base)) or _is_out_of_sight(entry, path, base)


def _is_out_of_sight(entry: GitConfigEntry, path: str, base: str) -> bool:
    """Whether it names a repository that a command can write to and whose hooks nobody compares."""
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


def _stays_below(entry: GitConfigEntry, path: str, base: str) -> bool:
    """Whether it names a working tree below the folder, as configurations of submodules do."""
    if entry.name != _WORKTREE or not entry.value or "\0" in entry.value:
        return False
    tree = os.path.realpath(os.path.join(os.path.dirname(path), entry.value))  # noqa: PTH118, PTH120
    return f"{tree}/".startswith(f"{base.rstrip('/')}/")


def with_dangerous_keys_restored(path: str, before: bytes | None, now: bytes | None, base: str) -> bytes | None:
    """The text now, with the keys that count as they were before; None where nothing can be made of it."""
    if now is None:
        return before
    try:
        entries, old = parse_git_config(now), [] if before is None else parse_git_config(before)
    except BadGitConfig:
        return before
    harmless = [entry for entry in entries if not _counts(entry, path, base)]
    own = [entry for entry in old if _counts(entry, path, base)]
    if before is not None and harmless == [entry for entry in old if entry not in own]:
        return before
    return format_git_config([*own, *harmless])


_CONFIG_MODE: Final = 0o644
_MOST_MOVED: Final = 50
"""By one command: who makes thousands of such files has not all that was taken before go to make room for them."""


@dataclass(frozen=True, slots=True)
class UndoneChange:
    """What was done about one difference. `id` is that of what was taken; empty where nothing was. `failed` says why
    something could not be undone. `restored` says whether what was there before is there again."""

    path: str
    how: str
    id: str = ""
    keys: tuple[str, ...] = ()
    restored: bool = False
    failed: str = ""


class ChangeUndoer:
    """For one base."""

    def __init__(self, base: str, before: PlaceSnapshot, kept: ContentStore, quarantine: Quarantine) -> None:
        self._base = base
        self._old_places = {record.place for record in before.records.values()}
        self._kept = kept
        self._quarantine = quarantine
        self._taken = 0

    def all(self, found: Iterable[PlaceChange]) -> Iterator[UndoneChange]:
        """What is new first: it may be in the way of what was there before."""
        by_how: Mapping[str, list[PlaceChange]] = {"new": [], "changed": [], "gone": []}
        for difference in found:
            by_how[difference.how].append(difference)
        done: set[str] = set()
        for difference in by_how["new"]:
            path = self._whole(difference)
            if path not in done:
                done.add(path)
                undone = self._undone(replace(difference, path=path))
                # else another command has moved it meanwhile, which is compared when it ends
                if not undone.failed or os.path.lexists(path):
                    yield undone
        for difference in (*by_how["changed"], *by_how["gone"]):
            yield self._undone(difference)

    def _whole(self, difference: PlaceChange) -> str:
        """All of a place where none of it was there before."""
        assert difference.now is not None
        place = difference.now.place
        if difference.now.kind == "config" or os.path.basename(place).casefold() == HOOKS:  # noqa: PTH119
            return difference.path  # beside it lies what nobody minds
        return difference.path if place in self._old_places else place

    def _undone(self, difference: PlaceChange) -> UndoneChange:
        done = UndoneChange(self._shown(difference.path), difference.how, keys=difference.keys)
        try:
            if difference.now is not None and difference.now.kind == "config":
                return self._config(difference, done)
            is_there = difference.now is not None or os.path.lexists(difference.path)
            taken = self._take(difference) if is_there else None
            done = replace(done, id="" if taken is None else taken.id)
            if difference.before is not None:
                done = replace(done, restored=self._put_back(difference.path, difference.before))
                if taken is not None and taken.id and done.restored:
                    self._quarantine.record(replace(taken, left=difference.before.content))
        except OSError as error:
            return replace(done, failed=error.strerror or str(error))
        return done

    def _take(self, difference: PlaceChange) -> QuarantinedItem:
        self._taken += 1
        why = believers(self._shown(difference.path).split("/"))
        return self._quarantine.take(
            self._base, difference.path, difference.how, why, difference.keys, leave=self._taken > _MOST_MOVED
        )

    def _put_back(self, path: str, before: PlaceRecord) -> bool:
        """False where there is nothing to be put back, or no folder any more that it was in."""
        within = os.path.dirname(before.place) if path != before.place else os.path.dirname(path)  # noqa: PTH120
        if not _is_folder(self._base, within):
            return False
        if before.kind == "link" and before.content:
            self._clear(path)
            link_to(self._base, path, before.content, make=True)
            return True
        data = self._kept.get(before.content) if before.kind in ("file", "config") else None
        if data is None:
            return False
        self._clear(path)
        write_at(self._base, path, data, before.stamp.mode, make=True)
        return True

    def _clear(self, path: str) -> None:
        """A folder in place of a file is in the way."""
        if _is_folder(self._base, path):
            self._quarantine.take(self._base, path, "new", "a folder in place of a file")

    def _config(self, difference: PlaceChange, done: UndoneChange) -> UndoneChange:
        """Only the keys that count are as before; remotes and branches stay as they are now."""
        path, old = difference.path, difference.before
        data = read_at(self._base, path, LARGEST_KEPT_BYTES)
        before = self._kept.get(old.content) if old is not None and old.kind == "config" else None
        instead = with_dangerous_keys_restored(path, before, data, self._base)
        self._taken += 1
        if data is None or instead is None or self._taken > _MOST_MOVED:
            return self._aside(difference, done, instead)
        why = believers(self._shown(path).split("/"))
        try:
            taken = self._quarantine.copy(self._base, path, data, why, difference.keys)
            write_at(self._base, path, instead, difference.now.stamp.mode if difference.now else _CONFIG_MODE)
        except OSError:  # there is no room, which a command can see to
            return self._aside(difference, done, instead)
        self._quarantine.record(replace(taken, left=digest_of(instead)))
        return replace(done, id=taken.id, restored=True)

    def _aside(self, difference: PlaceChange, done: UndoneChange, instead: bytes | None) -> UndoneChange:
        """The configuration goes as a whole, and what it should say comes in its place, as far as there is room."""
        taken = self._take(difference)
        restored = False
        if instead is not None:
            with contextlib.suppress(OSError):
                write_at(self._base, difference.path, instead, _CONFIG_MODE)
                restored = True
                if taken.id:
                    self._quarantine.record(replace(taken, left=digest_of(instead)))
        return replace(done, id=taken.id, restored=restored)

    def _shown(self, path: str) -> str:
        return path[len(self._base.rstrip("/")) + 1 :]


def _is_folder(base: str, path: str) -> bool:
    if path == base:
        return True
    try:
        with parent_of(base, path) as (parent, name):
            return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False
