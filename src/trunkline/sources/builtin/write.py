"""Write: makes or replaces a file as a whole, in one step, and keeps its mode, encoding and line endings."""

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

from trunkline.config.call_arguments import StrictArguments, argument
from trunkline.sources.builtin.file_formats import TextFormat, format_size, kind_of, with_newlines
from trunkline.sources.builtin.read import FilePath
from trunkline.sources.builtin.root import RootFolder, os_error_text, quoted, require_regular_file
from trunkline.sources.builtin.tool import BuiltinTool, RunningToolCall, ToolFault, definition, text_result

_LOOKED_AT_BYTES: Final = 1_048_576
_NEW_MODE: Final = 0o666  # less what the umask removes
_WAIT_S: Final = 30.0
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))
"""A file always has the same lock; that two files may share one costs a little waiting and nothing else."""
_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES})
"""File systems that have none, or folders where they are forbidden."""
_OS_ERRORS: Final = {
    errno.ELOOP: "{} was replaced by a link at the same time: try again",
    errno.EBUSY: "{} is a mount point of its own, so it cannot be replaced in one step",
}

_DOC: Final = """Writes a file: makes it, with the folders it needs, or replaces all of its content.

- What was in the file before is gone, so read it first if you have not written it yourself. To change parts of a file use Edit: it sends less and destroys less.
- The file is replaced in one step: nobody ever sees half of it. A file that existed keeps its permissions, its encoding and its line endings (write plain newlines: where the file has CRLF they become CRLF).
- A symbolic link is written through to the file it leads to, inside the root folder only."""  # noqa: E501


class WriteArguments(StrictArguments):
    path: FilePath
    content: Annotated[str, argument("The whole new content of the file", "contents", "file_text", "text")]


class WriteTool(BuiltinTool):
    arguments = WriteArguments
    definition = definition("Write", _DOC, WriteArguments, title="Write a file", destroys=True, idempotent=True)

    async def run(self, arguments: WriteArguments, call: RunningToolCall) -> bytes:
        return await call.in_thread(self._write, arguments.path, arguments.content, call)

    def _write(self, path: str, text: str, call: RunningToolCall) -> bytes:
        with replacing(self._root, path, make_folders=True) as file:
            before, form = file.before, TextFormat()
            if before is not None:
                head = file.read(_LOOKED_AT_BYTES)
                kind = kind_of(head)
                form = form if kind.binary or kind.picture else TextFormat.of(head)
            data = form.encode(with_newlines(text, form.newline) if form.newline == "\r\n" else text)
            file.write(data, call)
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        size = f"{'1 line' if lines == 1 else f'{lines:,} lines'}, {format_size(len(data))}"
        if before is None:
            return text_result(f"Created {quoted(path)}: {size}")
        kept = [form.encoding.upper()] if form.encoding != "utf-8" else []
        kept += ["CRLF line endings"] if form.newline == "\r\n" else []
        unchanged = f"; kept as before: {', '.join(kept)}" if kept else ""
        return text_result(f"Replaced {quoted(path)}: {size} (it had {format_size(before.st_size)}){unchanged}")


class FileReplacement:
    """Replaces one file in a folder that is held open. `before` is the status of the old file, None if there is none;
    `refuse` raises ToolFault if the file may not be written."""

    def __init__(self, folder_fd: int, name: str, path: str, refuse: Callable[[], None]) -> None:
        self._refuse = refuse
        self._folder_fd = folder_fd
        self._name = name
        self._path = path
        self.before = self._status()
        if self.before is not None:
            require_regular_file(self.before, path)

    def _status(self) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._name, dir_fd=self._folder_fd, follow_symlinks=False)
        return None

    def read(self, most_bytes: int) -> bytes:
        """The file's first bytes; its status as they were read becomes `before`."""
        fd = os.open(self._name, os.O_RDONLY | _SAFELY, dir_fd=self._folder_fd)
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

    def write(self, data: bytes, call: RunningToolCall) -> None:
        """Put this in place of what was there `before`, unless that has changed or the call is cancelled."""
        self._check_writable()
        temporary = f".trunkline-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, _NEW_MODE if self.before is None else 0o600, dir_fd=self._folder_fd)
        try:
            try:
                self._fill(fd, data)
            finally:
                os.close(fd)
            if _stamp(self._status()) != _stamp(self.before):
                raise ToolFault(f"{quoted(self._path)} was changed by somebody else at the same time: read it again")
            if call.cancelled:
                raise ToolFault(f"{quoted(self._path)} was not written: the call was cancelled")
            self._put(temporary)
            try:
                # The folder may have been moved to where nothing may be written. If a command moves it from now on, the
                # file is found there when its protected paths are compared.
                self._refuse()
            except ToolFault:
                os.unlink(self._name, dir_fd=self._folder_fd)
                raise
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._folder_fd)
            raise

    def _check_writable(self) -> None:
        """A file that may not be written is not replaced either, although its folder would allow that."""
        if self.before is None:
            return
        try:
            os.close(os.open(self._name, os.O_WRONLY | _SAFELY, dir_fd=self._folder_fd))
        except OSError as error:
            if error.errno != errno.ETXTBSY:  # a program that runs: it keeps its old file
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

    def _put(self, temporary: str) -> None:
        """A new file gets its name only if nobody has taken it; an old one is replaced in one step."""
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


def _stamp(status: os.stat_result | None) -> tuple[int, int, int, int] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@contextlib.contextmanager
def replacing(root: RootFolder, path: str, *, make_folders: bool = False) -> Generator[FileReplacement]:
    """The file that a path leads to, locked against other calls while this lasts. Raises ToolFault."""
    folder_fd, name = root.parent_of(path, make_folders=make_folders)
    try:
        folder = os.fstat(folder_fd)
        lock = _LOCKS[hash((folder.st_dev, folder.st_ino, name)) % len(_LOCKS)]
        if not lock.acquire(timeout=_WAIT_S):
            raise ToolFault(
                f"{quoted(path)} has been in use by another call for {_WAIT_S:.0f} seconds: try again later"
            )
        try:
            refuse = partial(root.refuse_own, folder_fd, name, path)
            refuse()
            yield FileReplacement(folder_fd, name, path, refuse)
        except FileNotFoundError:
            raise root.missing(path) from None
        except OSError as error:
            own_text = _OS_ERRORS.get(error.errno or 0)
            raise ToolFault(own_text.format(quoted(path)) if own_text else os_error_text(error, path)) from None
        finally:
            lock.release()
    finally:
        os.close(folder_fd)
