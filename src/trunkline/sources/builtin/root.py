"""The root folder of the tools: whatever path an agent writes, only files below it are opened.

`runtime/rooted_files` ensures that; here its refusals become messages that an agent can act on.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from trunkline.config.problems import nearest
from trunkline.config.secrets import has_literal_secret
from trunkline.runtime.commands import path_of_folder
from trunkline.runtime.rooted_files import (
    HiddenFileRefused,
    KernelFileRefused,
    PathEscapesRoot,
    RootHandle,
    lies_in,
    refuse_kernel_files,
)
from trunkline.sources.builtin.protection.protected_paths import (
    GIT_FILES,
    HEAD,
    HOOKS,
    PROTECTED_PATHS,
    ProtectedPaths,
    protected_path_at,
)
from trunkline.sources.builtin.text_length import printable
from trunkline.sources.builtin.tool import ToolFault

_LONGEST_PATH: Final = 4096
_LONGEST_QUOTED: Final = 200
_COMPARED_NAMES: Final = 2000
_NO_WAITING: Final = os.O_NONBLOCK | os.O_NOCTTY
"""A pipe or a terminal may take a file's place between its check and its opening: neither may hold us up."""
_LARGEST_SECRET_FILE: Final = 1 << 20
_REFERENCE: Final = re.compile(r"\$\{\w+\}")
"""Refers to a secret that is kept elsewhere; the name itself is none."""


class GatewayFiles:
    """The gateway's own: `folders` that no tool may look into, and `files` that none may write, as they say what the
    gateway runs. These may be read, unless they contain a secret. `redact` takes secrets out of a text."""

    def __init__(
        self, *, folders: Sequence[str] = (), files: Sequence[str] = (), redact: Callable[[str], str] = str
    ) -> None:
        self.folders = list(folders)
        self._files = files
        self._redact = redact

    def hide(self, folder: str) -> None:
        """Add a folder that was made just now."""
        if folder not in self.folders:
            self.folders.append(folder)

    def is_file(self, folder_fd: int, name: str) -> bool:
        """Whether a name in a folder is that of one of the files, in any case and whether it exists or not, or a hard
        link to one."""
        folder = os.fstat(folder_fd)
        for file in self._files:
            for spelling in {file, os.path.realpath(file)}:
                parent, own_name = os.path.split(spelling)
                if own_name.casefold() == name.casefold() and _is(folder, parent):
                    return True
        try:
            there = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except OSError:
            return False
        return any(_is(there, file) for file in self._files)

    def is_secret(self, fd: int) -> bool:
        """Whether an open file is one of the files, and contains a secret."""
        there = os.fstat(fd)
        return any(_is(there, file) and self._holds_secret(file) for file in self._files)

    def hidden(self) -> list[str]:
        """Everything that must not be read at this moment."""
        return [*self.folders, *filter(self._holds_secret, self._files)]

    def _holds_secret(self, file: str) -> bool:
        try:
            if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116
                return False  # a pipe, which was read once and for all
            with Path(file).open("rb") as opened:
                text = opened.read(_LARGEST_SECRET_FILE).decode("utf-8", "replace")
        except OSError:
            return False
        without = _REFERENCE.sub(",", text)
        return self._redact(without) != without or has_literal_secret(text, Path(file))


def _is(there: os.stat_result, path: str) -> bool:
    try:
        return os.path.samestat(there, os.stat(path))  # noqa: PTH116
    except OSError:
        return False


class OutsideRoot(ToolFault):
    """The path leads out of the root folder."""


class RootMissing(ToolFault):
    """There is no root folder at the moment."""


