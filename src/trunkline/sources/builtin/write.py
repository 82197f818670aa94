"""Write: a file made or replaced as a whole, in one step, with the mode, encoding and line endings it had."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Annotated, Final

from trunkline.config.call_arguments import Arguments, about
from trunkline.sources.builtin.file_formats import TextFormat, kind_of, size_in_words, with_newlines
from trunkline.sources.builtin.read import FilePath
from trunkline.sources.builtin.root import RootFolder, os_error_text, quoted, require_regular_file
from trunkline.sources.builtin.tool import RunningToolCall, ToolContext, ToolFault, definition, text_result

_LOOKED_AT_BYTES: Final = 1_048_576

_DOC: Final = """Writes a file: makes it, with the folders it needs, or replaces all of its content.

- What was in the file before is gone, so read it first if you have not written it yourself. To change parts of a file use Edit: it sends less and destroys less.
- The file is replaced in one step: nobody ever sees half of it. A file that existed keeps its permissions, its encoding and its line endings (write plain newlines: where the file has CRLF they become CRLF).
- A symbolic link is written through to the file it leads to, inside the root folder only."""  # noqa: E501


class WriteArguments(Arguments):
    path: FilePath
    content: Annotated[str, about("The whole new content of the file", "contents", "file_text", "text")]


class WriteTool:
    arguments = WriteArguments
    definition = definition("Write", _DOC, WriteArguments, title="Write a file", destroys=True, idempotent=True)

    def __init__(self, place: ToolContext) -> None:
        self._root = place.root

    async def run(self, arguments: WriteArguments, call: RunningToolCall) -> bytes:
        return await call.in_thread(self._write, arguments.path, arguments.content, call)

    def _write(self, path: str, words: str, call: RunningToolCall) -> bytes:
        with replacing(self._root, path, make_folders=True) as place:
            style = TextFormat() if place.before is None else _style(place)
            data = style.encode(with_newlines(words, style.newline) if style.newline == "\r\n" else words)
            before = place.before
            place.write(data, call)
        size = f"{_lines(words)}, {size_in_words(len(data))}"
        if before is None:
            return text_result(f"Created {quoted(path)}: {size}")
        return text_result(f"Replaced {quoted(path)}: {size} (it had {size_in_words(before.st_size)}){_kept(style)}")


def _style(place: FileReplacement) -> TextFormat:
    """How the file is written so far. One without line ends, or that is no text, has nothing to keep."""
    head = place.read(_LOOKED_AT_BYTES)
    kind = kind_of(head)
    return TextFormat() if kind.binary or kind.picture else TextFormat.of(head)


def _kept(style: TextFormat) -> str:
    kept = [style.encoding.upper()] if style.encoding != "utf-8" else []
    kept += ["CRLF line endings"] if style.newline == "\r\n" else []
    return f"; kept as before: {', '.join(kept)}" if kept else ""


def _lines(words: str) -> str:
    count = words.count("\n") + (not words.endswith("\n") and bool(words))
    return "1 line" if count == 1 else f"{count:,} lines"


# One place for a file: its folder, held open, and its name there. What is written appears whole or not at all.

_NEW_MODE: Final = 0o666  # less what the umask takes
_WAIT_S: Final = 30.0
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))
"""One file has always the same lock; that two files may share one costs a little waiting and nothing else."""
_GENTLY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES})
"""File systems that have none, or folders where they are forbidden."""

Stamp = tuple[int, int, int, int]


class FileReplacement:
    """`before` is what the file was when the place was taken; None when there was none. `refuse` raises ToolFault where
    the place is one that may not be written."""

    def __init__(self, folder_fd: int, name: str, path: str, refuse: Callable[[], None]) -> None:
        self.before: os.stat_result | None = None
        self._refuse = refuse
        self._folder_fd = folder_fd
        self._name = name
        self._path = path

    def look(self) -> None:
        try:
            self.before = os.stat(self._name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            self.before = None
        else:
            require_regular_file(self.before, self._path)

    def read(self, most_bytes: int) -> bytes:
        """The file's first bytes, and what it was when they were read as `before`."""
        fd = os.open(self._name, os.O_RDONLY | _GENTLY, dir_fd=self._folder_fd)
        try:
            self.before = os.fstat(fd)
            require_regular_file(self.before, self._path)
            parts: list[bytes] = []
            while most_bytes > 0 and (part := os.read(fd, most_bytes)):
                parts.append(part)
                most_bytes -= len(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes, call: RunningToolCall) -> None:
        """Put this in place of what was there `before`, or nothing if that has changed or nobody waits any more."""
        self._check_allowed()
        temporary = f".trunkline-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, _NEW_MODE if self.before is None else 0o600, dir_fd=self._folder_fd)
        try:
            try:
                self._fill(fd, data)
            finally:
                os.close(fd)
            self._check_unchanged(call)
            self._put(temporary)
            self._check_still_allowed()
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._folder_fd)
            raise

    def _check_allowed(self) -> None:
        """A file that may not be written is not replaced either, although its folder would allow that."""
        if self.before is None:
            return
        try:
            os.close(os.open(self._name, os.O_WRONLY | _GENTLY, dir_fd=self._folder_fd))
        except OSError as error:
            if error.errno != errno.ETXTBSY:  # a program that runs: it keeps its old file
                raise

    def _check_still_allowed(self) -> None:
        """The folder may have been moved to where nothing may be written. A command that does so from now on finds the
        file there itself, when its protected places are compared."""
        try:
            self._refuse()
        except ToolFault:
            os.unlink(self._name, dir_fd=self._folder_fd)
            raise

    def _fill(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if self.before is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(fd, self.before.st_uid, self.before.st_gid)
            os.fchmod(fd, stat.S_IMODE(self.before.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
        os.fsync(fd)

    def _check_unchanged(self, call: RunningToolCall) -> None:
        try:
            now = _stamp(os.stat(self._name, dir_fd=self._folder_fd, follow_symlinks=False))
        except FileNotFoundError:
            now = None
        if now != (None if self.before is None else _stamp(self.before)):
            raise ToolFault(f"{quoted(self._path)} was changed by somebody else at the same time: read it again")
        if call.cancelled:
            raise ToolFault(f"{quoted(self._path)} was not written: the call was given up")

    def _put(self, temporary: str) -> None:
        """A new file takes its name only if nobody has taken it; an old one is replaced in one step."""
        if self.before is None:
            try:
                os.link(temporary, self._name, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)
            except FileExistsError:
                raise ToolFault(f"{quoted(self._path)} was made by somebody else at the same time: read it") from None
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
            else:
                os.unlink(temporary, dir_fd=self._folder_fd)
                return
        os.rename(temporary, self._name, src_dir_fd=self._folder_fd, dst_dir_fd=self._folder_fd)


@contextlib.contextmanager
def replacing(root: RootFolder, path: str, *, make_folders: bool = False) -> Generator[FileReplacement]:
    """The place that a path leads to, for as long as this lasts; of two who want the same, one waits."""
    folder_fd, name = root.parent_of(path, make_folders=make_folders)
    try:
        with _turn(folder_fd, name, path):
            try:
                refuse = partial(root.refuse_own, folder_fd, name, path)
                refuse()
                place = FileReplacement(folder_fd, name, path, refuse)
                place.look()
                yield place
            except FileNotFoundError:
                raise root.missing(path) from None
            except OSError as error:
                raise ToolFault(_words(error, path)) from None
    finally:
        os.close(folder_fd)


@contextlib.contextmanager
def _turn(folder_fd: int, name: str, path: str) -> Generator[None]:
    folder = os.fstat(folder_fd)
    lock = _LOCKS[hash((folder.st_dev, folder.st_ino, name)) % len(_LOCKS)]
    if not lock.acquire(timeout=_WAIT_S):
        raise ToolFault(f"{quoted(path)} has been worked on by another call for {_WAIT_S:.0f} seconds: try again later")
    try:
        yield
    finally:
        lock.release()


def _words(error: OSError, path: str) -> str:
    if error.errno == errno.ELOOP:
        return f"{quoted(path)} was replaced by a link at the same time: try again"
    if error.errno == errno.EBUSY:
        return f"{quoted(path)} is a mount point of its own, so it cannot be replaced in one step"
    return os_error_text(error, path)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
