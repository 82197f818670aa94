"""Opens files below a root folder and never outside it, even if something is replaced with a link meanwhile.

No names are compared to decide where a file is: every step starts from a folder that is held open. Linux has a single
call for that, `openat2`. What it cannot decide, and every other system, takes the walk: one name at a time, no link
followed by the kernel, and `..` only back to a folder that the walk came through.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from types import TracebackType
from typing import Final

_OPENAT2: Final = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_OPEN_HOW: Final = struct.Struct("=QQQ")
_NOT_THERE: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})
"""A kernel before 5.6, or a sandbox that blocks the call."""
_UNSETTLED: Final = frozenset({errno.EXDEV, errno.EAGAIN})
"""An absolute link, which may lead back inside, or something was moved meanwhile: the walk decides."""

_PATH_ONLY: Final = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER: Final = _PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_LINKS: Final = 40
_MAX_DEPTH: Final = 200  # each folder on the way is held open
_TRIES: Final = 5

FileIdentity = tuple[int, int]
"""Device and inode, which identify a file or folder whatever its name."""

_KERNEL_FILE_SYSTEMS: Final = frozenset(
    {
        0x9FA0,  # proc
        0x62656572,  # sysfs
        0x64626720,  # debugfs
        0x74726163,  # tracefs
        0x27E0EB,  # cgroup
        0x63677270,  # cgroup2
        0x73636673,  # securityfs
        0x62656570,  # configfs
        0xCAFE4A11,  # bpf
        0xDE5E81E4,  # efivarfs
    }
)


class PathEscapesRoot(PermissionError):
    """The path leads out of the root."""

    def __init__(self) -> None:
        super().__init__(errno.EXDEV, "leads out of the folder")


class KernelFileRefused(PermissionError):
    """The path leads to one of the kernel's files (`/proc`, `/sys`), which reveal this process and its system."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "one of the kernel's own files")


class HiddenFileRefused(PermissionError):
    """The path leads to a hidden file or folder, or into one."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "a folder of the gateway's own")


class RootHandle:
    """A root folder, held open. Paths are relative to it, or absolute if they begin with one of its own spellings.

    Files and folders that are `hidden` cannot be opened under any name, nor can anything in them. Only the walk notices
    that a file is in a hidden folder, so it is always used if there is one below the root.
    """

    def __init__(self, folder: str, *, walk_only: bool = False, hidden: Iterable[str] = ()) -> None:
        self._fd = os.open(folder, _FOLDER)
        self._homes = tuple({_parts(os.path.abspath(folder)), _parts(os.path.realpath(folder))})  # noqa: PTH100
        try:
            self._hidden, walk = _look_for(hidden, self._fd)
        except BaseException:
            self.close()
            raise
        self._calls = None if walk_only or walk else linux_calls()

    def __enter__(self) -> RootHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def relative(self, path: str) -> str:
        """The path relative to the root; raises PathEscapesRoot for an absolute path that is elsewhere."""
        if not path.startswith("/"):
            return path
        parts = _parts(path)
        for home in self._homes:
            if parts[: len(home)] == home:
                return "/".join(_steps(path)[len(home) :]) or "."
        raise PathEscapesRoot

    def open(self, path: str, flags: int) -> int:
        """Open what exists at a path. Links are followed as long as they stay inside the root."""
        fd = self._open(path, flags)
        if self._hidden and _identity(os.fstat(fd)) in self._hidden:
            os.close(fd)
            raise HiddenFileRefused
        return fd

    def _open(self, path: str, flags: int) -> int:
        relative = self.relative(path)
        if self._calls is not None:
            try:
                return self._calls.openat2(self._fd, os.fsencode(relative), flags | os.O_CLOEXEC)
            except OSError as error:
                if error.errno not in _UNSETTLED | _NOT_THERE:
                    raise  # otherwise the walk decides
        for _ in range(_TRIES):  # the last name may become a link after the walk saw that it is none
            folder_fd, name = self.resolve(relative)
            try:
                return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
            finally:
                os.close(folder_fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def status(self, path: str) -> os.stat_result:
        """The status of what exists at a path, without opening it: opening a device or a pipe may block."""
        if hasattr(os, "O_PATH"):
            fd = self.open(path, os.O_PATH)
            try:
                refuse_kernel_files(fd)
                return os.fstat(fd)
            finally:
                os.close(fd)
        folder_fd, name = self.resolve(path)
        try:
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        finally:
            os.close(folder_fd)
        if _identity(status) in self._hidden:
            raise HiddenFileRefused
        return status

    def resolve(
        self, path: str, *, make_folders: bool = False, check: Callable[[int, str], object] | None = None
    ) -> tuple[int, str]:
        """Where a path ends once all links are followed: an open folder, which the caller closes, and the name in it.

        The name was no link at that moment and need not exist; it is `.` for the folder itself. `check` is called
        before each folder that is made, and raises to forbid it.
        """
        with contextlib.closing(_OpenFolders(self._fd, self._hidden)) as opened:
            parts = deque(_steps(self.relative(path)))
            links = 0
            while parts:
                part = parts.popleft()
                if part == "..":
                    opened.back()
                if part in ("..", "."):
                    continue
                if parts and opened.enter(part, make_folders, check):
                    continue
                target = opened.link(part)
                if target is None:
                    return opened.last(), part
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if target.startswith("/"):
                    target = self.relative(target)
                    opened.restart()
                parts.extendleft(reversed(_steps(target)))
            return opened.last(), "."


class _OpenFolders:
    """The folders that a walk came through, each held open; the first belongs to the root."""

    def __init__(self, start_fd: int, hidden: frozenset[FileIdentity]) -> None:
        self._fds = [start_fd]
        self._hidden = hidden

    def restart(self) -> None:
        while len(self._fds) > 1:
            os.close(self._fds.pop())

    close = restart

    def back(self) -> None:
        if len(self._fds) == 1:
            raise PathEscapesRoot
        os.close(self._fds.pop())

    def enter(self, name: str, make: bool, check: Callable[[int, str], object] | None = None) -> bool:
        """Enter a folder; False when the name is a link, which may lead to one."""
        if len(self._fds) > _MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        try:
            self._fds.append(self._open(name, make, check))
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if self.link(name) is None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            return False
        if self._hidden and _identity(os.fstat(self._fds[-1])) in self._hidden:
            raise HiddenFileRefused
        return True

    def _open(self, name: str, make: bool, check: Callable[[int, str], object] | None) -> int:
        flags = _FOLDER | os.O_NOFOLLOW
        try:
            return os.open(name, flags, dir_fd=self._fds[-1])
        except FileNotFoundError:
            if not make or self.link(name) is not None:
                raise
        if check is not None:
            check(self._fds[-1], name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._fds[-1])
        return os.open(name, flags, dir_fd=self._fds[-1])

    def link(self, name: str) -> str | None:
        """The target of a link; None when the name is no link or does not exist. Refuses links in `/proc`."""
        try:
            target = os.readlink(name, dir_fd=self._fds[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise
        refuse_kernel_files(self._fds[-1])
        return target

    def last(self) -> int:
        """A descriptor of the folder that the walk has reached; the caller closes it."""
        return os.dup(self._fds[-1])


def refuse_kernel_files(fd: int) -> None:
    """Raises KernelFileRefused for a file or folder on one of the kernel's file systems."""
    calls = linux_calls()
    if calls is not None and calls.file_system(fd) in _KERNEL_FILE_SYSTEMS:
        raise KernelFileRefused


