"""What is new, changed or gone at protected places since a command began, and counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from trunkline.config.sandbox import SCRATCH
from trunkline.sources.builtin.protection.git_config import BadGitConfig, Entry, parse, written
from trunkline.sources.builtin.protection.git_keys import counts, repository_named
from trunkline.sources.builtin.protection.kept import Record
from trunkline.sources.builtin.protection.places import GIT
from trunkline.sources.builtin.protection.sessions import Before
from trunkline.sources.builtin.protection.tree import YOUNG_NS, is_passed_over

How = Literal["new", "changed", "gone"]
_EXECUTABLE: Final = 0o111
_WORKTREE: Final = "core.worktree"


@dataclass(frozen=True, slots=True)
class Difference:
    """`now` is None for what is gone, `before` for what is new. `keys` are those of a git configuration that count."""

    path: str
    how: How
    before: Record | None
    now: Record | None
    keys: tuple[str, ...] = ()


def differences(
    before: Before,
    now: Mapping[str, Record],
    read: Callable[[str], bytes | None],
    base: str,
    was_missed: Callable[[str, Record], bool],
) -> Iterator[Difference]:
    """`read` gives a content that was kept. `was_missed` says whether something may have been there before, unseen.
    Only below `base`."""
    for path, record in now.items():
        known = before.records.get(path)
        if was_missed(path, record) if known is None else _is_same(known, record, before.taken_ns):
            continue
        keys = _keys(path, known, record, read, base) if record.kind == "config" else ()
        if keys or record.kind != "config":
            yield Difference(path, "new" if known is None else "changed", known, record, keys)
    inside = f"{base.rstrip('/')}/"
    for path, known in before.records.items():
        if path in now or not path.startswith(inside) or _is_there(path, known):
            continue
        if known.kind != "config" or _counting(path, read(known.content), base):
            yield Difference(path, "gone", known, None)


def _is_same(before: Record, now: Record, taken_ns: int) -> bool:
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


def _is_there(path: str, known: Record) -> bool:
    """What a look that came to no end has not come to."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_ino == known.stamp.inode and status.st_ctime_ns == known.stamp.changed_ns


# -- configurations of git ---------------------------------------------------------------------------------------------


def _keys(
    path: str, before: Record | None, now: Record, read: Callable[[str], bytes | None], base: str
) -> tuple[str, ...]:
    """The keys by which the two differ, as far as they count; a text that git would not take differs in all."""
    old = _counting(path, read(before.content), base) if before is not None and before.kind == "config" else []
    new = _counting(path, read(now.content), base)
    if old == new:
        return ()
    differing = {(entry.name, entry.value) for entry in old} ^ {(entry.name, entry.value) for entry in new}
    return tuple(dict.fromkeys(name for name, _ in sorted(differing, key=str))) or ("the order of keys",)


def _counting(path: str, data: bytes | None, base: str) -> list[Entry]:
    if data is None:
        return [Entry("", None, "the whole file", None)]
    try:
        entries = parse(data)
    except BadGitConfig:
        return [Entry("", None, "the whole file", data.decode("utf-8", "replace"))]
    return [entry for entry in entries if _counts(entry, path, base)]


def _counts(entry: Entry, path: str, base: str) -> bool:
    return (counts(entry) and not _stays_below(entry, path, base)) or _is_out_of_sight(entry, path, base)


def _is_out_of_sight(entry: Entry, path: str, base: str) -> bool:
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
        if is_passed_over([*inside, "" if name == GIT else name]) or any(part.startswith(SCRATCH) for part in above):
            return True
    return False


def _stays_below(entry: Entry, path: str, base: str) -> bool:
    """Whether it names a working tree below the folder, as configurations of submodules do."""
    if entry.name != _WORKTREE or not entry.value or "\0" in entry.value:
        return False
    tree = os.path.realpath(os.path.join(os.path.dirname(path), entry.value))  # noqa: PTH118, PTH120
    return f"{tree}/".startswith(f"{base.rstrip('/')}/")


def without_programs(path: str, before: bytes | None, now: bytes | None, base: str) -> bytes | None:
    """The text now, with the keys that count as they were before; None where nothing can be made of it."""
    if now is None:
        return before
    try:
        entries, old = parse(now), [] if before is None else parse(before)
    except BadGitConfig:
        return before
    harmless = [entry for entry in entries if not _counts(entry, path, base)]
    own = [entry for entry in old if _counts(entry, path, base)]
    if before is not None and harmless == [entry for entry in old if entry not in own]:
        return before
    return written([*own, *harmless])
