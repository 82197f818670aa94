"""Reads configuration files: bytes without blocking for ever, text, and the tree, by the parser for the file's name.

It also finds what other users can write: whoever can write a configuration decides what is run as its owner.
"""

from __future__ import annotations

import grp
import os
import pwd
import select
import shlex
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.config.problems import Report, span_at
from trunkline.config.tree import MAX_BYTES, Node
from trunkline.core.errors import CONFIG_SYNTAX, CONFIG_TOO_LARGE, CONFIG_UNREADABLE, OTHERS_CAN_WRITE

_ROOT: Final = 0


class WritablePath(NamedTuple):
    """A path that others can write, with a message about it and a hint how to change that."""

    path: Path
    message: str
    hint: str


def writable_by_others(path: Path, *, beyond: Path | None = None) -> Iterator[WritablePath]:
    """The file or folder at `path`, if it exists, and folders above it in which others could replace it.

    Folders that are also above `beyond` are left out: they have been checked.
    """
    path = path.absolute()
    known: set[Path] = set() if beyond is None else {beyond, *_above(beyond)}
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = stat.S_IFREG
    # what is no file of its own, such as a pipe below `/dev/fd`, cannot be replaced
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        yield from _check_writable(path, whole=True)
        for folder in _above(path):
            if folder not in known:
                yield from _check_writable(folder, whole=False)


def _above(path: Path) -> Iterable[Path]:
    """The folders above a path, as it is written and where its links lead."""
    real = Path(os.path.realpath(path))
    return dict.fromkeys((*path.parents, *real.parents))


def _check_writable(path: Path, *, whole: bool) -> Iterator[WritablePath]:
    """`whole` is for the path itself; in a folder above it, the sticky bit keeps others from replacing its files."""
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
        remedy = f"remove that permission: `chmod {group}{others}-w {shlex.quote(str(path))}`"
        yield WritablePath(path, f"{who} can write to the {kind} {path}", remedy)


def _has_others(gid: int) -> bool:
    """Whether a group has other members. Many systems give each user a group of their own, and files to it."""
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


# -- reading: no pipe, device or socket blocks a command for ever ----------------------------------------------------

UNWRITTEN_S: Final = 5.0
"""How long a pipe may be without a writer. `-c <(command)` has one from the start."""
SILENT_S: Final = 60.0
"""How long the writer may be silent: such a command may be asking its user for a password."""
_PIECE_BYTES: Final = 1024 * 1024


def read_bytes(path: Path, limit_bytes: int) -> bytes:
    """Everything in the file, cut after one byte more than the limit. Raises OSError."""
    # without O_NONBLOCK, opening a named pipe would wait for somebody to write into it
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return _read_to_end(descriptor, limit_bytes)
    finally:
        os.close(descriptor)


def _read_to_end(descriptor: int, limit_bytes: int) -> bytes:
    is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    data = bytearray()
    heard_at = time.monotonic()
    while len(data) <= limit_bytes:
        try:
            piece = os.read(descriptor, min(limit_bytes + 1 - len(data), _PIECE_BYTES))
        except BlockingIOError:
            piece = None  # there is a writer, which is silent; without a writer nothing is read
        if piece:
            data += piece
            heard_at = time.monotonic()
            continue
        if piece is not None and (data or not is_pipe):
            break
        patience_s = SILENT_S if piece is None else UNWRITTEN_S
        left_s = heard_at + patience_s - time.monotonic()
        if left_s <= 0:
            what = "sends nothing" if piece is None else "is a pipe that nobody writes to"
            raise OSError(f"it {what} (waited {patience_s:g} seconds)")
        events = ready.poll(left_s * 1000)
        if events and not events[0][1] & select.POLLIN:
            break  # its writer is gone without having written
    return bytes(data)


# the programs that write these files accept comments and trailing commas
_RELAXED: Final = frozenset({"mcp.json", "settings.json", "opencode.json"})
# Claude Code keeps its state in the same file as its servers, and that can be many megabytes
_MOSTLY_STATE: Final = {".claude.json": ("mcpServers",)}
_MAX_BYTES_WITH_STATE: Final = 64 * MAX_BYTES


def read_text(path: Path, report: Report, *, beyond: Path | None = None) -> str:
    """The text of a file. Raises InvalidValue, with the reason reported.

    Warns where others can write the file or a folder above it, except folders above `beyond`.
    """
    limit_bytes = _MAX_BYTES_WITH_STATE if path.name in _MOSTLY_STATE else MAX_BYTES
    try:
        data = read_bytes(path, limit_bytes)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise report.error(CONFIG_UNREADABLE, None, f"The file cannot be read: {reason}") from None
    if len(data) > limit_bytes:
        raise report.error(CONFIG_TOO_LARGE, None, f"The file is larger than {limit_bytes:,} bytes")
    for found in writable_by_others(path, beyond=beyond):
        report.warn(OTHERS_CAN_WRITE, None, found.message, found.hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        span = span_at(before, len(before))
        raise report.error(CONFIG_SYNTAX, span, "The file is not UTF-8 text", "save it as UTF-8") from None


def parse_text(text: str, path: Path, report: Report) -> Node:
    """The tree of a file's text, parsed by what the file's name says. Raises InvalidValue, with the reason reported."""
    suffix = path.suffix.lower()
    if suffix in (".json", ".jsonc"):
        from trunkline.config.json_parser import parse_json

        relaxed = suffix == ".jsonc" or path.name in _RELAXED
        return parse_json(text, report, relaxed=relaxed, only=_MOSTLY_STATE.get(path.name))
    if suffix == ".toml":
        from trunkline.config.toml_parser import parse_toml

        return parse_toml(text, report)
    from trunkline.config.yaml_parser import parse_yaml

    return parse_yaml(text, report)
