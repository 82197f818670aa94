"""Runs ripgrep, which proposes files to search, and then searches the files that we opened.

ripgrep opens files by their names: while somebody swaps a folder for a link, it can read beyond the root. So what its
walk finds is only a proposal. Whatever is shown, named or counted comes from a second run, which reads descriptors of
files that were opened beneath the root (docs/adr/0019).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat

from trunkline.runtime.rooted_files import RootHandle, refuse_kernel_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    Line = tuple[str, int, str, int]  # path, number, text, and where its match begins (-1: a line around one)

_IGNORE_FILE_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class RootFiles:
    """Opens files and folders below the root; one that cannot be reached without leaving the root does not exist. Paths
    are relative to the root, which itself is the empty one."""

    def __init__(self, beneath: RootHandle) -> None:
        self._beneath = beneath
        self._device = beneath.status(".").st_dev  # on the same device, no file is one of the kernel's

    def open_file(self, path: str) -> int | None:
        """A descriptor of a regular file; None for anything else, and for what cannot be read."""
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
        """Each path that is a regular file, with a number that is the smaller the later the file was changed."""
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        found: list[tuple[int, str]] = []
        for folder, names in by_folder.items():
            fd = self._open(folder or ".", _FOLDER)
            if fd is None:
                continue
            for name in names:
                try:
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except (OSError, ValueError):
                    continue
                if stat.S_ISREG(status.st_mode):
                    found.append((-status.st_mtime_ns, f"{folder}/{name}" if folder else name))
            os.close(fd)
        return found

    def rules_above(self, folder: str) -> str:
        """The ignore rules of all folders above this one as one file in the root, the most important last. Those of git
        end where another repository begins."""
        parts = folder.split("/") if folder else []
        above = of_git = ["".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts))]
        for depth in range(len(parts), 0, -1):
            if self._exists("/".join((*parts[:depth], ".git"))):
                of_git = above[depth:]
                break
        files = ((".git/info/exclude", of_git), (".gitignore", of_git), (".ignore", above), (".rgignore", above))
        return "".join(_rules_of_root(self._read(prefix + name), prefix) for name, there in files for prefix in there)

    def _exists(self, path: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return bool(self._beneath.status(path))
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


def _rules_of_root(text: str, prefix: str) -> str:
    """The rules of an ignore file in the folder `prefix` (it ends in a slash), rewritten for the root."""
    escaped = "".join(f"\\{char}" if char in "\\*?[]{}!# " else char for char in prefix)
    rules: list[str] = []
    for line in text.split("\n"):
        rule = line.removesuffix("\r")
        body = rule.removeprefix("!")
        if not body.strip() or rule.startswith("#"):
            continue
        if prefix:
            anchored = "/" in body.rstrip()[:-1]
            rule = f"{'!' if rule != body else ''}/{escaped}{body.removeprefix('/') if anchored else f'**/{body}'}"
        rules.append(f"{rule}\n")
    return "".join(rules)


_BATCH = 300  # files that are open at a time
_BINARY_BYTES = 8192
_ERROR_BYTES = 2000
_HANDLES = "/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"  # noqa: PTH110
_ALWAYS = ("--no-config", "--color=never", "--no-messages", "--no-ignore-messages")
_WALK = ("--hidden", "--no-require-git", "--no-ignore-parent", "--no-ignore-global", "--null")
_NEVER = tuple(f"--glob=!{name}" for name in (".bzr", ".git", ".hg", ".jj", ".sl", ".svn"))
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NO_LINE_END = re.compile(r"(?:\\[^n]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\n])*", re.DOTALL)  # a set may well hold one


class BadPattern(ValueError):
    """The pattern is not a regular expression; the message shows where."""


class UnknownType(ValueError):
    """There is no such type of files."""


class RipgrepBroken(RuntimeError):
    """It cannot be run here."""


class Ripgrep:
    """One search by ripgrep: first over the tree, then in the files that were opened."""

    def __init__(self, request: Mapping[str, Any], files: RootFiles) -> None:
        self._program: str = request["ripgrep"]
        self._files = files
        self._folder: str = request["folder"]
        self._walk = [*_WALK, *_NEVER, *(["--one-file-system"] if request["whole_disk"] else [])]
        # names as a type of files, which respects ignore rules; globs would override them
        self._names = [f"--type-add=wanted:{name}" for name in request["names"]]
        self._names += ["--type=wanted"] if self._names else []
        self._pattern: str = request.get("pattern", "").replace("\n", "\\n")  # from a file, where a line is a pattern
        self._search = ["--crlf", "--engine=auto"]
        if request.get("type"):
            self._search.append(f"--type={request['type']}")
            self._names = []  # ripgrep would search files of either type
        if request.get("ignore_case"):
            self._search.append("--ignore-case")
        if request.get("multiline"):
            self._search += ["--multiline", "--multiline-dotall"]

    def files(self) -> list[str]:
        """Files that ripgrep proposes after walking the tree."""
        return self._proposed("--files", "--", f"./{self._folder}")

    def candidates(self) -> list[str]:
        """Files that ripgrep proposes as they may match."""
        arguments = [*self._search, "--files-with-matches", "--", f"./{self._folder}"]
        return self._proposed(*arguments, pattern=self._pattern)

    def types(self) -> list[str]:
        """The known types of files."""
        with self._run("--type-list") as run:
            return [line.partition(":")[0] for line in run.read().decode().splitlines()]

    def _proposed(self, *arguments: str, pattern: str | None = None) -> list[str]:
        rules = self._files.rules_above(self._folder)
        with self._run(*self._walk, *self._names, *arguments, pattern=pattern, rules=rules) as run:
            return [path.removeprefix("./") for path in _split(run.read())]

    def matching(self, paths: Sequence[str]) -> Iterator[str]:
        """The files that match, read from descriptors as in what follows."""
        for opened, run in self._search_files(paths, "--files-with-matches", "--null"):
            matching = set(_split(run.read()))
            yield from (path for handle, path in opened.items() if handle in matching)

    def counts(self, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
        for opened, run in self._search_files(paths, "--count", "--null", "--with-filename"):
            counts = dict(line.split("\0") for line in run.read().decode().splitlines())
            yield from ((path, int(counts[handle])) for handle, path in opened.items() if handle in counts)

    def lines(self, paths: Sequence[str], before: int, after: int) -> Iterator[Line]:
        around = (f"--before-context={before}", f"--after-context={after}")
        for opened, run in self._search_files(paths, "--json", "--threads=1", *around):
            for line in run.lines():
                event = json.loads(line)
                if event["type"] in ("match", "context"):
                    yield from _lines_in(event["data"], opened)

    def _search_files(self, paths: Sequence[str], *arguments: str) -> Iterator[tuple[dict[str, str], _RipgrepProcess]]:
        """Runs ripgrep on the text files among these. Yields their paths by the names that ripgrep has for them."""
        for begin in range(0, len(paths), _BATCH):
            with self._opened(paths[begin : begin + _BATCH]) as opened:
                handles = {f"{_HANDLES}/{fd}": path for fd, path in opened.items()}
                if handles:
                    common = (*self._search, "--text", *arguments, "--", *handles)
                    with self._run(*common, pattern=self._pattern, fds=opened) as run:
                        yield handles, run

    @contextlib.contextmanager
    def _opened(self, paths: Sequence[str]) -> Generator[dict[int, str]]:
        opened: dict[int, str] = {}
        try:
            for path in paths:
                fd = self._files.open_file(path)
                if fd is not None:
                    opened[fd] = path
            yield {fd: path for fd, path in opened.items() if not _is_binary(fd)}
        finally:
            for fd in opened:
                os.close(fd)

    def _run(
        self, *arguments: str, pattern: str | None = None, rules: str = "", fds: Iterable[int] = ()
    ) -> _RipgrepProcess:
        texts: dict[str, str] = {}
        if pattern is not None:  # not on the command line, which others can read
            texts["--file"] = f"{pattern}\n"
        if rules:
            texts["--ignore-file"] = rules
        return _RipgrepProcess(self._program, arguments, texts, fds)


def refuse_line_ends(pattern: str) -> None:
    """ripgrep would pass such a pattern to PCRE2, which finds nothing and does not say why."""
    found = _NO_LINE_END.match(pattern)
    if found and pattern.startswith(("\\n", "\n"), found.end()):
        raise BadPattern("a line has no line break in it: set `multiline` to true to match over several lines")


def _is_binary(fd: int) -> bool:
    """A file with a NUL near its beginning is binary, as in git, unless it begins with a mark of UTF-16."""
    try:
        beginning = os.pread(fd, _BINARY_BYTES, 0)
    except OSError:
        return True
    return b"\0" in beginning and not beginning.startswith(_UTF16)


class _RipgrepProcess:
    """One run of ripgrep, which ends with its block at the latest. Options in `texts` get their text as a file."""

    def __init__(self, program: str, arguments: Sequence[str], texts: Mapping[str, str], fds: Iterable[int]) -> None:
        if not os.path.isdir(_HANDLES):  # noqa: PTH112
            raise RipgrepBroken(f"there is no {_HANDLES}")
        pipes = {option: os.pipe() for option in texts}
        options = [f"{option}={_HANDLES}/{reader}" for option, (reader, _) in pipes.items()]
        output, out = os.pipe()
        self._out = os.fdopen(output, "rb")
        self._errors, errors = os.pipe()
        for fd in (*fds, *(reader for reader, _ in pipes.values())):
            os.set_inheritable(fd, True)
        actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
        argv = [program, *_ALWAYS, *options, *arguments]
        try:
            self._pid = os.posix_spawn(program, argv, os.environ, file_actions=actions)
        except OSError as error:
            raise RipgrepBroken(str(error)) from None
        finally:
            for fd in (out, errors, *(reader for reader, _ in pipes.values())):
                os.close(fd)
        for option, (_, writer) in pipes.items():  # a pattern fits into its pipe, so it may be written first
            with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as pipe:
                pipe.write(texts[option].encode("utf-8", "surrogateescape"))

    def __enter__(self) -> _RipgrepProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()
        os.close(self._errors)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # at the end of a session somebody else may have been first
            os.waitpid(self._pid, 0)

    def read(self) -> bytes:
        output = self._out.read()
        self._check()
        return output

    def lines(self) -> Iterator[bytes]:
        yield from self._out
        self._check()

    def _check(self) -> None:
        """Raises for its error messages, once its output has ended. It is told not to report unreadable files."""
        complaint = os.read(self._errors, _ERROR_BYTES).decode("utf-8", "replace")
        if not complaint:
            return
        if "unrecognized file type" in complaint:
            raise UnknownType
        if "regex" not in complaint and "PCRE2" not in complaint:
            raise RipgrepBroken(complaint)
        # the message of its own engine, with the position in the pattern; that of PCRE2 follows
        parsed = re.search(r"regex parse error:\n(.*?)\nerror: ([^\n]*)", complaint, re.DOTALL)
        raise BadPattern(f"{parsed[2]}\n{parsed[1]}" if parsed else complaint.removeprefix("rg: ").strip())


def _split(output: bytes) -> list[str]:
    return os.fsdecode(output).split("\0")[:-1]


def _lines_in(data: dict[str, Any], opened: Mapping[str, str]) -> Iterator[Line]:
    """The lines of one event; a match may have several."""
    path = opened[_bytes_in(data["path"]).decode()]
    raw = _bytes_in(data["lines"])
    matches = data["submatches"]
    at = len(raw[: matches[0]["start"]].decode("utf-8", "replace")) if matches else -1
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n"), data["line_number"]):
        yield path, number, line.removesuffix(b"\r").decode("utf-8", "replace"), at
        at = min(at, 0)


def _bytes_in(value: dict[str, str]) -> bytes:
    if "text" in value:
        return value["text"].encode()
    import base64

    return base64.b64decode(value["bytes"])
