"""Files and folders below the root, touched by handles only: what cannot be reached without leaving is not there.

Paths are from the root, parts joined by `/`, the root itself is the empty one.
"""

from __future__ import annotations

import os
import stat

from trunkline.runtime.beneath import Beneath, refuse_kernel_files
from trunkline.sources.builtin.search.gitignore import Ignores, Level, read_level

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_IGNORE_FILE_BYTES = 1 << 20
FOLDER, FILE, OTHER = "folder", "file", "other"


class Tree:
    def __init__(self, beneath: Beneath) -> None:
        self._beneath = beneath
        self._levels: dict[str, Level] = {}
        self._ignored: dict[str, bool] = {}
        self._device = beneath.status(".").st_dev  # what is on the same device as the root is a file like the others

    # -- opening --------------------------------------------------------------------------------------------------

    def open_folder(self, path: str, *, follow: bool = False) -> int | None:
        return self._open(path or ".", _FOLDER & ~os.O_NOFOLLOW if follow else _FOLDER)

    def open_file(self, path: str, *, follow: bool = False) -> int | None:
        """A regular file; None for anything else, and for what is not there or not ours to read."""
        fd = self._open(path, _FILE & ~os.O_NOFOLLOW if follow else _FILE)
        if fd is None:
            return None
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        return None

    def _open(self, path: str, flags: int) -> int | None:
        try:
            fd = self._beneath.open(path, flags)
        except (OSError, ValueError):
            return None
        try:
            if os.fstat(fd).st_dev != self._device:
                refuse_kernel_files(fd)
        except OSError:
            os.close(fd)
            return None
        return fd

    def scan(self, path: str, *, follow: bool = False) -> list[tuple[str, str]]:
        """Names and what they stand for: FOLDER, FILE or OTHER. Nothing when the folder cannot be read."""
        fd = self.open_folder(path, follow=follow)
        if fd is None:
            return []
        try:
            with os.scandir(fd) as entries:
                return [(entry.name, _kind(entry)) for entry in entries]
        except OSError:
            return []
        finally:
            os.close(fd)

    # -- looking --------------------------------------------------------------------------------------------------

    def ages(self, paths: Iterable[str]) -> list[tuple[int, str]]:
        """Each regular file with a number that is the smaller the later it was changed. What is not (or no longer)
        there as a plain file is left out."""
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        found: list[tuple[int, str]] = []
        for folder, names in by_folder.items():
            fd = self.open_folder(folder, follow=True)
            if fd is not None:
                _look(fd, f"{folder}/" if folder else "", names, found)
                os.close(fd)
        return found

    # -- ignore rules ---------------------------------------------------------------------------------------------

    def level(self, folder: str, names: Iterable[str] | None = None) -> Level:
        """The rules that stand in one folder; read once."""
        known = self._levels.get(folder)
        if known is None:
            if names is None:
                names = [name for name, _ in self.scan(folder, follow=True)]
            prefix = f"{folder}/" if folder else ""
            known = read_level(folder, names, lambda name: self._read(prefix + name))
            self._levels[folder] = known
        return known

    def _read(self, path: str) -> bytes | None:
        fd = self.open_file(path)
        if fd is None:
            return None
        try:
            return os.read(fd, _IGNORE_FILE_BYTES)
        except OSError:
            return None
        finally:
            os.close(fd)

    def ignores_above(self, folder: str) -> Ignores:
        """The rules of all folders above this one."""
        ignores = Ignores()
        if folder:
            parts = folder.split("/")
            for depth in range(len(parts)):
                ignores = ignores.below(self.level("/".join(parts[:depth])))
        return ignores

    def is_ignored(self, path: str, start: str, *, is_folder: bool = False) -> bool:
        """Whether the rules leave out a path, or a folder on the way to it from `start`, which itself is asked for."""
        folder = path.rpartition("/")[0]
        if folder != start and self._folder_ignored(folder, start):
            return True
        return self.ignores_above(path).ignored(path, is_folder=is_folder)

    def _folder_ignored(self, folder: str, start: str) -> bool:
        if folder not in self._ignored:
            self._ignored[folder] = self.is_ignored(folder, start, is_folder=True)
        return self._ignored[folder]


def _look(folder_fd: int, prefix: str, names: list[str], found: list[tuple[int, str]]) -> None:
    for name in names:
        try:
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((-status.st_mtime_ns, prefix + name))


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_dir(follow_symlinks=False):
            return FOLDER
        return FILE if entry.is_file(follow_symlinks=False) else OTHER
    except OSError:
        return OTHER
