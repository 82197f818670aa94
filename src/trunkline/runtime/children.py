"""Every child process of the gateway: the one place where a program is started.

The work is done by a supervisor process (`supervisor.py`), so that nothing survives the gateway, however it ends. It
is started with the first child, and anew if it was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.runtime.control import close_all
from trunkline.runtime.deadlines import Within
from trunkline.runtime.processes import sees_all_processes
from trunkline.runtime.supervisor_client import (
    EXIT_CODE_WHEN_LOST,
    Exceeded,
    Guarded,
    Held,
    Limits,
    SupervisorLink,
    Ward,
)

if TYPE_CHECKING:
    from trunkline.runtime.launch import Launch
import errno
from typing import Literal

from trunkline.core.errors import DRAINING, SOURCE_START_FAILED, GatewayError, Problem

_SPAWNS_AT_ONCE: Final = 8
_START_LIMIT_S: Final = 10.0
_CLOSE_TERM_S: Final = 2.0
_KILL_LIMIT_S: Final = 12.0  # the supervisor gives up on a process after ten
_ITS_STDIN: Final = "/proc/self/fd/0"
_PIPE_BYTES: Final = 1 << 20
# The kernel grants a user 64 MiB of pipes, and only tiny ones beyond: enlarge those of the first children only.
_CHILDREN_WITH_LARGE_PIPES: Final = 16


class Child:
    """One running program. `stdin`, `stdout`, `stderr` are our ends of its pipes; the caller owns and closes them."""

    def __init__(self, link: SupervisorLink, ward: Ward, pipes: Sequence[int]) -> None:
        self._link = link
        self._ward = ward
        self.pid = ward.pid
        self.exited: asyncio.Future[int] = ward.exited
        """The return code, negative for a signal, once the program has ended (what it started may end later)."""
        self.gone: asyncio.Future[None] = ward.gone
        """Done once everything it started has ended too."""
        self.stdin, self.stdout, self.stderr = pipes

    def others(self) -> dict[str, int]:
        """What else its supervisor holds, also what is just starting or ending: the leaders by tag."""
        return {ward.tag: ward.pid for ward in self._link.wards.values() if ward is not self._ward}

    @property
    def exceeded(self) -> Exceeded | None:
        """What it was ended for, where it was over its limits."""
        return self._ward.exceeded

    @property
    def lost(self) -> bool:
        """Whether its supervisor died before it: how it ended is not known then."""
        return self._link.lost

    async def stop(self, *, grace_s: float = 2.0) -> int:
        """End it and everything it started; its stdin should be closed already. Returns its return code.

        It gets `grace_s` to end by itself, as long again after SIGTERM, then SIGKILL. Cancelling this wait does not
        stop the stopping.
        """
        self._link.stop(self._ward, close_s=grace_s, term_s=grace_s)
        await asyncio.wait([self._ward.gone], timeout=2 * grace_s + _KILL_LIMIT_S)
        return self.exited.result() if self.exited.done() else EXIT_CODE_WHEN_LOST

    def terminate(self, *, term_s: float) -> None:
        """SIGTERM now, and SIGKILL after `term_s`, for it and everything it started. Waits for nothing."""
        self._link.stop(self._ward, close_s=0.0, term_s=term_s)

    def kill(self) -> None:
        """SIGKILL for it and everything it started, now."""
        self._link.kill(self._ward)


class Children:
    """Starts child processes and owns them. `on_fault` hears what went wrong with the supervisor itself."""

    def __init__(self, *, portable: bool = False, on_fault: Callable[[str], None] | None = None) -> None:
        self._portable = portable or not sees_all_processes()
        self._on_fault = on_fault or _ignore
        self._spawning = asyncio.Semaphore(_SPAWNS_AT_ONCE)
        self._links: list[SupervisorLink] = []  # the last may be in use; those before it died and are being buried
        self._held: dict[bytes, Held] = {}
        self._closed = False

    @property
    def supervisor_pid(self) -> int | None:
        """The process that holds the children; None before the first spawn and while there is none."""
        return self._links[-1].pid if self._links and not self._links[-1].lost else None

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | int | None,
        label: str,
        limits: Limits | None = None,
        on_launch: Callable[[asyncio.Future[None]], None] | None = None,
    ) -> Child:
        """Start a program. Raises `GatewayError` when it cannot be started; `label` says whose it is.

        `on_launch` hears at once, also where this is cancelled, of what is done when nothing of it runs any more.

        `cwd` may be an open folder (Linux): the program starts in that very one, and finds it as its stdin, so that it
        has no input. Nobody has to look into our /proc for it, which is closed to others.
        With `limits`, it is ended with everything it started once they use more together.
        """
        if limits is not None and self._portable:
            self._on_fault(f"`limits` of {label} have no effect: this system does not tell what belongs to a program")
            limits = None
        program = _encode(argv, env, _ITS_STDIN if isinstance(cwd, int) else cwd, label, limits)
        async with self._spawning:
            link = self._link(label)
            ours, theirs = _open_pipes(label, large=len(link.wards) < _CHILDREN_WITH_LARGE_PIPES)
            if isinstance(cwd, int):
                os.dup2(cwd, theirs[0], inheritable=False)
            ward = link.launch(program, theirs)
            if on_launch is not None:
                on_launch(ward.gone)
            try:
                await self._wait_started(ward, argv[0], cwd, label)
            except BaseException:
                link.kill(ward)
                close_all(ours)
                raise
        return Child(link, ward, ours)

    def hold(self, folder: Path, label: str) -> None:
        """Have this folder removed, after every child has ended, should we end without having done it.

        Raises `GatewayError` when there is nobody to do it; `label` says whose it is.
        """
        status = folder.lstat()
        held = Held(os.fsencode(folder), status.st_dev, status.st_ino)
        self._link(label).hold(held)
        self._held[held.path] = held

    def release(self, folder: Path) -> None:
        """It is gone, or no longer to be removed."""
        path = os.fsencode(folder)
        self._held.pop(path, None)
        for link in self._links:
            link.release(path)

    def guard(self, label: str) -> Guarded:
        """Have what carries this tag killed should we end without having done it: programs in our own process group,
        which are no children of the supervisor (see `foreground.py`)."""
        return self._link(label).guard(os.getpgrp())

    async def close(self) -> None:
        """End every child (SIGTERM, then SIGKILL) and the supervisor; nothing can be started afterwards."""
        self._closed = True
        try:
            for link in self._links:
                await _stop_all(link)
        finally:
            for link in self._links:
                link.cut()
        for link in self._links:
            await link.end()
        self._links.clear()

    def _link(self, label: str) -> SupervisorLink:
        """The supervisor in use; a new one when there is none yet or it died."""
        if self._closed:
            raise draining(label)
        self._links = [link for link in self._links if not link.buried]
        if not self._links or self._links[-1].lost:
            try:
                self._links.append(SupervisorLink(portable=self._portable, on_fault=self._on_fault))
            except OSError as error:
                raise no_resources(label, "cannot start the supervisor of child processes", error.errno or 0) from error
            for held in self._held.values():
                self._links[-1].hold(held)
        return self._links[-1]

    async def _wait_started(self, ward: Ward, command: str, cwd: str | int | None, label: str) -> None:
        try:
            async with Within(_START_LIMIT_S):
                failure = await ward.started
        except TimeoutError:
            message = f"`{command}` was not running after {_START_LIMIT_S:g} s"
            raise start_failed(label, message, "is its file on a slow or hanging drive?", retryable=True) from None
        if self._closed:
            raise draining(label)
        if failure is not None and failure.step == "supervisor":
            raise lost_while_starting(label, command)
        if failure is not None:
            folder = os.readlink(f"/proc/self/fd/{cwd}") if isinstance(cwd, int) else cwd  # noqa: PTH115
            raise failed_at(label, failure.step, failure.number, command=command, cwd=folder)


def _ignore(fault: str) -> None:
    """Nobody wants to hear."""


async def _stop_all(link: SupervisorLink) -> None:
    wards = list(link.wards.values())
    for ward in wards:
        link.stop(ward, close_s=0.0, term_s=_CLOSE_TERM_S)
    if wards:
        await asyncio.wait([ward.gone for ward in wards], timeout=_CLOSE_TERM_S + 1.0)


def _encode(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, label: str, limits: Limits | None) -> Launch:
    """What exec takes: bytes, none of which may be NUL."""
    if not argv or not argv[0]:
        raise start_failed(label, "no command given", "set `command`")
    try:
        arguments = [os.fsencode(argument) for argument in argv]
        environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        folder = None if cwd is None else os.fsencode(cwd)
    except UnicodeEncodeError:
        raise start_failed(label, "command, environment or `cwd` holds text this system cannot encode") from None
    for text in [*arguments, *environment, *environment.values(), folder or b""]:
        if b"\0" in text:
            raise start_failed(label, "command, environment or `cwd` holds a NUL character")
    for name in environment:
        if not name or b"=" in name:
            raise start_failed(label, f"`{os.fsdecode(name)}` cannot be the name of an environment variable")
    return arguments, environment, folder, limits and (limits[0], limits[1])


def _open_pipes(label: str, *, large: bool) -> tuple[list[int], list[int]]:
    """Our ends and the child's ends of its stdin, stdout and stderr."""
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
    except OSError as error:
        close_all(opened)
        raise no_resources(label, "cannot open pipes", error.errno or 0) from error
    stdin_r, stdin_w, stdout_r, stdout_w, stderr_r, stderr_w = opened
    ours = [stdin_w, stdout_r, stderr_r]
    for fd in ours:
        os.set_blocking(fd, False)
    if large:
        _enlarge(stdin_w)
        _enlarge(stdout_r)
    return ours, [stdin_r, stdout_w, stderr_w]


