"""Why a program could not be started, in words a person can act on."""

from __future__ import annotations

import errno
import os
from typing import Final

from trunkline.core.errors import DRAINING, SOURCE_START_FAILED, GatewayError, Problem

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
