"""The sandbox of Bash: bubblewrap, which shows a command the root folder, a system it can only read, and little else.

Kept: whatever the user may read outside of homes. Hidden: homes, `/run` with its sockets, the gateway's state and its
own sockets, every process but the command's own and, unless it is asked for, the network. `/tmp` and the home folder
are private ones that stay until the source ends, because agents leave things there for their next command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from trunkline.config.sandbox import OF_THE_KERNEL, SCRATCH, SandboxSettings
from trunkline.runtime.listener import LISTENING
from trunkline.sources.builtin.protection.tree import PACKAGES
from trunkline.sources.builtin.socket_filter import socket_filter

PRIVATE_TMP: Final = "/tmp"
_HOMES: Final = ("/home", "/root")
_SOCKETS: Final = "/run"
_LEFT_OF_RUN: Final = ("/run/current-system", "/run/wrappers")  # where NixOS has its programs
_SETTINGS: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/scsi")
"""The kernel's: root could write there, also without any capability."""
_RESOLVER: Final = "/etc/resolv.conf"
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try")
_STRICT: Final = ("--die-with-parent", "--cap-drop", "ALL")  # root would keep what it needs to undo the rest
_FILTER_FD: Final = "9"
_WITH_FILTER: Final = ("/bin/sh", "-c", f'exec "$@" {_FILTER_FD}<"$0"')
_USUAL: Final = SandboxSettings()


