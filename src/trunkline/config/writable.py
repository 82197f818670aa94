"""Files and folders that other users can write: whoever can write a configuration decides what is run as its owner."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = 0


class Writable(NamedTuple):
    """Something that others can write: what to say of it, and what mends it."""

    path: Path
    message: str
    hint: str


def writable_by_others(path: Path, *, beyond: Path | None = None) -> Iterator[Writable]:
    """The file or folder at `path`, if it is there, and those above it in which others could put another in its place.

    Folders that are also above `beyond` are left out: they have been looked at.
    """
    path = path.absolute()
    known: set[Path] = set() if beyond is None else {beyond, *_above(beyond)}
    mode = _mode(path)
    # what is no file of its own, such as a pipe to `/dev/fd`, is not replaced by anybody
    if mode is None or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        yield from _looked_at(path, whole=True)
        for folder in _above(path):
            if folder not in known:
                yield from _looked_at(folder, whole=False)


def _above(path: Path) -> Iterable[Path]:
    """The folders above a path, as it is written and where its links lead."""
    real = Path(os.path.realpath(path))
    return dict.fromkeys((*path.parents, *real.parents))


def _looked_at(path: Path, *, whole: bool) -> Iterator[Writable]:
    """`whole` for what is used itself. In a folder above with the sticky bit, nobody can replace what is another's."""
    try:
        status = path.stat()
        if os.statvfs(path).f_flag & os.ST_RDONLY:  # nobody can write there, whatever its mode says
            return
    except OSError:
        return
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and not whole:
        return
    others = "o" if status.st_mode & stat.S_IWOTH else ""
    group = "g" if status.st_mode & stat.S_IWGRP and _has_others(status.st_gid) else ""
    if others or group:
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
        who = "Every user" if others else f"The group {_group_name(status.st_gid)}"
        remedy = f"take that right away: `chmod {group}{others}-w {shlex.quote(str(path))}`"
        yield Writable(path, f"{who} can write the {kind} {path}", remedy)


def _has_others(gid: int) -> bool:
    """Whether a group is more than one user's own. Many systems give each user such a group, and files to it."""
    if gid == _ROOT:
        return False
    try:
        user = pwd.getpwuid(os.geteuid())
        return gid != user.pw_gid or bool(set(grp.getgrgid(gid).gr_mem) - {user.pw_name})
    except KeyError:  # a user or a group without a name, as in containers
        return gid != os.getegid()


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError:
        return None