class RootFolder:
    """Opens files below the root. `protected` are paths that no tool may write. `walk_only` does without `openat2`, as
    on systems that do not have it."""

    def __init__(
        self,
        path: Path | str,
        *,
        own: GatewayFiles | None = None,
        protected: ProtectedPaths | None = None,
        walk_only: bool = False,
    ) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - links in it are followed anew each time, not once
        self.own = own or GatewayFiles()
        self.protected = protected
        self._walk_only = walk_only

    def trouble(self) -> str:
        """Why the folder cannot be used; empty when it can, or when that is not known now."""
        try:
            self._open().close()
        except ToolFault as fault:
            return str(fault) if isinstance(fault, RootMissing) else ""
        return ""

    # -- opening --------------------------------------------------------------------------------------------------

    def open_file(self, path: str) -> int:
        """A descriptor of a regular file that exists. Raises ToolFault."""
        with self._reach(path, is_file=True) as beneath:
            require_regular_file(beneath.status(path), path)
            fd = beneath.open(path, os.O_RDONLY | _NO_WAITING)
            with _closed_on_error(fd):
                require_regular_file(os.fstat(fd), path)
                if self.own.is_secret(fd):
                    raise ToolFault(
                        f"{quoted(path)} contains secrets of this gateway, so its tools do not show it: ask a person"
                    )
            return fd

    def open_folder(self, path: str = ".") -> int:
        """A descriptor of a folder, for listing it and for opening what is in it. Raises ToolFault."""
        with self._reach(path or ".") as beneath:
            fd = beneath.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
            with _closed_on_error(fd):
                return fd

    def parent_of(self, path: str, *, make_folders: bool = False) -> tuple[int, str]:
        """A descriptor of the folder that a file is or would be in, links followed, and its name. Raises ToolFault."""
        with self._reach(path, is_file=True) as beneath:
            check = partial(self._refuse_protected, path=path, folder=True)
            folder_fd, name = beneath.resolve(path, make_folders=make_folders, check=check)
            with _closed_on_error(folder_fd):
                if name == ".":
                    raise ToolFault(f"{quoted(path)} is a folder, not a file")
                if lies_in(folder_fd, self.own.folders):  # made since the path was resolved
                    raise HiddenFileRefused
            return folder_fd, name

    def refuse_own(self, folder_fd: int, name: str, path: str) -> None:
        """Raises ToolFault for a file that no tool may write."""
        if self.own.is_file(folder_fd, name):
            raise ToolFault(
                f"{quoted(path)} decides what this gateway runs, so its tools do not change it: ask a person to do it"
            )
        self._refuse_protected(folder_fd, name, path)

    def _refuse_protected(self, folder_fd: int, name: str, path: str, *, folder: bool = False) -> None:
        """Checks where the file really is, and how its path is written, since a protected path may be a link."""
        if self.protected is None:
            return
        written = quoted(path)
        home = os.path.realpath(self.path)
        real = _names(os.path.relpath(posixpath.join(path_of_folder(folder_fd), name), home))
        wrong = protected_path_at(real, self.protected) or _protected_link_to(home, real)
        for root in (self.path, home):
            if path.startswith(f"{root}/"):
                path = path[len(root) :]
        wrong = wrong or protected_path_at(_names(posixpath.normpath(path.lstrip("/"))), self.protected)
        if not wrong and not folder and _is_of_repository(folder_fd, name):
            wrong = posixpath.join(*real)
        if wrong:
            raise ToolFault(
                f"{written} was not written: {quoted(wrong)} is a protected path: programs outside the sandbox"
                " act on it. Ask a person to make this change; `protect` in the configuration says what is protected"
            )

    def name_of(self, path: str) -> str:
        """The path as shown to people: relative to the root, `.` for the root itself. Raises ToolFault."""
        with self._reach(path or ".") as beneath:
            return posixpath.normpath(beneath.relative(path or "."))

    def _open(self) -> RootHandle:
        try:
            return RootHandle(self.path, walk_only=self._walk_only, hidden=self.own.folders)
        except FileNotFoundError:
            raise RootMissing(f"The root folder `{self.path}` does not exist") from None
        except NotADirectoryError:
            raise RootMissing(f"The root `{self.path}` is not a folder") from None
        except HiddenFileRefused:
            raise RootMissing(f"The root folder `{self.path}` lies in the gateway's own `state_dir`") from None
        except OSError as error:
            # without a free descriptor nothing is known about the folder, which is probably there
            unknown = error.errno in (errno.EMFILE, errno.ENFILE)
            message = f"The root folder `{self.path}` cannot be opened: {error.strerror}"
            raise (ToolFault if unknown else RootMissing)(message) from None

    # -- faults ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _reach(self, path: str, *, is_file: bool = False) -> Generator[RootHandle]:
        """The open root, to open a path below it. Turns what goes wrong into a ToolFault."""
        if not path:
            raise ToolFault("The path is empty")
        if "\0" in path:
            raise ToolFault("The path contains a NUL character")
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise ToolFault(f"The path is longer than {_LONGEST_PATH} bytes")
        if is_file and path.endswith("/"):
            raise ToolFault(f"{quoted(path)} names a folder, not a file")
        try:
            with self._open() as beneath:
                yield beneath
        except PathEscapesRoot:
            what = "Path traversal: " if ".." in path.split("/") else ""
            raise OutsideRoot(
                f"{what}{quoted(path)} is outside the root folder `{self.path}`: "
                "give a path below it, or one relative to it"
            ) from None
        except KernelFileRefused:
            raise ToolFault(f"{quoted(path)} is one of the kernel's own files, which are not offered") from None
        except HiddenFileRefused:
            raise ToolFault(f"{quoted(path)} belongs to this gateway itself, and is not offered") from None
        except FileNotFoundError:
            raise self.missing(path) from None
        except OSError as error:
            raise ToolFault(os_error_text(error, path)) from None

    def missing(self, path: str) -> ToolFault:
        """The fault for a missing file, with a name in its folder that may have been meant."""
        message = f"{quoted(path)} does not exist"
        folder, _, name = path.rstrip("/").rpartition("/")
        try:
            fd = self.open_folder(folder or ("/" if path.startswith("/") else "."))
        except ToolFault:
            return ToolFault(f"{message}: there is no folder {quoted(folder)}" if folder else message)
        try:
            with os.scandir(fd) as entries:
                guess = nearest(name, [entry.name for entry in islice(entries, _COMPARED_NAMES)])
        finally:
            os.close(fd)
        meant = f": did you mean {quoted(posixpath.join(folder, guess))}?" if guess else f" (the root is `{self.path}`)"
        return ToolFault(message + meant)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".", "..")]