class Sandbox:
    """One way to run commands for the folder `root`. No command may see the folders and sockets `hidden`, or write
    `fixed` files, or those that are `started` and were there before the first command.

    Making it looks around and makes the private folders, `close` removes them: neither on the event loop.
    """

    def __init__(
        self,
        program: str,
        root: str,
        env: Mapping[str, str],
        hidden: Sequence[str] = (),
        fixed: Sequence[str] = (),
        settings: SandboxSettings = _USUAL,
        started: Sequence[str] = (),
    ) -> None:
        self._program = program
        self.root = os.path.realpath(root)
        self._env = env
        self._hidden = [os.path.realpath(path) for path in hidden]
        self._fixed = fixed
        self._started = [path for path in map(os.path.realpath, started) if PACKAGES.isdisjoint(path.split("/"))]
        """What an installation replaces stays out: it could not."""
        self._settings = settings
        self._shown = {**_shown_too(settings.folders), self.root: True}
        """The folders that are as they are outside, and whether they can be written to."""
        _remove_left_behind()
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))
        """Where the private folders are."""
        self._filter = os.path.join(os.path.realpath(self.scratch), "filter")  # noqa: PTH118
        try:
            self._launch = self._launching()
            self._emptied = [folder for folder in self._to_empty() if self._shown_in(folder) is None]
            self._private = {folder: name for folder, name in self._own().items() if self._shown_in(folder) is None}
            self._options = [*_STRICT, *_NAMESPACES, *self._mounts()]
            self._steady = self._there_from_the_start()
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
        places = self._places(read_only, pinned)
        return [*self._launch, *self._options, *places, "--chdir", folder, "--", *argv]

    def environment(self) -> dict[str, str]:
        return {**self._env, "TMPDIR": PRIVATE_TMP, **self._settings.env}

    # -- what is the same for every command -----------------------------------------------------------------------

    def _launching(self) -> list[str]:
        """How bubblewrap is started, with the network that commands have."""
        if self._settings.network == "on":
            return [self._program]
        own_network = [self._program, "--unshare-net"]  # with a loopback in it that leads to nobody else
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
            yield from ("--bind", self._own_folder(name), folder)
        for folder in self._shown_again([*self._emptied, *self._private]):
            yield from ("--ro-bind-try", folder, folder)

    def _to_empty(self) -> list[str]:
        """What is hidden by an empty folder that cannot be written to."""
        found = [os.path.realpath(folder) for folder in (*_HOMES, _SOCKETS) if os.path.isdir(folder)]  # noqa: PTH112
        return list(dict.fromkeys(folder for folder in found if folder not in self._own()))

    def _own(self) -> dict[str, str]:
        """Folders that are hidden by one of our own, and the name of that."""
        folders = {
            tempfile.gettempdir(): "gateway-tmp",
            PRIVATE_TMP: "tmp",
            "/var/tmp": "var-tmp",
            self._env.get("HOME", ""): "home",
        }
        return {os.path.realpath(folder): name for folder, name in folders.items() if _is_folder(folder)}

    def _own_folder(self, name: str) -> str:
        path = os.path.join(self.scratch, name)  # noqa: PTH118
        os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
        return path

    def _shown_again(self, covered: Sequence[str]) -> list[str]:
        """Folders with programs, and what names are looked up by, although something above them is hidden."""
        home = os.path.realpath(self._env.get("HOME") or "/")
        folders = [*self._env.get("PATH", "").split(":"), *_LEFT_OF_RUN]
        if self._settings.network == "on":
            folders.append(os.path.dirname(os.path.realpath(_RESOLVER)))  # noqa: PTH120
        real = [os.path.realpath(folder) for folder in folders if folder.startswith("/")]
        wanted = [folder for folder in real if any(_is_in(folder, cover) for cover in covered)]
        wanted = [folder for folder in dict.fromkeys(wanted) if not _is_in(home, folder) and folder not in covered]
        return [folder for folder in wanted if not _is_closed(folder)]

    # -- what is looked at anew for each ----------------------------------------------------------------------------

    @property
    def writable(self) -> list[str]:
        """The folders in which commands can write what others see."""
        return [path for path, can_be in self._shown.items() if can_be]

    def _there_from_the_start(self) -> frozenset[str]:
        """The fixed files, and the folders on the way to what is ours, that are there before the first command: from
        then on no command can move them. What comes later may be a link that another command has laid: to mount
        that would show what it leads to."""
        fixed = [(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in self._fixed]  # noqa: PTH119, PTH120
        above = map(os.path.dirname, (*self._shown, *self._started))
        ends = [*(folder for folder, _ in fixed), *self._ours(), *above]
        steps = {step for end in ends for step in self._way_to(end)}
        files = [*(os.path.join(folder, name) for folder, name in fixed), *self._started]  # noqa: PTH118
        return frozenset(steps | {file for file in files if _is_plain(file)})

    def _ours(self) -> set[str]:
        """What nobody may see. Where the root is above our scratch folder, a command could write the next one's
        filter, or put a link in place of a private folder, and the next one would have what that leads to."""
        return {*self._hidden, os.path.realpath(self.scratch), *(os.path.realpath(path) for path in list(LISTENING))}

    def _places(self, read_only: Iterable[str], pinned: Iterable[str]) -> Iterable[str]:
        """The folders that are shown, and in them what is not: our own may come into being at any time."""
        fixed = [(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in self._fixed]  # noqa: PTH119, PTH120
        fixed = [(folder, name) for folder, name in fixed if self._is_writable(folder)]
        started = [path for path in self._started if path in self._steady and self._is_writable(path)]
        started = [path for path in started if _is_plain(path)]
        hidden = self._ours()
        ends = [*(folder for folder, _ in fixed), *hidden, *map(os.path.dirname, started)]
        yield from self._showing(ends, pinned)
        yield from self._fixing(fixed)
        for path in started:
            yield from ("--ro-bind", path, path)
        for path in sorted(read_only):
            yield from ("--ro-bind-try", path, path)
        for folder in self._emptied:
            yield from ("--remount-ro", folder)
        yield from self._hiding(hidden)

    def _showing(self, ends: Iterable[str], pinned: Iterable[str]) -> Iterable[str]:
        """The folders that are shown, those on the way to `ends` that somebody in the sandbox could move, and those
        that are `pinned`.

        What something is mounted on can be neither renamed nor removed, so every folder on the way is mounted on
        itself. A mount hides those below it that were made before.
        """
        above = [os.path.dirname(folder) for folder in self._shown]  # noqa: PTH120
        steps = {step for end in (*ends, *above) for step in self._way_to(end)} & self._steady
        shown = {path for path in self._shown if path == self.root or not os.path.islink(path)}  # noqa: PTH114
        held = {path for path in pinned if self._is_writable(path)}
        for path in sorted({*shown, *steps, *held} - {"/"}):  # above before below
            bind = "--bind" if self._is_writable(path) else "--ro-bind"
            need_not_be = path not in steps and path != self.root
            yield from (f"{bind}-try" if need_not_be else bind, path, path)

    def _fixing(self, places: Iterable[tuple[str, str]]) -> Iterable[str]:
        """Files that say what the gateway runs, outside of any sandbox.

        Where there is no such file, nothing can be put into its folder. Where there was not even that from the start,
        nothing is made for it: the folder belongs to others as well, who may be at work in it. What a command makes
        there is found when it has ended (`trunkline.sources.builtin.protection`).
        """
        for folder, name in places:
            path = os.path.join(folder, name)  # noqa: PTH118
            if _is_plain(path):
                yield from ("--ro-bind", path, path) if path in self._steady else ()
            elif folder in self._steady and _is_folder(folder) and folder not in self._shown:
                yield from ("--ro-bind", folder, folder)

    def _hiding(self, paths: Iterable[str]) -> Iterable[str]:
        """Our own folders are empty, and our own sockets lead nowhere."""
        covered: list[str] = []
        for path in sorted(paths):
            if not self._is_seen(path) or any(_is_in(path, folder) for folder in covered):
                continue
            if _is_folder(path):
                covered.append(path)
                yield from ("--tmpfs", path, "--remount-ro", path)
            elif os.path.exists(path):  # noqa: PTH110
                yield from ("--ro-bind", "/dev/null", path)

    def _way_to(self, path: str) -> list[str]:
        """The folders down to this one that exist below one that can be written to."""
        steps: list[str] = []
        while self._is_writable(path) and path not in self._shown:
            steps.append(path)
            path = os.path.dirname(path)  # noqa: PTH120
        return [step for step in steps if _is_folder(step) and not os.path.islink(step)]  # noqa: PTH114

    def _shown_in(self, path: str) -> str | None:
        """The folder as which, or in which, this one is shown as it is outside."""
        return max((folder for folder in self._shown if _is_in(path, folder)), key=len, default=None)

    def _is_writable(self, path: str) -> bool:
        folder = self._shown_in(path)
        return folder is not None and self._shown[folder]

    def _is_seen(self, path: str) -> bool:
        """Whether nothing hides this path from commands."""
        shown = self._shown_in(path) or ""
        return not any(_is_in(path, cover) and len(cover) > len(shown) for cover in (*self._emptied, *self._private))


def _shown_too(folders: Mapping[Path, str]) -> dict[str, bool]:
    """What the configuration shows besides the root, with whether it can be written to; links may lead anywhere."""
    real = {os.path.realpath(path): access == "rw" for path, access in folders.items()}
    shown = [path for path in real if path != "/" and not any(_is_in(path, other) for other in OF_THE_KERNEL)]
    return {path: real[path] for path in shown}


def _remove_left_behind() -> None:
    """The private folders of gateways of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*-*"):
        pid = folder.name.removeprefix(SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and folder.stat().st_uid == os.getuid() and not _runs(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_folder(path: str) -> bool:
    return path.startswith("/") and path != "/" and os.path.isdir(path)  # noqa: PTH112


def _is_plain(path: str) -> bool:
    """A file, and no link to one."""
    return os.path.isfile(path) and not os.path.islink(path)  # noqa: PTH113, PTH114


def _is_closed(path: str) -> bool:
    """Whether the way to it is closed to us, as that to folders of root in a PATH that was taken over: bubblewrap would
    give up there."""
    try:
        os.stat(path)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
