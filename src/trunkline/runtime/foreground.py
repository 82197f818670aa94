"""One program in the terminal's foreground: it has our streams, our process group and the keyboard; at its end nothing
that it started is left.

Its processes come to us when they lose their parents, so that they can be found; should we be killed, the supervisor
kills what carries the program's tag. Where the system does not tell about all processes, the program alone is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from trunkline.runtime.children import Children, failed_at
from trunkline.runtime.own_process import heeded
from trunkline.runtime.processes import (
    TAG,
    Prctl,
    Process,
    process_table,
    sees_all_processes,
    signal_processes,
    with_descendants,
)
from trunkline.runtime.supervisor_client import LIVING

_TERM_S: Final = 2.5
"""From SIGTERM to SIGKILL: together with what comes before and after it less than five seconds."""
_KILL_S: Final = 1.0
_LOOK_S: Final = 0.05
_REAP_S: Final = 5.0
_OF_THE_KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT)


async def run_in_foreground(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, label: str
) -> int:
    """Its return code, negative for a signal. Raises `GatewayError` when it cannot start; `label` says whose it is.

    The keyboard's signals are the program's meanwhile: handlers that the event loop has for them are still called, and
    must not end anything. Cancelling this ends the program: SIGTERM, then SIGKILL.
    """
    guarded = children.guard(label)
    if sees_all_processes():
        Prctl().become_subreaper()
    before = frozenset(process.pid for process in _children_of_ours())
    try:
        with _terminal_as_it_was(), _keyboard_left_alone():
            process = _start(argv, {**env, TAG: guarded.tag}, cwd, label)
            below = _Below(process.pid, before)
            try:
                return await _ended(process, below)
            finally:
                await _to_its_end(process, below)
    finally:
        guarded.link.unguard(guarded)


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, label: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, env=env, cwd=cwd)
    except OSError as error:
        step = "chdir" if cwd is not None and not os.path.isdir(cwd) else "exec"  # noqa: PTH112
        raise failed_at(label, step, error.errno or 0, command=argv[0], cwd=cwd) from None


async def _ended(process: subprocess.Popen[bytes], below: _Below) -> int:
    """Its return code; meanwhile what came to us and died is taken, or a long session would fill the process table."""
    reaped_at = time.monotonic()
    rested = False
    while (code := process.poll()) is None:
        await asyncio.sleep(_LOOK_S)
        rested = _rest_with(process, rested)
        if time.monotonic() - reaped_at > _REAP_S:
            below.reap()
            reaped_at = time.monotonic()
    return code


def _rest_with(process: subprocess.Popen[bytes], was_stopped: bool) -> bool:
    """Stop as it has: one that reads the keys itself stops for Ctrl+Z without us, and the shell would wait for ever.

    Whether it is stopped now. Seen at two looks, because one that is continued with us may be so a moment later.
    """
    stopped = False
    with contextlib.suppress(ChildProcessError):  # it has ended
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    if stopped and was_stopped:
        os.kill(os.getpid(), signal.SIGTSTP)  # the shell continues the whole group
        return False
    return stopped


async def _to_its_end(process: subprocess.Popen[bytes], below: _Below) -> None:
    """However often this is cancelled meanwhile."""
    ending = asyncio.get_running_loop().run_in_executor(None, _end_everything, process, below)
    while not ending.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ending)


def _end_everything(process: subprocess.Popen[bytes], below: _Below) -> None:
    """Blocks, for a few seconds at most."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_S)
    deadline = time.monotonic() + _KILL_S
    while (left := below.alive()) and time.monotonic() < deadline:
        signal_processes(left, signal.SIGKILL)
        below.reap(at_once=True)
        time.sleep(0.01)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_S)
    below.reap(at_once=True)


class _Below:
    """What a program has started: below it, or come to us since then."""

    def __init__(self, leader: int, before: frozenset[int]) -> None:
        self._leader = leader
        self._before = before
        self._dead: frozenset[int] = frozenset()

    def alive(self) -> list[Process]:
        return with_descendants(self._tops(), process_table()) if sees_all_processes() else []

    def reap(self, *, at_once: bool = False) -> None:
        """Take what is dead; what was not dead at the last look already may be a child of ours, which we wait for
        elsewhere."""
        dead = frozenset(process.pid for process in self._tops() if process.dead and process.pid != self._leader)
        for pid in dead if at_once else dead & self._dead:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._dead = dead

    def _tops(self) -> list[Process]:
        return [process for process in _children_of_ours() if process.pid not in self._before | LIVING]


def _children_of_ours() -> list[Process]:
    if not sees_all_processes():
        return []
    own = os.getpid()
    return [process for process in process_table().values() if process.parent == own]


def _nothing(number: int, frame: object) -> None:
    """Is done."""


@contextlib.contextmanager
def _keyboard_left_alone() -> Generator[None]:
    """With handlers that do nothing: a signal that is ignored would stay so in the program, and does where whoever
    started us wants that."""
    before = {number: signal.signal(number, _nothing) for number in heeded(*_OF_THE_KEYBOARD)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _terminal_as_it_was() -> Generator[None]:
    """A program that was killed cannot turn the echo of keys on again."""
    modes: list[Any] | None = None
    with contextlib.suppress(termios.error, ValueError, OSError):
        modes = termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ is not None else None
    try:
        yield
    finally:
        if modes is not None and sys.__stdin__ is not None:
            with contextlib.suppress(termios.error, ValueError, OSError):
                fd = sys.__stdin__.fileno()
                if os.tcgetpgrp(fd) == os.getpgrp():  # anything else would stop us
                    termios.tcsetattr(fd, termios.TCSADRAIN, modes)
