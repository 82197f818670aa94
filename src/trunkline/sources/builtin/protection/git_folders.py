"""The folders in which git keeps repositories, and the configuration files that it reads of one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trunkline.sources.builtin.protection.git_config import BadGitConfig, Entry, parse

LARGEST_BYTES: Final = 1 << 20
_MOST_INCLUDED: Final = 64
_DEEPEST_MODULE: Final = 8
_GITDIR: Final = b"gitdir: "


def read_small(path: str) -> bytes | None:
    """A plain file, whatever leads to it; None where there is none, or one too large to be believed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = os.read(fd, LARGEST_BYTES + 1)
        return data if len(data) <= LARGEST_BYTES else None
    except OSError:
        return None
    finally:
        os.close(fd)


def led_to(data: bytes, folder: str) -> str | None:
    """Where a file `.git` in this folder says that the repository is."""
    if not data.startswith(_GITDIR):
        return None
    path = os.fsdecode(data[len(_GITDIR) :].rstrip(b"\r\n"))
    return os.path.join(folder, path) if path and "\0" not in path else None  # noqa: PTH118


def is_repository(path: str) -> bool:
    """Whether git takes this folder for one."""
    if not os.path.lexists(f"{path}/HEAD"):
        return False
    return os.path.lexists(f"{path}/commondir") or (
        os.path.isdir(f"{path}/objects") and os.path.isdir(f"{path}/refs")  # noqa: PTH112
    )


def repository_at(folder: str) -> str | None:
    """The repository that git finds in this very folder."""
    dot = f"{folder}/.git"
    if os.path.isdir(dot):  # noqa: PTH112
        return dot
    data = read_small(dot)
    if data is not None:
        return led_to(data, folder)
    return folder if is_repository(folder) else None


def repository_above(folder: str) -> str | None:
    """The repository that git finds from this folder, upwards."""
    start = Path(os.path.realpath(folder))
    return next(filter(None, (repository_at(str(at)) for at in (start, *start.parents))), None)


def configurations_of(repository: str) -> Iterator[str]:
    """The files that may be read as its configuration, with those of its modules and other working trees."""
    yield f"{repository}/config"
    yield f"{repository}/config.worktree"
    common = read_small(f"{repository}/commondir")
    if common is not None:
        shared = os.path.join(repository, os.fsdecode(common.rstrip(b"\r\n")).replace("\0", ""))  # noqa: PTH118
        yield f"{shared}/config"
        yield from _of_modules(shared, 0)
    yield from _of_modules(repository, 0)


def _of_modules(repository: str, depth: int) -> Iterator[str]:
    """A module's name may have slashes in it."""
    if depth > _DEEPEST_MODULE:
        return
    for group in ("modules", "worktrees") if depth == 0 or is_repository(repository) else ("",):
        for path in _folders_in(f"{repository}/{group}" if group else repository):
            if os.path.lexists(f"{path}/HEAD"):
                yield f"{path}/config"
                yield f"{path}/config.worktree"
            yield from _of_modules(path, depth + 1)


def _folders_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


class HiddenKeys(Exception):
    """What a repository's configuration says cannot all be known, though git would believe it."""


def entries_of(path: str) -> Iterator[Entry]:
    """What a configuration file says, and those that it includes, under whichever condition. Raises HiddenKeys."""
    waiting, seen = [path], set[str]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if len(seen) > _MOST_INCLUDED:
            raise HiddenKeys(f"`{path}` includes more than {_MOST_INCLUDED} files")
        data = read_small(at)
        if data is None and _is_large(at):
            raise HiddenKeys(f"`{at}` is larger than {LARGEST_BYTES >> 20} MiB")
        try:
            entries = [] if data is None else parse(data)
        except BadGitConfig:
            if data is not None and b"\0" in data:
                raise HiddenKeys(f"`{at}` holds a NUL byte") from None
            continue  # git refuses to go on then
        yield from entries
        for entry in entries:
            if entry.section in ("include", "includeif") and entry.key == "path" and entry.value:
                included = os.path.expanduser(entry.value)  # noqa: PTH111
                waiting.append(os.path.join(os.path.dirname(at), included))  # noqa: PTH118, PTH120


def _is_large(path: str) -> bool:
    try:
        return os.stat(path).st_size > LARGEST_BYTES  # noqa: PTH116
    except (OSError, ValueError):
        return False
