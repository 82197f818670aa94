"""Files below the root as a search reaches them: by descriptors only, whatever is swapped for a link meanwhile."""

from __future__ import annotations

import os
import stat

from trunkline.runtime.rooted_files import Beneath, refuse_kernel_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_IGNORE_FILE_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class RootFiles:
    """Files and folders below the root, reached by descriptors only: what cannot be reached without leaving the root is
    not there. Paths are from the root, which itself is the empty one."""

    def __init__(self, beneath: Beneath) -> None:
        self._beneath = beneath
        self._device = beneath.status(".").st_dev  # what is on the same device as the root is a file like the others

    def open_file(self, path: str) -> int | None:
        """A regular file; None for anything else, and for what is not there or not ours to read."""
        fd = self._open(path, _FILE)
        if fd is None or stat.S_ISREG(os.fstat(fd).st_mode):
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

    def ages(self, paths: Iterable[str]) -> list[tuple[int, str]]:
        """Each regular file with a number that is the smaller the later it was changed. What is not (or no longer)
        there as a plain file is left out."""
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        found: list[tuple[int, str]] = []
        for folder, names in by_folder.items():
            fd = self._open(folder or ".", _FOLDER)
            if fd is not None:
                _look(fd, f"{folder}/" if folder else "", names, found)
                os.close(fd)
        return found

    def rules_above(self, folder: str) -> str:
        """The ignore rules of all folders above this one as those of one file in the root, what counts most last.

        Those of git end where another repository begins.
        """
        parts = folder.split("/") if folder else []
        above = of_git = ["".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts))]
        for depth in range(len(parts), 0, -1):
            if self._exists("/".join((*parts[:depth], ".git"))):
                of_git = above[depth:]
                break
        files = ((".git/info/exclude", of_git), (".gitignore", of_git), (".ignore", above), (".rgignore", above))
        return "".join(_rules_of_root(self._read(prefix + name), prefix) for name, there in files for prefix in there)

    def _exists(self, path: str) -> bool:
        try:
            return bool(self._beneath.status(path))
        except (OSError, ValueError):
            return False

    def _read(self, path: str) -> str:
        fd = self._open(path, _FILE | os.O_NOFOLLOW)
        if fd is None:
            return ""
        try:
            data = os.read(fd, _IGNORE_FILE_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        except OSError:
            return ""
        finally:
            os.close(fd)
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _look(folder_fd: int, prefix: str, names: list[str], found: list[tuple[int, str]]) -> None:
    for name in names:
        try:
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((-status.st_mtime_ns, prefix + name))


def _rules_of_root(text: str, prefix: str) -> str:
    """Rules of an ignore file in the folder `prefix` (it ends in a slash) that say the same in the root."""
    place = "".join(f"\\{char}" if char in "\\*?[]{}!# " else char for char in prefix)
    rules: list[str] = []
    for line in text.split("\n"):
        rule = line.removesuffix("\r")
        body = rule.removeprefix("!")
        if not body.strip() or rule.startswith("#"):
            continue
        if prefix:
            anchored = "/" in body.rstrip()[:-1]
            rule = f"{'!' if rule != body else ''}/{place}{body.removeprefix('/') if anchored else f'**/{body}'}"
        rules.append(f"{rule}\n")
    return "".join(rules)
