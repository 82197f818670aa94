"""Takes back what a command has done at protected places: what is new there goes into quarantine, what was there before
is put back."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from trunkline.sources.builtin.protection.comparing import Difference, without_programs
from trunkline.sources.builtin.protection.handles import link_to, parent_of, read_at, write_at
from trunkline.sources.builtin.protection.kept import LARGEST_BYTES, Kept, Record, digest_of
from trunkline.sources.builtin.protection.places import HOOKS, believers
from trunkline.sources.builtin.protection.quarantine import Quarantine, Taken
from trunkline.sources.builtin.protection.sessions import Before

_CONFIG_MODE: Final = 0o644
_MOST_MOVED: Final = 50
"""By one command: who makes thousands of such files has not all that was taken before go to make room for them."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What was done about one difference. `id` is that of what was taken; empty where nothing was. `failed` says why
    something could not be undone. `restored` says whether what was there before is there again."""

    path: str
    how: str
    id: str = ""
    keys: tuple[str, ...] = ()
    restored: bool = False
    failed: str = ""


class Undoing:
    """For one base."""

    def __init__(self, base: str, before: Before, kept: Kept, quarantine: Quarantine) -> None:
        self._base = base
        self._old_places = {record.place for record in before.records.values()}
        self._kept = kept
        self._quarantine = quarantine
        self._taken = 0

    def all(self, found: Iterable[Difference]) -> Iterator[Undone]:
        """What is new first: it may be in the way of what was there before."""
        by_how: Mapping[str, list[Difference]] = {"new": [], "changed": [], "gone": []}
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

    def _whole(self, difference: Difference) -> str:
        """All of a place where none of it was there before."""
        assert difference.now is not None
        place = difference.now.place
        if difference.now.kind == "config" or os.path.basename(place).casefold() == HOOKS:  # noqa: PTH119
            return difference.path  # beside it lies what nobody minds
        return difference.path if place in self._old_places else place

    def _undone(self, difference: Difference) -> Undone:
        done = Undone(self._shown(difference.path), difference.how, keys=difference.keys)
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

    def _take(self, difference: Difference) -> Taken:
        self._taken += 1
        why = believers(self._shown(difference.path).split("/"))
        return self._quarantine.take(
            self._base, difference.path, difference.how, why, difference.keys, leave=self._taken > _MOST_MOVED
        )

    def _put_back(self, path: str, before: Record) -> bool:
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

    def _config(self, difference: Difference, done: Undone) -> Undone:
        """Only the keys that count are as before; remotes and branches stay as they are now."""
        path, old = difference.path, difference.before
        data = read_at(self._base, path, LARGEST_BYTES)
        before = self._kept.get(old.content) if old is not None and old.kind == "config" else None
        instead = without_programs(path, before, data, self._base)
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

    def _aside(self, difference: Difference, done: Undone, instead: bytes | None) -> Undone:
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
