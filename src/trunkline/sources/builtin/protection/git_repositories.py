"""The folders in which git keeps repositories, and the configuration files that it reads of one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from trunkline.sources.builtin.protection.git_config import (
    BadGitConfig,
    GitConfigEntry,
    parse_git_config,
    safe_override,
)

LARGEST_GIT_FILE_BYTES: Final = 1 << 20
_MOST_INCLUDED: Final = 64
_DEEPEST_MODULE: Final = 8
_GITDIR: Final = b"gitdir: "


def read_git_file(path: str) -> bytes | None:
    """A plain file, whatever leads to it; None where there is none, or one too large to be believed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = os.read(fd, LARGEST_GIT_FILE_BYTES + 1)
        return data if len(data) <= LARGEST_GIT_FILE_BYTES else None
    except OSError:
        return None
    finally:
        os.close(fd)


def gitdir_target(data: bytes, folder: str) -> str | None:
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
    data = read_git_file(dot)
    if data is not None:
        return gitdir_target(data, folder)
    return folder if is_repository(folder) else None


def repository_above(folder: str) -> str | None:
    """The repository that git finds from this folder, upwards."""
    start = Path(os.path.realpath(folder))
    return next(filter(None, (repository_at(str(at)) for at in (start, *start.parents))), None)


def configurations_of(repository: str) -> Iterator[str]:
    """The files that may be read as its configuration, with those of its modules and other working trees."""
    yield f"{repository}/config"
    yield f"{repository}/config.worktree"
    common = read_git_file(f"{repository}/commondir")
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


class IncompleteGitConfig(Exception):
    """What a repository's configuration says cannot all be known, though git would believe it."""


def entries_of(path: str) -> Iterator[GitConfigEntry]:
    """The entries of a configuration file and of all that it may include. Raises IncompleteGitConfig."""
    waiting, seen = [path], set[str]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if len(seen) > _MOST_INCLUDED:
            raise IncompleteGitConfig(f"`{path}` includes more than {_MOST_INCLUDED} files")
        data = read_git_file(at)
        if data is None and _is_large(at):
            raise IncompleteGitConfig(f"`{at}` is larger than {LARGEST_GIT_FILE_BYTES >> 20} MiB")
        try:
            entries = [] if data is None else parse_git_config(data)
        except BadGitConfig:
            if data is not None and b"\0" in data:
                raise IncompleteGitConfig(f"`{at}` holds a NUL byte") from None
            continue  # git refuses to go on then
        yield from entries
        for entry in entries:
            if entry.section in ("include", "includeif") and entry.key == "path" and entry.value:
                included = os.path.expanduser(entry.value)  # noqa: PTH111
                waiting.append(os.path.join(os.path.dirname(at), included))  # noqa: PTH118, PTH120


def _is_large(path: str) -> bool:
    try:
        return os.stat(path).st_size > LARGEST_GIT_FILE_BYTES  # noqa: PTH116
    except (OSError, ValueError):
        return False


# What has git leave alone the programs that a repository's own configuration and hooks name.
#
# Git takes configuration from its environment, too, and that wins over every file. What the user has set for all
# repositories holds as ever.

COUNT: Final = "GIT_CONFIG_COUNT"
_ALWAYS: Final = {"core.fsmonitor": "false", "core.hookspath": "/dev/null", "protocol.ext.allow": "never"}
_MOST: Final = 1000
_ADDS_UP: Final = ".helper"
"""Values of such a key add up, and an empty one takes back those before it."""


def git_overrides(repositories: Iterable[str]) -> dict[str, str]:
    """The keys of these repositories that have git run programs, with what takes their place. It reads files. Raises
    IncompleteGitConfig where there may be others."""
    found = dict(_ALWAYS)
    for repository in repositories:
        for path in configurations_of(repository):
            for entry in entries_of(path):
                found |= safe_override(entry)
                if len(found) > _MOST:
                    raise IncompleteGitConfig(f"`{path}` and others name more than {_MOST:,} programs")
    return found


def git_environment(
    settings: Mapping[str, str], own: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables that say so. `own` is what the user has set, which wins, and `environ` what they go into."""
    pairs: list[tuple[str, str]] = []
    for name, neutral in settings.items():
        values = own.get(name, ())
        if name.endswith(_ADDS_UP):
            pairs += [(name, value) for value in ("", *values)]
        else:
            pairs.append((name, values[-1] if values else neutral))
    start = _count(environ)
    variables = {COUNT: str(start + len(pairs))}
    for number, (name, value) in enumerate(pairs, start):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def parse_git_list(text: str) -> dict[str, list[str]]:
    """What `git config --list -z` prints: values by the names of keys."""
    found: dict[str, list[str]] = {}
    for line in filter(None, text.split("\0")):
        name, _, value = line.partition("\n")
        found.setdefault(name, []).append(value)
    return found


def _count(environ: Mapping[str, str]) -> int:
    """How many settings the user's own environment has already."""
    written = environ.get(COUNT, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) <= len(str(_MOST)) else 0
