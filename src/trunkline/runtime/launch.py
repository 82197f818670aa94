"""Forks a child and takes it to the exec of its program. Loaded by the supervisor: imports as little as possible."""

from __future__ import annotations

import errno
import marshal
import os
import signal

from trunkline.runtime.process_trees import set_owner_mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from trunkline.runtime.processes import Prctl
    from trunkline.runtime.resource_limits import Limits

    Launch = tuple[list[bytes], dict[bytes, bytes], bytes | None, Limits | None]  # argv, environment, folder, limits

_HIGHEST_OWN_FD = 256  # far above what one thread with a few pipes can reach


def fork_child(
    launch: Launch, stdio: list[int], cgroup_fds: list[int], mark: int | None, prctl: Prctl | None
) -> tuple[int, int]:
    """Fork a child; returns its pid and a pipe that the exec closes, or that carries the reason why it failed.

    Through `cgroup_fds` the child enters its cgroup; `mark` identifies it and everything that comes from it.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        _become_child(launch, stdio, cgroup_fds, mark, writer, prctl, parent)
    os.close(writer)
    return pid, reader


def _become_child(
    launch: Launch,
    stdio: list[int],
    cgroup_fds: list[int],
    mark: int | None,
    report: int,
    prctl: Prctl | None,
    parent: int,
) -> NoReturn:
    """Turn the forked child into its program. No exception may leave this: it would run on as a second supervisor."""
    argv, environment, cwd, _ = launch
    step = "exec"
    try:
        _enter_cgroup(cgroup_fds)
        if mark is not None:
            set_owner_mark(mark)
        os.setsid()
        if prctl is not None:
            prctl.die_with(parent)
        for number, fd in enumerate(stdio):  # all above 2, because the supervisor has 0, 1 and 2 open
            os.dup2(fd, number)
        os.closerange(3, report)
        os.closerange(report + 1, _HIGHEST_OWN_FD)
        _reset_signals()
        if cwd is not None:
            step = "chdir"
            os.chdir(cwd)
            step = "exec"
        os.execvpe(argv[0], argv, environment)
    except BaseException as error:
        number = getattr(error, "errno", None) or errno.ENOMEM
        if step == "exec" and number == errno.ENOENT and _file_exists(argv[0], environment):
            step = "interpreter"
        os.write(report, marshal.dumps((step, number)))
    finally:
        os._exit(127)


def _enter_cgroup(cgroup_fds: list[int]) -> None:
    """Enter the cgroup before anything else, so that all memory counts. The supervisor checks whether it worked."""
    for fd in cgroup_fds:
        try:
            os.write(fd, b"0")
        except OSError:
            continue


def _reset_signals() -> None:
    """Python ignores SIGPIPE and the supervisor ignores more; ignored signals would stay ignored after the exec."""
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL, SIGSTOP, and those that the C library reserves
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _file_exists(command: bytes, environment: dict[bytes, bytes]) -> bool:
    """Whether the command exists: exec reports "no such file" even if only its interpreter is missing."""
    path = environment.get(b"PATH", os.fsencode(os.defpath))
    candidates = [command] if b"/" in command else [folder + b"/" + command for folder in path.split(b":") if folder]
    return any(os.access(candidate, os.F_OK) for candidate in candidates)
