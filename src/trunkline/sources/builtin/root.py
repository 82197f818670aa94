"""The folder that the tools work in: whatever path an agent writes, what is opened lies below it or nothing is.

How that is ensured is `links/beneath`; here its refusals become words that an agent can act on.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.config.problems import nearest
from trunkline.runtime.commands import path_of_folder
from trunkline.runtime.rooted_files import (
    HiddenFileRefused,
    KernelFileRefused,
    PathEscapesRoot,
    RootHandle,
    lies_in,
    refuse_kernel_files,
)
from trunkline.sources.builtin.protection.places import (
    GIT_FILES,
    HEAD,
    HOOKS,
    PLACES,
    ProtectedPlaces,
    protected_place_at,
)
from trunkline.sources.builtin.text_length import printable
from trunkline.sources.builtin.tool import ToolFault

if TYPE_CHECKING:
    from collections.abc import Generator
import re

from trunkline.config.secrets import has_literal_secret

# What belongs to the gateway itself: folders that no tool may look into, and files that none may write.
#
# The files say what the gateway runs. They may be read, unless a secret is written out in them.

_LARGEST_BYTES: Final = 1 << 20
_REFERENCE: Final = re.compile(r"\$\{\w+\}")
"""A secret that stands elsewhere; its name is none."""


class GatewayFiles:
    """`folders` and `files` need not exist, and may lie anywhere. `redact` takes secrets out of a text."""

    def __init__(
        self,
        *,
        folders: Sequence[str] = (),
        files: Sequence[str] = (),
        redact: Callable[[str], str] = str,
    ) -> None:
        self.folders = list(folders)
        self._files = files
        self._redact = redact

    def hide(self, folder: str) -> None:
        """One that was made just now."""
        if folder not in self.folders:
            self.folders.append(folder)

    def is_file(self, folder_fd: int, name: str) -> bool:
        """Whether this name in a folder is one of the files, also where there is none yet, or is another name of one.

        Upper and lower case count as the same, as on many a file system they are.
        """
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
        """Whether an open file is one of the files, and holds a secret."""
        there = os.fstat(fd)
        return any(_is(there, file) and self._holds_secret(file) for file in self._files)

    def hidden(self) -> list[str]:
        """Everything that must not be looked into at this moment."""
        return [*self.folders, *filter(self._holds_secret, self._files)]

    def _holds_secret(self, file: str) -> bool:
        try:
            if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116
                return False  # a pipe, which was read once and for all
            with Path(file).open("rb") as opened:
                words = opened.read(_LARGEST_BYTES).decode("utf-8", "replace")
        except OSError:
            return False
        without = _REFERENCE.sub(",", words)
        return self._redact(without) != without or has_literal_secret(words, Path(file))


def _is(there: os.stat_result, path: str) -> bool:
    try:
        return os.path.samestat(there, os.stat(path))  # noqa: PTH116
    except OSError:
        return False


_LONGEST_PATH: Final = 4096
_SHOWN: Final = 200
_COMPARED: Final = 2000
_CAREFULLY: Final = os.O_NONBLOCK | os.O_NOCTTY
"""Between the look at a file and its opening a pipe or a terminal may take its place: neither may hold us up."""


class OutsideRoot(ToolFault):
    """The path leads out of the root folder."""


class RootMissing(ToolFault):
    """There is no root folder at the moment."""


class RootFolder:
    """`own` are the gateway's own files and folders, wherever they are, and `protected` what no tool may write.
    `walk_only` leaves the kernel's own way unused, as on systems that have none."""

    def __init__(
        self,
        path: Path | str,
        *,
        own: GatewayFiles | None = None,
        protected: ProtectedPlaces | None = None,
        walk_only: bool = False,
    ) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - links in it are followed anew each time, not once
        self.own = own or GatewayFiles()
        self.protected = protected
        self._walk_only = walk_only

    def trouble(self) -> str:
        """Why there is no such folder to work in; empty when there is, or when nobody can tell just now."""
        try:
            self._open().close()
        except RootMissing as missing:
            return str(missing)
        except ToolFault:
            return ""
        return ""

    # -- opening --------------------------------------------------------------------------------------------------

    def open_file(self, path: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of a regular file that exists. Raises ToolFault."""
        self._check(path)
        if path.endswith("/"):
            raise ToolFault(f"{quoted(path)} names a folder, not a file")
        with self._open() as beneath, self._in_words(path):
            require_regular_file(beneath.status(path), path)
            fd = beneath.open(path, flags | _CAREFULLY)
            return _checked(fd, lambda: self._check_readable(fd, path))

    def open_folder(self, path: str = ".") -> int:
        """A descriptor of a folder, for listing it and for opening what is in it. Raises ToolFault."""
        self._check(path or ".")
        with self._open() as beneath, self._in_words(path):
            fd = beneath.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
            return _checked(fd, lambda: None)

    def parent_of(self, path: str, *, make_folders: bool = False) -> tuple[int, str]:
        """Where a file is or would be, links followed: its folder's descriptor and its name there. Raises ToolFault."""
        self._check(path)
        if path.endswith("/"):
            raise ToolFault(f"{quoted(path)} names a folder, not a file")
        with self._open() as beneath, self._in_words(path):
            check = partial(self._refuse_protected, path=path, folder=True)
            folder_fd, name = beneath.resolve(path, make_folders=make_folders, check=check)
            return _checked(folder_fd, lambda: self._check_place(folder_fd, name, path)), name

    def refuse_own(self, folder_fd: int, name: str, path: str) -> None:
        """Raises ToolFault where this place is one that no tool may write."""
        if self.own.is_file(folder_fd, name):
            raise ToolFault(
                f"{quoted(path)} says what this gateway runs, so no tool of its own changes it: ask a person to"
            )
        self._refuse_protected(folder_fd, name, path)

    def _refuse_protected(self, folder_fd: int, name: str, path: str, *, folder: bool = False) -> None:
        """Where this place really lies counts, and how the path to it is written, since a place may be a link."""
        if self.protected is None:
            return
        home = os.path.realpath(self.path)
        real = _names(os.path.relpath(posixpath.join(path_of_folder(folder_fd), name), home))
        wrong = protected_place_at(real, self.protected) or _led_to(home, real, self.protected)
        wrong = wrong or protected_place_at(_names(self._below(path)), self.protected)
        if not wrong and not folder and _is_of_repository(folder_fd, name):
            wrong = posixpath.join(*real)
        if wrong:
            raise ToolFault(
                f"{quoted(path)} was not written: {quoted(wrong)} is a protected place: programs outside the sandbox"
                " act on it. Ask a person to make this change; `protect` in the configuration says what counts"
            )

    def _below(self, path: str) -> str:
        """A path as it is written, from the root, without going by the disk."""
        for home in (self.path, os.path.realpath(self.path)):
            if path.startswith(f"{home}/"):
                path = path[len(home) :]
        return posixpath.normpath(path.lstrip("/"))

    def name_of(self, path: str) -> str:
        """The path as shown to people: relative to the root, `.` for the root itself. Raises ToolFault."""
        self._check(path or ".")
        with self._open() as beneath, self._in_words(path):
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
            # Without a descriptor to spare nobody knows whether the folder is there, and it probably is.
            unknown = error.errno in (errno.EMFILE, errno.ENFILE)
            message = f"The root folder `{self.path}` cannot be opened: {error.strerror}"
            raise (ToolFault if unknown else RootMissing)(message) from None

    # -- what went wrong ------------------------------------------------------------------------------------------

    def _check(self, path: str) -> None:
        if not path:
            raise ToolFault("The path is empty")
        if "\0" in path:
            raise ToolFault("The path holds a NUL character")
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise ToolFault(f"The path is longer than {_LONGEST_PATH} bytes")

    def _check_place(self, folder_fd: int, name: str, path: str) -> None:
        if name == ".":
            raise ToolFault(f"{quoted(path)} is a folder, not a file")
        if lies_in(folder_fd, self.own.folders):  # it was not there before, or nobody could have come this far
            raise HiddenFileRefused

    def _check_readable(self, fd: int, path: str) -> None:
        require_regular_file(os.fstat(fd), path)
        if self.own.is_secret(fd):
            raise ToolFault(
                f"{quoted(path)} holds secrets of this gateway, so no tool of its own shows it: ask a person"
            )

    @contextmanager
    def _in_words(self, path: str) -> Generator[None]:
        try:
            yield
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
        """There is no such file: the fault that says so."""
        return ToolFault(f"{quoted(path)} does not exist{self._instead(path)}")

    def _instead(self, path: str) -> str:
        """A name in the same folder that may have been meant, or the first folder that is missing."""
        folder, _, name = path.rstrip("/").rpartition("/")
        try:
            fd = self.open_folder(folder or ("/" if path.startswith("/") else "."))
        except ToolFault:
            return f": there is no folder {quoted(folder)}" if folder else ""
        try:
            with os.scandir(fd) as entries:
                guess = nearest(name, [entry.name for entry in islice(entries, _COMPARED)])
        finally:
            os.close(fd)
        return f": did you mean {quoted(posixpath.join(folder, guess))}?" if guess else f" (the root is `{self.path}`)"


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".", "..")]


