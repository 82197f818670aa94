"""Starts every child process of the gateway: its environment, its pipes, and why it could not be started.

The children belong to a supervisor process (`supervisor.py`), so that none of them survives the gateway, however it
ends. The supervisor is started with the first child, and again if it was killed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from trunkline.core.errors import DRAINING, SOURCE_START_FAILED, GatewayError, Problem
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.processes import sees_all_processes
from trunkline.runtime.supervisor_channel import close_all
from trunkline.runtime.supervisor_client import Child, CleanupFolder, GuardedProgram, Limits, SupervisorClient

if TYPE_CHECKING:
    from trunkline.runtime.launch import Launch

_SPAWNS_AT_ONCE: Final = 8
_START_LIMIT_S: Final = 10.0
_CLOSE_TERM_S: Final = 2.0
_ITS_STDIN: Final = "/proc/self/fd/0"
_PIPE_BYTES: Final = 1 << 20
# The kernel grants each user 64 MiB of pipe buffers, and tiny ones beyond that: only the first children get large ones.
_CHILDREN_WITH_LARGE_PIPES: Final = 16
_ALWAYS: Final = frozenset(  # the variables that every child inherits
    (
        *("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER", "LOGNAME", "SHELL"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    )
)
_ALWAYS_PREFIX: Final = "LC_"
_OWN_PREFIX: Final = "TRUNKLINE_"
_EXEC: Final[dict[int, tuple[str, str]]] = {  # why an exec failed, and a hint
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


class Children:
    """Starts and owns child processes. `on_fault` is called with what goes wrong with the supervisor itself."""

    def __init__(self, *, portable: bool = False, on_fault: Callable[[str], None] | None = None) -> None:
        self._portable = portable or not sees_all_processes()
        self._on_fault: Callable[[str], None] = on_fault or (lambda _: None)
        self._spawning = asyncio.Semaphore(_SPAWNS_AT_ONCE)
        self._clients: list[SupervisorClient] = []  # the last may be in use; the others died and are cleaned up after
        self._cleanup_folders: dict[bytes, CleanupFolder] = {}
        self._closed = False

    @property
    def supervisor_pid(self) -> int | None:
        """The pid of the supervisor; None before the first spawn and while there is none."""
        return self._clients[-1].pid if self._clients and not self._clients[-1].lost else None

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
        """Start a program. Raises `GatewayError` when it cannot be started; `label` names its owner in messages.

        `on_launch` gets, even if this is cancelled, a future that is done once nothing of the program runs any more.
        `cwd` may be the descriptor of an open folder (Linux): the program starts in that very folder, which is its
        stdin, so it has no input. (It could not open it through our /proc, which is closed to others.)
        With `limits`, the program is ended with everything it started once they use more together.
        """
        if limits is not None and self._portable:
            self._on_fault(f"`limits` of {label} have no effect: this system cannot list the processes of a program")
            limits = None
        program = _encode(argv, env, _ITS_STDIN if isinstance(cwd, int) else cwd, label, limits)
        async with self._spawning:
            client = self._current_client(label)
            ours, theirs = _open_pipes(label, large=len(client.children) < _CHILDREN_WITH_LARGE_PIPES)
            if isinstance(cwd, int):
                os.dup2(cwd, theirs[0], inheritable=False)
            child = client.launch(program, theirs, ours)
            if on_launch is not None:
                on_launch(child.gone)
            try:
                await self._wait_started(child, argv[0], cwd, label)
            except BaseException:
                child.kill()
                close_all(ours)
                raise
        return child

    def hold(self, folder: Path, label: str) -> None:
        """Have the supervisor remove this folder after every child has ended, in case the gateway is killed.

        Raises `GatewayError` when the supervisor cannot be started.
        """
        status = folder.lstat()
        cleanup_folder = CleanupFolder(os.fsencode(folder), status.st_dev, status.st_ino)
        self._current_client(label).hold(cleanup_folder)
        self._cleanup_folders[cleanup_folder.path] = cleanup_folder

    def release(self, folder: Path) -> None:
        """Tell the supervisor that this folder is gone, or no longer to be removed."""
        path = os.fsencode(folder)
        self._cleanup_folders.pop(path, None)
        for client in self._clients:
            client.release(path)

    def guard(self, label: str) -> GuardedProgram:
        """Have the supervisor kill a program of our own process group (`foreground.py`) if the gateway is killed."""
        return self._current_client(label).guard(os.getpgrp())

    async def close(self) -> None:
        """End every child (SIGTERM, then SIGKILL) and the supervisor; nothing can be started afterwards."""
        self._closed = True
        try:
            for client in self._clients:
                children = list(client.children.values())
                for child in children:
                    child.terminate(term_s=_CLOSE_TERM_S)
                if children:
                    await asyncio.wait([child.gone for child in children], timeout=_CLOSE_TERM_S + 1.0)
        finally:
            for client in self._clients:
                client.cut()
        for client in self._clients:
            await client.end()
        self._clients.clear()

    def _current_client(self, label: str) -> SupervisorClient:
        """The supervisor in use; a new one if there is none yet or it died."""
        if self._closed:
            raise draining(label)
        self._clients = [client for client in self._clients if not client.ended]
        if not self._clients or self._clients[-1].lost:
            try:
                self._clients.append(SupervisorClient(portable=self._portable, on_fault=self._on_fault))
            except OSError as error:
                raise no_resources(label, "cannot start the supervisor of child processes", error.errno or 0) from error
            for cleanup_folder in self._cleanup_folders.values():
                self._clients[-1].hold(cleanup_folder)
        return self._clients[-1]

    async def _wait_started(self, child: Child, command: str, cwd: str | int | None, label: str) -> None:
        try:
            async with TimeLimit(_START_LIMIT_S):
                failure = await child.started
        except TimeoutError:
            message = f"`{command}` was not running after {_START_LIMIT_S:g} s"
            raise start_failed(label, message, "is its file on a slow or hanging drive?", retryable=True) from None
        if self._closed:
            raise draining(label)
        if failure is not None and failure.step == "supervisor":
            message = f"the supervisor died while starting `{command}`"
            raise SupervisorDied(start_failed(label, message, retryable=True).problem)
        if failure is not None:
            folder = os.readlink(f"/proc/self/fd/{cwd}") if isinstance(cwd, int) else cwd  # noqa: PTH115
            raise failed_at(label, failure.step, failure.number, command=command, cwd=folder)


def _encode(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, label: str, limits: Limits | None) -> Launch:
    """The program as exec takes it: bytes without NUL."""
    if not argv or not argv[0]:
        raise start_failed(label, "no command given", "set `command`")
    try:
        arguments = [os.fsencode(argument) for argument in argv]
        environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        folder = None if cwd is None else os.fsencode(cwd)
    except UnicodeEncodeError:
        message = "command, environment or `cwd` contains text that this system cannot encode"
        raise start_failed(label, message) from None
    for text in [*arguments, *environment, *environment.values(), folder or b""]:
        if b"\0" in text:
            raise start_failed(label, "command, environment or `cwd` contains a NUL character")
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
    set_size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if large and set_size is not None:  # a large pipe carries a large response in one go
        with suppress(OSError):  # the user's share is used up: the pipes work all the same
            fcntl.fcntl(stdin_w, set_size, _PIPE_BYTES)
            fcntl.fcntl(stdout_r, set_size, _PIPE_BYTES)
    return ours, [stdin_r, stdout_w, stderr_w]


def child_environment(
    parent: Mapping[str, str], *, extra: Mapping[str, str], inherit: Sequence[str] | Literal["all"]
) -> dict[str, str]:
    """The environment of a child: from `parent` what is always inherited and what `inherit` names, then `extra`.

    Our own variables hold our tokens, so `inherit` never passes them on; `extra` is what the operator wrote, and wins.
    """

    def passes(name: str) -> bool:
        if name.startswith(_OWN_PREFIX):
            return False
        return inherit == "all" or name in _ALWAYS or name.startswith(_ALWAYS_PREFIX) or name in inherit

    return {name: value for name, value in parent.items() if passes(name)} | dict(extra)


def start_failed(label: str, message: str, hint: str = "", *, retryable: bool = False) -> GatewayError:
    return GatewayError(
        Problem(code=SOURCE_START_FAILED, message=message, where=label, hint=hint, source=label, retryable=retryable)
    )


class SupervisorDied(GatewayError):
    """The supervisor died before it reported whether the program runs; it may have run."""


def draining(label: str) -> GatewayError:
    return GatewayError(
        Problem(
            code=DRAINING, message="the gateway is shutting down and starts nothing more", where=label, source=label
        )
    )


def failed_at(label: str, step: str, number: int, *, command: str, cwd: str | None) -> GatewayError:
    """The error for a start that failed at `step` with the system's error `number`."""
    reason = os.strerror(number)
    if step == "chdir":
        return start_failed(label, f"cannot enter the working directory `{cwd}`: {reason}", "check `cwd`")
    if step == "interpreter":
        return start_failed(
            label,
            f"`{command}` exists, but its interpreter does not",
            "check its first line (`#!`), or for a binary, the loader it was built for",
        )
    if step == "exec" and number in _EXEC:
        message, hint = _EXEC[number]
        return start_failed(label, message.format(command=command), hint)
    return no_resources(label, f"cannot start `{command}`", number)


def no_resources(label: str, what: str, number: int) -> GatewayError:
    hint = "the limit of open files is reached (`ulimit -n`)" if number in (errno.EMFILE, errno.ENFILE) else ""
    if number in (errno.EAGAIN, errno.ENOMEM):
        hint = "the system cannot take more processes; check `ulimit -u` and free memory"
    return start_failed(label, f"{what}: {os.strerror(number)}", hint, retryable=True)
