"""The sandbox of Bash: bubblewrap, which shows a command the root folder, a system it can only read, and little else.

Kept: the network, and whatever the user may read outside of homes. Hidden: homes, `/run` with its sockets, the
gateway's state, and every process but the command's own. `/tmp` and the home folder are private ones that stay until
the source ends, because agents leave things there for their next command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

PRIVATE_TMP: Final = "/tmp"
_SCRATCH: Final = "trunkline-bash-"
_HOMES: Final = ("/home", "/root")
_SOCKETS: Final = "/run"
_LEFT_OF_RUN: Final = ("/run/current-system", "/run/wrappers")  # where NixOS has its programs
_SETTINGS: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/scsi")
"""The kernel's: root could write there, also without any capability."""
_RESOLVER: Final = "/etc/resolv.conf"
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try")
_STRICT: Final = ("--die-with-parent", "--cap-drop", "ALL")  # root would keep what it needs to undo the rest


class Sandbox:
    """One way to run commands for the folder `root`. No command may see the folders `hidden`, or write `fixed` files.

    Making it looks around and makes the private folders, `close` removes them: neither on the event loop.
    """

    def __init__(
        self, program: str, root: str, env: Mapping[str, str], hidden: Sequence[str] = (), fixed: Sequence[str] = ()
    ) -> None:
        self._program = program
        self.root = os.path.realpath(root)
        self._env = env
        self._hidden = [os.path.realpath(folder) for folder in hidden]
        self._fixed = fixed
        self._mounted_on: set[str] = set()  # folders that are there only because something was mounted on them
        _remove_left_behind()
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-"))
        """Where the private folders are."""
        try:
            self._options = [*_STRICT, *_NAMESPACES, *self._mounts()]
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Remove what commands left in their private folders, and what their mounts left in the root."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in self._mounted_on:
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106

    def wrap(self, argv: Sequence[str], folder: str) -> list[str]:
        """The command that runs `argv` inside, in `folder`."""
        return [self._program, *self._options, *self._fixing(), *self._hiding(), "--chdir", folder, "--", *argv]

    def environment(self) -> dict[str, str]:
        return {**self._env, "TMPDIR": PRIVATE_TMP}

    def _mounts(self) -> Iterable[str]:
        root = self.root
        yield from ("--bind" if root == "/" else "--ro-bind", "/", "/")
        yield from ("--dev", "/dev", "--proc", "/proc")
        for name in _SETTINGS:
            yield from ("--ro-bind-try", name, name)
        emptied = [folder for folder in self._emptied() if not _is_in(folder, root)]
        for folder in emptied:
            yield from ("--tmpfs", folder)
        private = {folder: name for folder, name in self._private().items() if not _is_in(folder, root)}
        for folder, name in private.items():
            yield from ("--bind", self._own_folder(name), folder)
        for folder in self._shown_again([*emptied, *private]):
            yield from ("--ro-bind-try", folder, folder)
        if root != "/":
            yield from ("--bind", root, root)
        for folder in emptied:
            yield from ("--remount-ro", folder)

    def _hiding(self) -> Iterable[str]:
        """Our own folders, which may lie in the root, and may come into being at any time."""
        for folder in filter(_is_folder, self._hidden):
            if _is_in(folder, self.root) or not any(_is_in(folder, other) for other in self._emptied()):
                yield from ("--tmpfs", folder, "--remount-ro", folder)

    def _fixing(self) -> Iterable[str]:
        """Files in the root that say what the gateway runs, outside of any sandbox, and the way to our own folders.

        What something is mounted on can be neither renamed nor removed, so every folder on the way is mounted on
        itself. Where there is no such file, its folder holds nothing, and nothing can be put there.
        """
        places = [(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in self._fixed]  # noqa: PTH119, PTH120
        places = [(folder, name) for folder, name in places if _is_in(folder, self.root)]
        ends = [folder for folder, _ in places] + [folder for folder in self._hidden if _is_in(folder, self.root)]
        for step in sorted({step for end in ends for step in self._way_to(end)}):  # above before below
            yield from ("--bind", step, step)
        for folder, name in places:
            path = os.path.join(folder, name)  # noqa: PTH118
            if os.path.isfile(path):  # noqa: PTH113
                yield from ("--ro-bind", path, path)
            elif _is_folder(folder) and folder not in self._mounted_on:
                yield from ("--ro-bind", folder, folder) if folder != self.root else ()
            else:
                self._mounted_on.add(folder)  # only `close` removes it: a command that still runs is kept out by it
                yield from ("--ro-bind", self._own_folder("nothing"), folder)

    def _way_to(self, folder: str) -> list[str]:
        """The folders below the root down to this one, as far as they exist."""
        steps: list[str] = []
        while folder != self.root:
            steps.append(folder)
            folder = os.path.dirname(folder)  # noqa: PTH120
        return [step for step in steps if _is_folder(step)]

    def _emptied(self) -> list[str]:
        """What is hidden by an empty folder that cannot be written to."""
        found = [os.path.realpath(folder) for folder in (*_HOMES, _SOCKETS) if os.path.isdir(folder)]  # noqa: PTH112
        return list(dict.fromkeys(folder for folder in found if folder not in self._private()))

    def _private(self) -> dict[str, str]:
        """Folders that are hidden by one of our own, and the name of that."""
        folders = {PRIVATE_TMP: "tmp", "/var/tmp": "var-tmp", self._env.get("HOME", ""): "home"}
        return {os.path.realpath(folder): name for folder, name in folders.items() if _is_folder(folder)}

    def _own_folder(self, name: str) -> str:
        path = os.path.join(self.scratch, name)  # noqa: PTH118
        os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
        return path

    def _shown_again(self, covered: Sequence[str]) -> list[str]:
        """Folders with programs, and what names are looked up by, although something above them is hidden."""
        home = os.path.realpath(self._env.get("HOME") or "/")
        folders = [*self._env.get("PATH", "").split(":"), *_LEFT_OF_RUN, os.path.dirname(os.path.realpath(_RESOLVER))]  # noqa: PTH120
        real = [os.path.realpath(folder) for folder in folders if folder.startswith("/")]
        wanted = [folder for folder in real if any(_is_in(folder, cover) for cover in covered)]
        return [folder for folder in dict.fromkeys(wanted) if not _is_in(home, folder) and folder not in covered]


def _remove_left_behind() -> None:
    """The private folders of gateways of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*-*"):
        pid = folder.name.removeprefix(_SCRATCH).partition("-")[0]
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


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