def _is_of_repository(folder_fd: int, name: str) -> bool:
    """Whether a file makes its folder a git repository, or is one of those that name programs in the folder of one,
    whatever that is called."""
    if name == HEAD or (name.casefold() in GIT_FILES and _exists(HEAD, folder_fd)):
        return True
    if name.casefold() == HEAD.casefold() and _exists("objects", folder_fd):
        return True  # on many a file system that is the same name
    return os.path.basename(path_of_folder(folder_fd)).casefold() == HOOKS and _exists(f"../{HEAD}", folder_fd)  # noqa: PTH119


def _exists(path: str, folder_fd: int) -> bool:
    try:
        os.stat(path, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _led_to(home: str, names: Sequence[str], protected: ProtectedPlaces) -> str:
    """The listed place in the root that is a link to this file, or to a folder above it."""
    place = posixpath.join(home, *names)
    for path in (place.path for place in PLACES):
        listed = posixpath.join(home, path)
        target = os.path.realpath(listed)
        if target != listed and (place == target or place.startswith(f"{target}/")):
            return path
    return ""


def os_error_text(error: OSError, path: str) -> str:
    """What the system refused, as a sentence about this path."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return f"No permission for {quoted(path)}"
        case errno.ENOTDIR:
            return f"{quoted(path)} leads through something that is not a folder"
        case errno.EISDIR:
            return f"{quoted(path)} is a folder, not a file"
        case errno.ELOOP:
            return f"{quoted(path)} leads through links that cannot be followed"
        case errno.ENAMETOOLONG:
            return f"{quoted(path)} has a name that is too long, or is nested too deeply"
        case errno.ENXIO:
            return f"{quoted(path)} is not a regular file"
        case errno.ENOSPC | errno.EDQUOT:
            return f"No space left for {quoted(path)}"
        case errno.EROFS:
            return f"{quoted(path)} is on a read-only file system"
        case _:
            return f"{quoted(path)}: {error.strerror or error}"


def quoted(path: str) -> str:
    """In one line and without a terminal's codes, whatever it holds."""
    return f"`{printable(path if len(path) <= _SHOWN else path[:_SHOWN] + '…')}`"


def _checked(fd: int, check: Callable[[], None]) -> int:
    """The descriptor once it has passed; it is closed when it has not."""
    try:
        refuse_kernel_files(fd)
        check()
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_regular_file(status: os.stat_result, path: str) -> None:
    """Raises what says that it is no regular file."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    raise ToolFault(f"{quoted(path)} is {kinds.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file")