def _enlarge(pipe: int) -> None:
    """A large pipe carries a large answer in one go."""
    set_size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if set_size is None:
        return
    try:
        fcntl.fcntl(pipe, set_size, _PIPE_BYTES)
    except OSError:
        return  # over the user's share: the pipe works all the same


# Why a program could not be started, in words a person can act on.

_EXEC: Final[dict[int, tuple[str, str]]] = {
    errno.ENOENT: (
        "command not found: `{command}`",
        "install it, or give its full path; it is looked up in the PATH its environment has",
    ),
    errno.EACCES: ("permission denied: `{command}`", "it must be a file that this user may execute (`chmod +x`)"),
    errno.ENOTDIR: ("command not found: `{command}`", "a part of its path is a file, not a folder"),
    errno.ENOEXEC: (
        "not a program this system can run: `{command}`",
        "a script needs a first line like `#!/usr/bin/env python3`; a binary must be built for this machine",
    ),
    errno.E2BIG: ("arguments and environment of `{command}` are too long", "pass large values in a file"),
}


def start_failed(label: str, message: str, hint: str = "", *, retryable: bool = False) -> GatewayError:
    return GatewayError(
        Problem(code=SOURCE_START_FAILED, message=message, where=label, hint=hint, source=label, retryable=retryable)
    )