def _is_of_repository(folder_fd: int, name: str) -> bool:
    """Whether a file makes its folder a git repository, or names programs in one, whatever the folder is called."""
    if name == HEAD or (name.casefold() in GIT_FILES and _exists(HEAD, folder_fd)):
        return True
    if name.casefold() == HEAD.casefold() and _exists("objects", folder_fd):
        return True  # many file systems take that for the same name
    return os.path.basename(path_of_folder(folder_fd)).casefold() == HOOKS and _exists(f"../{HEAD}", folder_fd)  # noqa: PTH119


def _exists(path: str, folder_fd: int) -> bool:
    with suppress(OSError):
        return bool(os.stat(path, dir_fd=folder_fd, follow_symlinks=False))
    return False


def _protected_link_to(home: str, names: Sequence[str]) -> str:
    """The protected path in the root that is a link to this file, or to a folder above it; empty if there is none."""
    wanted = posixpath.join(home, *names)
    for path in (protected.path for protected in PROTECTED_PATHS):
        listed = posixpath.join(home, path)
        target = os.path.realpath(listed)
        if target != listed and (wanted == target or wanted.startswith(f"{target}/")):
            return path
    return ""


_OS_ERRORS: Final = {
    errno.EACCES: "No permission for {}",
    errno.EPERM: "No permission for {}",
    errno.ENOTDIR: "{} leads through something that is not a folder",
    errno.EISDIR: "{} is a folder, not a file",
    errno.ELOOP: "{} leads through links that cannot be followed",
    errno.ENAMETOOLONG: "{} has a name that is too long, or is nested too deeply",
    errno.ENXIO: "{} is not a regular file",
    errno.ENOSPC: "No space left for {}",
    errno.EDQUOT: "No space left for {}",
    errno.EROFS: "{} is on a read-only file system",
}


def os_error_text(error: OSError, path: str) -> str:
    """What the system refused, as a sentence about this path."""
    if error.errno in _OS_ERRORS:
        return _OS_ERRORS[error.errno].format(quoted(path))
    return f"{quoted(path)}: {error.strerror or error}"


def quoted(path: str) -> str:
    """A path as it is shown in messages: in one line and without control characters."""
    return f"`{printable(path if len(path) <= _LONGEST_QUOTED else path[:_LONGEST_QUOTED] + '…')}`"


@contextmanager
def _closed_on_error(fd: int) -> Generator[None]:
    """Refuses files of the kernel, and closes the descriptor if this or anything after it raises."""
    try:
        refuse_kernel_files(fd)
        yield
    except BaseException:
        os.close(fd)
        raise


def require_regular_file(status: os.stat_result, path: str) -> None:
    """Raises ToolFault or IsADirectoryError."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    raise ToolFault(f"{quoted(path)} is {kinds.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file")