# -- hidden files and folders ------------------------------------------------------------------------------------------


def lies_in(folder_fd: int, folders: Iterable[str]) -> bool:
    """Whether an open folder is one of these, or inside one."""
    way_up = _way_up(".", folder_fd)
    for folder in folders:
        with contextlib.suppress(OSError):
            if _identity(os.stat(folder)) in way_up:  # noqa: PTH116
                return True
    return False


def _look_for(hidden: Iterable[str], folder_fd: int) -> tuple[frozenset[FileIdentity], bool]:
    """The identities of the hidden files and folders that exist, and whether a folder of them is below the root. Raises
    HiddenFileRefused if the root is in one of them."""
    found: set[FileIdentity] = set()
    below = False
    for path in hidden:
        try:
            status = os.stat(path)  # noqa: PTH116
            way_up = _way_up(path) if stat.S_ISDIR(status.st_mode) else []
        except OSError:
            continue  # it does not exist, or this process could not open it either
        found.add(_identity(status))
        below = below or _identity(os.fstat(folder_fd)) in way_up
    if found and not found.isdisjoint(_way_up(".", folder_fd)):
        raise HiddenFileRefused
    return frozenset(found), below


def _way_up(path: str, folder_fd: int | None = None) -> list[FileIdentity]:
    """The identities of a folder and all its parents, found by handles rather than names."""
    fd = os.open(path, _FOLDER, dir_fd=folder_fd)
    try:
        found = [_identity(os.fstat(fd))]
        with contextlib.suppress(PermissionError):  # only on systems without O_PATH
            while True:
                above = os.open("..", _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = above
                if _identity(os.fstat(fd)) == found[-1]:
                    break
                found.append(_identity(os.fstat(fd)))
        return found
    finally:
        os.close(fd)


def _identity(status: os.stat_result) -> FileIdentity:
    return status.st_dev, status.st_ino


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _steps(path: str) -> tuple[str, ...]:
    """The names in a path. One that ends in a slash must be a folder: a final `.` checks that."""
    parts = _parts(path)
    return (*parts, ".") if parts and path.endswith(("/", "/.")) else parts


@cache
def linux_calls() -> _LinuxCalls | None:
    """System calls that Python does not offer; None on other systems."""
    return _LinuxCalls() if sys.platform == "linux" else None


class _LinuxCalls:
    def __init__(self) -> None:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        self._syscall = library.syscall
        self._syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
        self._syscall.restype = ctypes.c_long
        self._fstatfs = library.fstatfs
        self._fstatfs.argtypes = [ctypes.c_int, ctypes.c_char_p]
        self._errno = ctypes.get_errno
        self._buffer = ctypes.create_string_buffer
        self._word = struct.Struct("=l") if ctypes.sizeof(ctypes.c_long) == 4 else struct.Struct("=q")

    def openat2(self, folder_fd: int, path: bytes, flags: int) -> int:
        how = _OPEN_HOW.pack(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        while True:
            fd = self._syscall(_OPENAT2, folder_fd, path, how, len(how))
            if fd >= 0:
                return fd
            number = self._errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))

    def file_system(self, fd: int) -> int:
        """The magic number of the file system that a file is on; 0 if unknown."""
        answer = self._buffer(256)
        if self._fstatfs(fd, answer):
            return 0
        (kind,) = self._word.unpack_from(answer.raw)
        return kind & 0xFFFFFFFF
