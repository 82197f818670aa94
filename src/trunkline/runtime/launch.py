"""From a request to a running program: fork, and the way of the forked child to its exec.

Loaded by the supervisor only, so it stays with light imports.
"""

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
    launch: Launch, stdio: list[int], doors: list[int], mark: int | None, prctl: Prctl | None
) -> tuple[int, int]:
    """A new process on its way to its program, and a pipe that closes by the exec or brings the reason it failed.

    By the doors it enters the cgroup that is to bound it. By the mark it is known whose it is.
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
        _become_child(launch, stdio, doors, mark, writer, prctl, parent)
    os.close(writer)
    return pid, reader


def _become_child(
    launch: Launch,
    stdio: list[int],
    doors: list[int],
    mark: int | None,
    report: int,
    prctl: Prctl | None,
    parent: int,
) -> NoReturn:
    """The forked child's way to its own program. Nothing may escape from here: it would be a second supervisor."""
    argv, environment, cwd, _ = launch
    step = "exec"
    try:
        _enter(doors)
        if mark is not None:
            set_owner_mark(mark)
        os.setsid()
        if prctl is not None:
            prctl.die_with(parent)
        for number, fd in enumerate(stdio):  # all above 2, because the supervisor's own 0, 1, 2 are open
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


def _enter(doors: list[int]) -> None:
    """Before anything else, so that all of its memory counts. The supervisor sees whether it worked."""
    for door in doors:
        try:
            os.write(door, b"0")
        except OSError:
            continue


def _reset_signals() -> None:
    """Python ignores SIGPIPE and this program ignores more; ignored signals would stay ignored after exec."""
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL, SIGSTOP, and those the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _file_exists(command: bytes, environment: dict[bytes, bytes]) -> bool:
    """Exec says "no such file" also when the file is there and the interpreter in its first line is not."""
    path = environment.get(b"PATH", os.fsencode(os.defpath))
    candidates = [command] if b"/" in command else [folder + b"/" + command for folder in path.split(b":") if folder]
    return any(os.access(candidate, os.F_OK) for candidate in candidates)