class LostWhileStarting(GatewayError):
    """Whoever starts programs died before it could tell whether this one runs: it may have."""


def lost_while_starting(label: str, command: str) -> LostWhileStarting:
    message = f"the supervisor died while starting `{command}`"
    return LostWhileStarting(start_failed(label, message, retryable=True).problem)


def draining(label: str) -> GatewayError:
    return GatewayError(
        Problem(
            code=DRAINING, message="the gateway is shutting down and starts nothing more", where=label, source=label
        )
    )


def failed_at(label: str, step: str, number: int, *, command: str, cwd: str | None) -> GatewayError:
    """The error for what the supervisor reports: the step it came to, and the system's error number there."""
    reason = os.strerror(number)
    if step == "chdir":
        return start_failed(label, f"cannot enter the working directory `{cwd}`: {reason}", "check `cwd`")
    if step == "interpreter":
        return start_failed(
            label,
            f"`{command}` is there, but the interpreter it names is not",
            "look at its first line (`#!`), and at the loader a binary was built for",
        )
    if step == "exec" and number in _EXEC:
        message, hint = _EXEC[number]
        return start_failed(label, message.format(command=command), hint)
    return no_resources(label, f"cannot start `{command}`", number)


def no_resources(label: str, what: str, number: int) -> GatewayError:
    hint = "the limit of open files is reached (`ulimit -n`)" if number in (errno.EMFILE, errno.ENFILE) else ""
    if number in (errno.EAGAIN, errno.ENOMEM):
        hint = "the system has no room for more processes; see `ulimit -u` and free memory"
    return start_failed(label, f"{what}: {os.strerror(number)}", hint, retryable=True)


# What a child process finds in its environment: a short list, what the configuration adds, never our own tokens.

_ALWAYS: Final = frozenset(
    (
        *("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    )
)
_ALWAYS_PREFIX: Final = "LC_"
_OWN_PREFIX: Final = "TRUNKLINE_"


def child_environment(
    parent: Mapping[str, str], *, extra: Mapping[str, str], inherit: Sequence[str] | Literal["all"]
) -> dict[str, str]:
    """The environment of a child: from `parent` what is always passed and what `inherit` names, then all of `extra`.

    Our own variables hold our tokens, so no list lets them through; `extra` is written out by the operator and wins.
    """
    passed = {name: value for name, value in parent.items() if _passes(name, inherit)}
    return passed | dict(extra)


def _passes(name: str, inherit: Sequence[str] | Literal["all"]) -> bool:
    if name.startswith(_OWN_PREFIX):
        return False
    return inherit == "all" or name in _ALWAYS or name.startswith(_ALWAYS_PREFIX) or name in inherit
