"""Finds git repositories and the configuration files that git reads for them, and overrides what these make git run."""

from __future__ import annotations

import contextlib
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
    """The content of a regular file; None for anything else, and for one that is too large."""
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
    """The repository that a file `.git` in this folder points to."""
    if not data.startswith(_GITDIR):
        return None
    path = os.fsdecode(data[len(_GITDIR) :].rstrip(b"\r\n"))
    return os.path.join(folder, path) if path and "\0" not in path else None  # noqa: PTH118


def is_repository(path: str) -> bool:
    """Whether git takes this folder for a repository."""
    if not os.path.lexists(f"{path}/HEAD") or os.path.lexists(f"{path}/commondir"):
        return os.path.lexists(f"{path}/HEAD")
    return os.path.isdir(f"{path}/objects") and os.path.isdir(f"{path}/refs")  # noqa: PTH112


def repository_at(folder: str) -> str | None:
    """The repository that git finds in this folder, not above it."""
    dot = f"{folder}/.git"
    if os.path.isdir(dot):  # noqa: PTH112
        return dot
    data = read_git_file(dot)
    if data is not None:
        return gitdir_target(data, folder)
    return folder if is_repository(folder) else None


def repository_above(folder: str) -> str | None:
    """The repository that git finds from this folder upwards."""
    start = Path(os.path.realpath(folder))
    return next(filter(None, (repository_at(str(at)) for at in (start, *start.parents))), None)


def configurations_of(repository: str) -> Iterator[str]:
    """The configuration files of a repository, of its submodules and of its other working trees."""
    yield f"{repository}/config"
    yield f"{repository}/config.worktree"
    common = read_git_file(f"{repository}/commondir")
    if common is not None:
        shared = os.path.join(repository, os.fsdecode(common.rstrip(b"\r\n")).replace("\0", ""))  # noqa: PTH118
        yield f"{shared}/config"
        yield from _of_modules(shared, 0)
    yield from _of_modules(repository, 0)


def _of_modules(repository: str, depth: int) -> Iterator[str]:
    """The name of a submodule may have slashes in it."""
    if depth > _DEEPEST_MODULE:
        return
    for group in ("modules", "worktrees") if depth == 0 or is_repository(repository) else ("",):
        folders: list[str] = []
        with contextlib.suppress(OSError), os.scandir(f"{repository}/{group}" if group else repository) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for path in folders:
            if os.path.lexists(f"{path}/HEAD"):
                yield f"{path}/config"
                yield f"{path}/config.worktree"
            yield from _of_modules(path, depth + 1)


class IncompleteGitConfig(Exception):
    """A repository's configuration cannot be read completely, although git would use it."""


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
        with contextlib.suppress(OSError, ValueError):
            if data is None and os.stat(at).st_size > LARGEST_GIT_FILE_BYTES:  # noqa: PTH116
                raise IncompleteGitConfig(f"`{at}` is larger than {LARGEST_GIT_FILE_BYTES >> 20} MiB")
        try:
            entries = [] if data is None else parse_git_config(data)
        except BadGitConfig:
            if data is not None and b"\0" in data:
                raise IncompleteGitConfig(f"`{at}` holds a NUL byte") from None
            continue  # git refuses to run then
        yield from entries
        for entry in entries:
            if entry.section in ("include", "includeif") and entry.key == "path" and entry.value:
                included = os.path.expanduser(entry.value)  # noqa: PTH111
                waiting.append(os.path.join(os.path.dirname(at), included))  # noqa: PTH118, PTH120


# -- overrides in git's environment ------------------------------------------------------------------------------------
#
# Variables keep git from running programs that only a repository names: they win over every file. What the user has set
# for all repositories is still respected.

COUNT: Final = "GIT_CONFIG_COUNT"
_ALWAYS: Final = {"core.fsmonitor": "false", "core.hookspath": "/dev/null", "protocol.ext.allow": "never"}
_MOST: Final = 1000
_ADDS_UP: Final = ".helper"
"""The values of such a key add up, and an empty one removes those before it."""


def git_overrides(repositories: Iterable[str]) -> dict[str, str]:
    """The keys of these repositories that make git run programs, with harmless values. Reads files. Raises
    IncompleteGitConfig where there may be more."""
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
    """The variables that override these settings, except where the user has `own` ones, to be added to `environ`."""
    pairs: list[tuple[str, str]] = []
    for name, neutral in settings.items():
        values = own.get(name, ())
        if name.endswith(_ADDS_UP):
            pairs += [(name, value) for value in ("", *values)]
        else:
            pairs.append((name, values[-1] if values else neutral))
    count = environ.get(COUNT, "")  # the user's environment may have some already
    is_valid = count.isascii() and count.isdigit() and len(count) <= len(str(_MOST))
    start = int(count) if is_valid else 0
    variables = {COUNT: str(start + len(pairs))}
    for number, (name, value) in enumerate(pairs, start):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def parse_git_list(text: str) -> dict[str, list[str]]:
    """The output of `git config --list -z` as values by key."""
    found: dict[str, list[str]] = {}
    for line in filter(None, text.split("\0")):
        name, _, value = line.partition("\n")
        found.setdefault(name, []).append(value)
    return found
