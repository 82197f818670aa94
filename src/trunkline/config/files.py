"""Finds, reads and parses configuration files.

A file is named by the user, in the user's own folder, or found in a project's folder. One that was found may be
anybody's: it is used once the user has trusted it (`trunkline.config.trust`). Whoever can write a configuration decides
what is run as its owner, so reading a file also finds out who else can write it.
"""

from __future__ import annotations

import grp
import os
import pwd
import select
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from trunkline.config.problems import Report, span_at
from trunkline.config.tree import MAX_BYTES, Node
from trunkline.core.errors import CONFIG_SYNTAX, CONFIG_TOO_LARGE, CONFIG_UNREADABLE, OTHERS_CAN_WRITE

# -- finding ----------------------------------------------------------------------------------------------------------

Origin = Literal["named", "own", "found"]
"""Named by the user; in the user's own folder; or found in the working folder or above a workflow."""

NAMES: Final = ("trunkline.yaml", "trunkline.yml", "trunkline.json")
PLUGINS: Final = Path(".awf", "plugins.yaml")
_OWN_FOLDER: Final = Path(".config", "trunkline")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file to be loaded, and how it came to be chosen."""

    path: Path
    origin: Origin

    @classmethod
    def named(cls, path: Path) -> ConfigFile:
        """A file that its user has named."""
        return cls(path, "named")


def home_folder(environ: Mapping[str, str]) -> Path:
    """The home folder of the user whose environment this is."""
    return Path(environ.get("HOME") or Path.home())


def find_config(explicit: Path | None, cwd: Path, home: Path, *, workflow: Path | None = None) -> ConfigFile | None:
    """The file to load: the one asked for, else the first that exists beside the workflow, in the working folder or in
    the user's own folder."""
    if explicit is not None:
        return ConfigFile.named(explicit)
    own = home / _OWN_FOLDER
    candidates: list[ConfigFile] = []
    for folder in (*(() if workflow is None else (workflow.absolute().parent,)), cwd):
        here: Origin = "own" if _same_folder(folder, own) else "found"
        candidates += (ConfigFile(folder / name, here) for name in NAMES)
    candidates.append(ConfigFile(own / NAMES[0], "own"))
    return next((file for file in candidates if file.path.is_file()), None)


def plugins_file(config: Path) -> Path:
    """The path of AWF's file beside the configuration file at `config`."""
    return config.absolute().parent / PLUGINS


def plugins_at(folder: Path, home: Path) -> ConfigFile:
    """AWF's file in a folder. Even beside a configuration file that was named it counts as found."""
    return ConfigFile(folder / PLUGINS, "own" if _same_folder(folder, home / _OWN_FOLDER) else "found")


def find_plugins(workflow: Path, cwd: Path, home: Path) -> ConfigFile | None:
    """AWF's file for a workflow: that of the nearest folder above it, else that of the working folder."""
    files = (plugins_at(folder, home) for folder in (*workflow.absolute().parents, cwd.absolute()))
    return next((file for file in files if os.path.lexists(file.path)), None)


def discovered_files(folder: Path, home: Path) -> list[ConfigFile]:
    """The files that would be found in this folder and need to be trusted."""
    config = find_config(None, folder, home)
    files = [file for file in (config, plugins_at(folder, home)) if file is not None and os.path.lexists(file.path)]
    return [file for file in files if file.origin == "found"]


def is_discoverable(path: Path) -> bool:
    """Whether a file of this name can be found without being named."""
    return path.name in NAMES or path.absolute().parts[-2:] == PLUGINS.parts


def _same_folder(one: Path, other: Path) -> bool:
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except FileNotFoundError:  # the working folder has been removed
        return False


# -- files that other users can write --------------------------------------------------------------------------------

_ROOT: Final = 0


class InsecurePath(NamedTuple):
    """A path that others can write: a message about it, and a hint how to change that."""

    message: str
    hint: str


def writable_by_others(path: Path, *, beyond: Path | None = None) -> Iterator[InsecurePath]:
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


def _check_writable(path: Path, *, whole: bool) -> Iterator[InsecurePath]:
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
        yield InsecurePath(f"{who} can write to the {kind} {path}", remedy)


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

    Warns if others can write the file or a folder above it, except folders above `beyond`.
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
