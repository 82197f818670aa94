"""ripgrep, at arm's length: it may say where to look, and it may look into files that we opened, and no more.

It opens files by their names, so while somebody swaps a folder for a link, it can read beyond the root. What it says
after walking a tree is therefore only a hint. What is shown comes from a second run, on handles of files that were
opened without leaving the root.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal

from trunkline.sources.builtin.search.gitignore import NEVER_SHOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

_READ_BYTES = 1 << 18
_HINT_BYTES = 1 << 16
_ERROR_BYTES = 2000
_HANDLES = "/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"  # noqa: PTH110
_ALWAYS = ("--no-config", "--color=never", "--no-messages", "--no-ignore-messages")
_WALK = (
    *("--hidden", "--no-require-git", "--no-ignore-parent", "--no-ignore-global", "--null"),
    *(f"--glob=!{name}" for name in sorted(NEVER_SHOWN)),
)


class RipgrepRefused(ValueError):
    """It did not take the pattern; the text is its own."""


class RipgrepBroken(RuntimeError):
    """It cannot be used here: too old, not for this machine, or without handles to look at."""


class Ripgrep:
    """`program` is its path. The folder it walks is the working directory of this process."""

    def __init__(self, program: str, *, whole_disk: bool) -> None:
        if not os.path.isdir(_HANDLES):  # noqa: PTH112
            raise RipgrepBroken(f"there is no {_HANDLES}")
        self._program = program
        self._walk = (*_WALK, "--one-file-system") if whole_disk else _WALK

    # -- hints ----------------------------------------------------------------------------------------------------

    def files(self, names: Sequence[str], hint: str) -> list[str]:
        """Paths from the working directory. `names` are globs for their names, none means any; `hint` holds ignore
        rules from further up."""
        with _Run(self._program, [*_ALWAYS, *self._walk, *_only(names), "--files"], hints=hint) as run:
            found = _paths(run.read())
            run.check()
        return found

    def candidates(self, search: Search, names: Sequence[str], hint: str) -> list[str]:
        """Files that may match, otherwise as `files`."""
        arguments = [*_ALWAYS, *self._walk, *_only(names), "--files-with-matches", *search.flags]
        with _Run(self._program, [*arguments, "--", "./"], pattern=search.pattern, hints=hint) as run:
            found = _paths(run.read())
            run.check()
        return [path.removeprefix("./") for path in found]

    def check(self, search: Search) -> None:
        """Raises `RipgrepRefused` when it does not take the pattern."""
        with _Run(self._program, [*_ALWAYS, "--quiet", *search.flags, "--", os.devnull], pattern=search.pattern) as run:
            run.read()
            run.check()

    # -- what is shown --------------------------------------------------------------------------------------------

    def matching(self, search: Search, fds: Sequence[int]) -> list[int]:
        """Those of the open files that match, in order."""
        with self._look(search, fds, ["--files-with-matches", "--null"]) as run:
            matching = {_handle(path) for path in _paths(run.read())}
        return [fd for fd in fds if fd in matching]

    def counts(self, search: Search, fds: Sequence[int]) -> list[tuple[int, int]]:
        with self._look(search, fds, ["--count", "--null", "--with-filename"]) as run:
            lines = run.read().decode().splitlines()
        counts = {_handle(path): int(count) for path, _, count in (line.partition("\0") for line in lines)}
        return [(fd, counts[fd]) for fd in fds if fd in counts]

    def lines(self, search: Search, fds: Sequence[int], before: int, after: int) -> Iterator[tuple[int, int, str, int]]:
        """Handle, line number, line and where its match begins (-1 for the lines around), as they come."""
        arguments = ["--json", "--threads=1", f"--before-context={before}", f"--after-context={after}"]
        with self._look(search, fds, arguments) as run:
            for line in run.lines():
                event = json.loads(line)
                if event["type"] in ("match", "context"):
                    yield from _shown(event["data"])

    def _look(self, search: Search, fds: Sequence[int], arguments: Sequence[str]) -> _Run:
        handles = [f"{_HANDLES}/{fd}" for fd in fds]
        common = [*_ALWAYS, "--text", *search.flags, *arguments]
        return _Run(self._program, [*common, "--", *handles], pattern=search.pattern, fds=fds)


class Search:
    """What to look for, as ripgrep takes it."""

    def __init__(self, pattern: str, *, ignore_case: bool, multiline: bool) -> None:
        self.pattern = pattern.replace("\n", "\\n")  # it comes from a file, where a line is a pattern
        self.flags = ["--crlf", "--engine=auto"]
        self.flags += ["--ignore-case"] if ignore_case else []
        self.flags += ["--multiline", "--multiline-dotall"] if multiline else []


class _Run:
    """One run. It is over, at the latest, when the block that holds it ends."""

    def __init__(
        self,
        program: str,
        arguments: list[str],
        *,
        pattern: str | None = None,
        hints: str = "",
        fds: Sequence[int] = (),
    ) -> None:
        inherited: list[int] = []
        if pattern is not None:  # not on the command line, which others can read
            inherited.append(_filled_pipe(pattern + "\n"))
            arguments = [*arguments[:1], f"--file={_HANDLES}/{inherited[-1]}", *arguments[1:]]
        if hints:
            inherited.append(_filled_pipe(hints))
            arguments = [*arguments[:1], f"--ignore-file={_HANDLES}/{inherited[-1]}", *arguments[1:]]
        self._out, out = os.pipe()
        self._errors, errors = os.pipe()
        try:
            for fd in (*inherited, *fds):
                os.set_inheritable(fd, True)
            actions = [(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
            self._pid = os.posix_spawn(program, [program, *arguments], os.environ, file_actions=actions)
        except OSError as error:
            os.close(self._out)
            os.close(self._errors)
            raise RipgrepBroken(str(error)) from None
        finally:
            for fd in (*inherited, out, errors):
                os.close(fd)

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        os.close(self._errors)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # at the end of a session somebody else may have been first
            os.waitpid(self._pid, 0)

    def read(self) -> bytes:
        return b"".join(self._chunks())

    def lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines

    def _chunks(self) -> Iterator[bytes]:
        while chunk := os.read(self._out, _READ_BYTES):
            yield chunk

    def check(self) -> None:
        """What it complains of, once its output has ended: not of files that cannot be read, it was told."""
        complaint = os.read(self._errors, _ERROR_BYTES)
        if complaint:
            _complain(complaint.decode("utf-8", "replace"))


def _complain(complaint: str) -> NoReturn:
    if "regex" not in complaint and "PCRE2" not in complaint:
        raise RipgrepBroken(complaint)
    # What its own engine says, with the place in the pattern; it goes on with what the other one says.
    parsed = re.search(r"regex parse error:\n(.*?)\nerror: ([^\n]*)", complaint, re.DOTALL)
    raise RipgrepRefused(f"{parsed[2]}\n{parsed[1]}" if parsed else complaint.removeprefix("rg: ").strip())


def _filled_pipe(text: str) -> int:
    """A handle to read a short text from."""
    data = text.encode("utf-8", "surrogateescape")[:_HINT_BYTES]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        written = os.write(writer, data)
    finally:
        os.close(writer)
    if written < len(data):
        os.close(reader)
        raise OSError("a pipe is too small for a pattern")
    return reader


def _only(names: Sequence[str]) -> list[str]:
    """Only files of these names. As a type of files, which respects ignore rules where a glob would overrule them."""
    if not names:
        return []
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]


def _paths(output: bytes) -> list[str]:
    return os.fsdecode(output).split("\0")[:-1]


def _handle(path: str) -> int:
    return int(path.rpartition("/")[2])


def _shown(data: dict[str, Any]) -> Iterator[tuple[int, int, str, int]]:
    fd = _handle(_bytes(data["path"]).decode())
    raw = _bytes(data["lines"])
    matches = data["submatches"]
    at = len(raw[: matches[0]["start"]].decode("utf-8", "replace")) if matches else -1
    number = data["line_number"]
    for line in raw.removesuffix(b"\n").split(b"\n"):
        yield fd, number, line.removesuffix(b"\r").decode("utf-8", "replace"), at
        number += 1
        at = min(at, 0)


def _bytes(value: dict[str, str]) -> bytes:
    if "text" in value:
        return value["text"].encode()
    import base64

    return base64.b64decode(value["bytes"])
