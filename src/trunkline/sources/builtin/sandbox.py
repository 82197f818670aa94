"""The sandbox of Bash: bubblewrap, which shows a command the root folder, a system it can only read, and little else.

Visible: whatever the user may read outside of homes. Hidden: homes, `/run` with its sockets, the gateway's state and
sockets, every process but the command's own and, by default, the network. `/tmp` and the home folder are private ones
that stay until the source ends, because agents leave things there for their next command.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.config.sandbox import KERNEL_FOLDERS, SCRATCH_PREFIX, SandboxSettings
from trunkline.runtime.listener import LISTENING_SOCKETS
from trunkline.sources.builtin.protection.scanner import PACKAGES

PRIVATE_TMP: Final = "/tmp"
_HOMES: Final = ("/home", "/root")
_SOCKETS: Final = "/run"
_LEFT_OF_RUN: Final = ("/run/current-system", "/run/wrappers")  # where NixOS has its programs
_SETTINGS: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/scsi")
"""Settings of the kernel: root could write there, even without any capability."""
_RESOLVER: Final = "/etc/resolv.conf"
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try")
_STRICT: Final = ("--die-with-parent", "--cap-drop", "ALL")  # else root could undo the rest
_FILTER_FD: Final = "9"
_WITH_FILTER: Final = ("/bin/sh", "-c", f'exec "$@" {_FILTER_FD}<"$0"')
_USUAL: Final = SandboxSettings()


class Sandbox:
    """Runs commands for the folder `root`. No command may see the folders and sockets `hidden`, or write the gateway's
    `own_files`, or `protected_files` that existed before the first command.

    Making it reads the disk and makes the private folders, `close` removes them: neither on the event loop.
    """

    def __init__(
        self,
        program: str,
        root: str,
        env: Mapping[str, str],
        hidden: Sequence[str] = (),
        own_files: Sequence[str] = (),
        settings: SandboxSettings = _USUAL,
        protected_files: Sequence[str] = (),
    ) -> None:
        self._program = program
        self.root = os.path.realpath(root)
        self._env = env
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._own_files = own_files
        real = map(os.path.realpath, protected_files)
        self._protected_files = [path for path in real if PACKAGES.isdisjoint(path.split("/"))]
        """Without packages: their installation replaces these files."""
        self._settings = settings
        shown = {os.path.realpath(path): access == "rw" for path, access in settings.folders.items()}
        for path in list(shown):
            if path == "/" or any(_is_in(path, folder) for folder in KERNEL_FOLDERS):
                del shown[path]
        self._shown = {**shown, self.root: True}
        """The folders that are shown as they are outside, and whether they can be written to."""
        _remove_abandoned()
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-"))
        """Holds the private folders."""
        self._filter = os.path.join(os.path.realpath(self.scratch), "filter")  # noqa: PTH118
        try:
            self._launch = self._launcher()
            private = self._private_folders()
            self._private = {folder: name for folder, name in private.items() if self._shown_in(folder) is None}
            hidden = [os.path.realpath(folder) for folder in (*_HOMES, _SOCKETS) if os.path.isdir(folder)]  # noqa: PTH112
            hidden = [folder for folder in dict.fromkeys(hidden) if folder not in private]
            self._emptied = [folder for folder in hidden if self._shown_in(folder) is None]
            """Hidden by an empty folder that cannot be written to."""
            self._options = [*_STRICT, *_NAMESPACES, *self._mounts()]
            self._stable = self._stable_paths()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Remove what commands left in their private folders."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def wrap(
        self, argv: Sequence[str], folder: str, *, read_only: Iterable[str] = (), pinned: Iterable[str] = ()
    ) -> list[str]:
        """The command that runs `argv` inside, in `folder`. What is `read_only` there can be neither written to nor
        moved, and folders that are `pinned` cannot be moved."""
        mounts = self._command_mounts(read_only, pinned)
        return [*self._launch, *self._options, *mounts, "--chdir", folder, "--", *argv]

    def environment(self) -> dict[str, str]:
        return {**self._env, "TMPDIR": PRIVATE_TMP, **self._settings.env}

    # -- what is the same for every command -----------------------------------------------------------------------

    def _launcher(self) -> list[str]:
        """How bubblewrap is started, with the network that commands have."""
        if self._settings.network == "on":
            return [self._program]
        own_network = [self._program, "--unshare-net"]  # which has a loopback of its own
        allowed = socket_filter(internet=self._settings.network == "loopback")
        if allowed is None:
            return own_network
        Path(self._filter).write_bytes(allowed)
        return [*_WITH_FILTER, self._filter, *own_network, "--seccomp", _FILTER_FD]

    def _mounts(self) -> Iterable[str]:
        yield from ("--bind" if self.root == "/" else "--ro-bind", "/", "/")
        yield from ("--dev", "/dev", "--proc", "/proc")
        for name in _SETTINGS:
            yield from ("--ro-bind-try", name, name)
        for folder in self._emptied:
            yield from ("--tmpfs", folder)
        for folder, name in self._private.items():
            private = os.path.join(self.scratch, name)  # noqa: PTH118
            os.makedirs(private, mode=0o700, exist_ok=True)  # noqa: PTH103
            yield from ("--bind", private, folder)
        for folder in self._shown_again([*self._emptied, *self._private]):
            yield from ("--ro-bind-try", folder, folder)

    def _private_folders(self) -> dict[str, str]:
        """Folders that are replaced by a private one, with its name."""
        folders = {
            tempfile.gettempdir(): "gateway-tmp",
            PRIVATE_TMP: "tmp",
            "/var/tmp": "var-tmp",
            self._env.get("HOME", ""): "home",
        }
        return {os.path.realpath(folder): name for folder, name in folders.items() if _is_folder(folder)}

    def _shown_again(self, covered: Sequence[str]) -> list[str]:
        """Folders with programs, and the resolver's, in folders that are hidden."""
        home = os.path.realpath(self._env.get("HOME") or "/")
        folders = [*self._env.get("PATH", "").split(":"), *_LEFT_OF_RUN]
        if self._settings.network == "on":
            folders.append(os.path.dirname(os.path.realpath(_RESOLVER)))  # noqa: PTH120
        real = [os.path.realpath(folder) for folder in folders if folder.startswith("/")]
        wanted = [folder for folder in real if any(_is_in(folder, cover) for cover in covered)]
        wanted = [folder for folder in dict.fromkeys(wanted) if not _is_in(home, folder) and folder not in covered]
        return [folder for folder in wanted if not _is_closed(folder)]

    # -- what is determined anew for each command -------------------------------------------------------------------

    def _own_file_locations(self) -> list[tuple[str, str]]:
        """The real folder of each, and its name."""
        return [(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in self._own_files]  # noqa: PTH119, PTH120

    def _stable_paths(self) -> frozenset[str]:
        """Our own files, and the folders on the way to what is ours, that exist before the first command: from then
        on no command can move them. Anything later may be a link laid by another command: a mount would show where it
        leads."""
        own = self._own_file_locations()
        above = map(os.path.dirname, (*self._shown, *self._protected_files))
        ends = [*(folder for folder, _ in own), *self._hidden_paths(), *above]
        steps = {step for end in ends for step in self._way_to(end)}
        files = [*(os.path.join(folder, name) for folder, name in own), *self._protected_files]  # noqa: PTH118
        return frozenset(steps | {file for file in files if _is_plain(file)})

    def _hidden_paths(self) -> set[str]:
        """What no command may see. If the root is above our scratch folder, a command could write the next one's
        filter, or replace a private folder by a link, and the next one would get the link's target."""
        return {
            *self._hidden,
            os.path.realpath(self.scratch),
            *(os.path.realpath(path) for path in list(LISTENING_SOCKETS)),
        }

    def _command_mounts(self, read_only: Iterable[str], pinned: Iterable[str]) -> Iterable[str]:
        """Mounts the folders that are shown, and hides what is not: our sockets may be made at any time."""
        own = [(folder, name) for folder, name in self._own_file_locations() if self._is_writable(folder)]
        protected = [path for path in self._protected_files if path in self._stable and self._is_writable(path)]
        protected = [path for path in protected if _is_plain(path)]
        hidden = self._hidden_paths()
        ends = [*(folder for folder, _ in own), *hidden, *map(os.path.dirname, protected)]
        yield from self._folder_mounts(ends, pinned)
        yield from self._own_file_mounts(own)
        for path in protected:
            yield from ("--ro-bind", path, path)
        for path in sorted(read_only):
            yield from ("--ro-bind-try", path, path)
        for folder in self._emptied:
            yield from ("--remount-ro", folder)
        yield from self._hidden_mounts(hidden)

    def _folder_mounts(self, ends: Iterable[str], pinned: Iterable[str]) -> Iterable[str]:
        """Mounts the folders that are shown, those on the way to `ends` that a command could move, and `pinned` ones.

        A mount point can be neither renamed nor removed, so each of these folders is mounted on itself. A mount hides
        earlier ones below it.
        """
        above = [os.path.dirname(folder) for folder in self._shown]  # noqa: PTH120
        steps = {step for end in (*ends, *above) for step in self._way_to(end)} & self._stable
        shown = {path for path in self._shown if path == self.root or not os.path.islink(path)}  # noqa: PTH114
        held = {path for path in pinned if self._is_writable(path)}
        for path in sorted({*shown, *steps, *held} - {"/"}):  # above before below
            bind = "--bind" if self._is_writable(path) else "--ro-bind"
            need_not_be = path not in steps and path != self.root
            yield from (f"{bind}-try" if need_not_be else bind, path, path)

    def _own_file_mounts(self, locations: Iterable[tuple[str, str]]) -> Iterable[str]:
        """Makes files read-only that say what the gateway runs, outside of any sandbox.

        If there is no such file, its folder is read-only. If the folder was not there from the start, nothing is
        made: others may be at work in it. What a command puts there is found when it has ended (`protection`).
        """
        for folder, name in locations:
            path = os.path.join(folder, name)  # noqa: PTH118
            if _is_plain(path):
                yield from ("--ro-bind", path, path) if path in self._stable else ()
            elif folder in self._stable and _is_folder(folder) and folder not in self._shown:
                yield from ("--ro-bind", folder, folder)

    def _hidden_mounts(self, paths: Iterable[str]) -> Iterable[str]:
        """Makes our own folders empty, and our own sockets lead nowhere."""
        covered: list[str] = []
        for path in sorted(paths):
            shown = self._shown_in(path) or ""
            above = [*covered, *(one for one in (*self._emptied, *self._private) if len(one) > len(shown))]
            if any(_is_in(path, folder) for folder in above):
                continue
            if _is_folder(path):
                covered.append(path)
                yield from ("--tmpfs", path, "--remount-ro", path)
            elif os.path.exists(path):  # noqa: PTH110
                yield from ("--ro-bind", "/dev/null", path)

    def _way_to(self, path: str) -> list[str]:
        """The existing folders from a shown one that can be written to down to this one."""
        steps: list[str] = []
        while self._is_writable(path) and path not in self._shown:
            steps.append(path)
            path = os.path.dirname(path)  # noqa: PTH120
        return [step for step in steps if _is_folder(step) and not os.path.islink(step)]  # noqa: PTH114

    def _shown_in(self, path: str) -> str | None:
        """The shown folder that this path is, or is in."""
        return max((folder for folder in self._shown if _is_in(path, folder)), key=len, default=None)

    def _is_writable(self, path: str) -> bool:
        folder = self._shown_in(path)
        return folder is not None and self._shown[folder]


def _remove_abandoned() -> None:
    """Remove the private folders of gateways of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*-*"):
        pid = folder.name.removeprefix(SCRATCH_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and folder.stat().st_uid == os.getuid():
                try:
                    os.kill(int(pid), 0)
                except ProcessLookupError:
                    shutil.rmtree(folder, ignore_errors=True)


def _is_folder(path: str) -> bool:
    return path.startswith("/") and path != "/" and os.path.isdir(path)  # noqa: PTH112


def _is_plain(path: str) -> bool:
    """Whether it is a file, and no link to one."""
    return os.path.isfile(path) and not os.path.islink(path)  # noqa: PTH113, PTH114


def _is_closed(path: str) -> bool:
    """Whether we may not reach it, as a folder of root in an inherited PATH: bubblewrap would give up there."""
    try:
        os.stat(path)  # noqa: PTH116
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# -- sockets -----------------------------------------------------------------------------------------------------------
#
# A seccomp filter limits the families of sockets. It does not cut off the network, which a network namespace does on
# every kind of machine. But some families know no namespaces (by VSOCK a virtual machine reaches its host), and the
# namespace has a loopback of its own. Only families that are known to be confined pass, on machines whose system call
# numbers are known.

_AF_NETLINK: Final = 16
_CONFINED: Final = (socket.AF_UNIX, _AF_NETLINK)
"""With netlink, programs ask for the addresses and interfaces of their own namespace."""
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_CALL, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in `struct seccomp_data`
_ALLOW: Final = 0x7FFF0000
_FAIL: Final = 0x00050000
_NO_SUCH_FAMILY: Final = _FAIL | errno.EAFNOSUPPORT
_NO_SUCH_CALL: Final = _FAIL | errno.ENOSYS
_IO_URING_SETUP: Final = 425
"""The same everywhere. Requests in a ring pass no filter, those for sockets included."""
_X32: Final = 0x40000000
"""From here on, x86-64 has a second number for every call. No other machine has calls there."""

_Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _SystemCalls:
    """System call numbers of one architecture. `socketcall` is an old form of `socket`, whose arguments a filter cannot
    see."""

    architecture: int
    socket: int
    socketcall: int | None = None


_MACHINES: Final = {
    "x86_64": (_SystemCalls(0xC000003E, 41), _SystemCalls(0x40000003, 359, socketcall=102)),
    "aarch64": (_SystemCalls(0xC00000B7, 198), _SystemCalls(0x40000028, 281)),
    "riscv64": (_SystemCalls(0xC00000F3, 198), _SystemCalls(0x400000F3, 198)),
}
"""For each machine its own numbers, and those of its 32-bit programs."""


def socket_filter(*, internet: bool, machine: str = os.uname().machine) -> bytes | None:
    """The filter for `bwrap --seccomp`, with internet sockets or without; None for an unknown machine."""
    if machine not in _MACHINES:
        return None
    families = (*_CONFINED, *_INTERNET) if internet else _CONFINED
    program = [instruction for calls in _MACHINES[machine] for instruction in _architecture_filter(calls, families)]
    program.append((_RETURN, 0, 0, _NO_SUCH_CALL))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _architecture_filter(calls: _SystemCalls, families: Sequence[int]) -> Iterable[_Instruction]:
    """The filter for one architecture; others skip it. A jump has the numbers of instructions to skip if its condition
    holds and if not."""
    old_way = [] if calls.socketcall is None else _if_equal(calls.socketcall, _NO_SUCH_FAMILY)
    part = [
        (_LOAD, 0, 0, _CALL),
        (_JUMP_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        *_if_equal(_IO_URING_SETUP, _NO_SUCH_CALL),
        *old_way,
        (_JUMP_IF_EQUAL, 1, 0, calls.socket),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *(instruction for family in families for instruction in _if_equal(family, _ALLOW)),
        (_RETURN, 0, 0, _NO_SUCH_FAMILY),
    ]
    return [(_LOAD, 0, 0, _MACHINE), (_JUMP_IF_EQUAL, 0, len(part), calls.architecture), *part]


def _if_equal(value: int, answer: int) -> list[_Instruction]:
    return [(_JUMP_IF_EQUAL, 0, 1, value), (_RETURN, 0, 0, answer)]
