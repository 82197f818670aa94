"""Runs one program in the terminal's foreground, with our streams and process group; nothing of it is left at its end.

Its orphans become our children, so that they can be found. If we are killed, the supervisor kills everything that has
the program's tag. On systems that do not list all processes, only the program itself is ended.
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
from trunkline.runtime.process_setup import unignored_signals
from trunkline.runtime.processes import (
    TAG,
    Prctl,
    Process,
    process_table,
    sees_all_processes,
    signal_processes,
    with_descendants,
)
from trunkline.runtime.supervisor_client import SUPERVISOR_PIDS

_TERM_S: Final = 2.5
"""From SIGTERM to SIGKILL; with everything before and after, ending takes less than five seconds."""
_KILL_S: Final = 1.0
_LOOK_S: Final = 0.05
_REAP_S: Final = 5.0
_OF_THE_KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT)


async def run_in_foreground(
    children: Children, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, label: str
) -> int:
    """Run a program; returns its return code, negative for a signal. Raises `GatewayError` when it cannot start.

    The keyboard's signals are for the program: the event loop's handlers are still called, but must not end anything.
    Cancelling this ends the program: SIGTERM, then SIGKILL.
    """
    guarded = children.guard(label)
    if sees_all_processes():
        Prctl().become_subreaper()
    before = frozenset(process.pid for process in _own_children())
    try:
        with _terminal_modes_restored(), _keyboard_signals_ignored():
            process = _start(argv, {**env, TAG: guarded.tag}, cwd, label)
            processes = _ProgramProcesses(process.pid, before)
            try:
                return await _wait(process, processes)
            finally:
                await _end(process, processes)
    finally:
        guarded.client.unguard(guarded)


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, label: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, env=env, cwd=cwd)
    except OSError as error:
        step = "chdir" if cwd is not None and not os.path.isdir(cwd) else "exec"  # noqa: PTH112
        raise failed_at(label, step, error.errno or 0, command=argv[0], cwd=cwd) from None


async def _wait(process: subprocess.Popen[bytes], processes: _ProgramProcesses) -> int:
    """Wait for the return code, and reap orphans meanwhile: a long session would fill the process table."""
    reaped_at = time.monotonic()
    rested = False
    while (code := process.poll()) is None:
        await asyncio.sleep(_LOOK_S)
        rested = _stop_with(process, rested)
        if time.monotonic() - reaped_at > _REAP_S:
            processes.reap()
            reaped_at = time.monotonic()
    return code


def _stop_with(process: subprocess.Popen[bytes], was_stopped: bool) -> bool:
    """Stop with the program: one that reads keys itself stops without us on Ctrl+Z, and the shell would wait forever.

    Returns whether it is stopped. Two checks must agree, because a program that is continued with us may take a moment.
    """
    stopped = False
    with contextlib.suppress(ChildProcessError):  # the program has ended
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    if stopped and was_stopped:
        os.kill(os.getpid(), signal.SIGTSTP)  # the shell continues the whole group
        return False
    return stopped


async def _end(process: subprocess.Popen[bytes], processes: _ProgramProcesses) -> None:
    """End the program and everything below it, even if this is cancelled, however often."""
    ending = asyncio.get_running_loop().run_in_executor(None, _end_everything, process, processes)
    while not ending.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ending)


def _end_everything(process: subprocess.Popen[bytes], processes: _ProgramProcesses) -> None:
    """End the program and everything below it. Blocks, for a few seconds at most."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_S)
    deadline = time.monotonic() + _KILL_S
    while (left := processes.alive()) and time.monotonic() < deadline:
        signal_processes(left, signal.SIGKILL)
        processes.reap(at_once=True)
        time.sleep(0.01)
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_S)
    processes.reap(at_once=True)


class _ProgramProcesses:
    """The processes that a program has started: those below it, and its orphans, which became our children."""

    def __init__(self, leader: int, before: frozenset[int]) -> None:
        self._leader = leader
        self._before = before
        self._dead: frozenset[int] = frozenset()

    def alive(self) -> list[Process]:
        return with_descendants(self._tops(), process_table()) if sees_all_processes() else []

    def reap(self, *, at_once: bool = False) -> None:
        """Reap dead orphans. Unless `at_once`, only those that were dead the last time too: others may be children that
        we wait for elsewhere."""
        dead = frozenset(process.pid for process in self._tops() if process.dead and process.pid != self._leader)
        for pid in dead if at_once else dead & self._dead:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._dead = dead

    def _tops(self) -> list[Process]:
        return [process for process in _own_children() if process.pid not in self._before | SUPERVISOR_PIDS]


def _own_children() -> list[Process]:
    if not sees_all_processes():
        return []
    own = os.getpid()
    return [process for process in process_table().values() if process.parent == own]


def _do_nothing(number: int, frame: object) -> None:
    """Handles a signal that is for the program."""


@contextlib.contextmanager
def _keyboard_signals_ignored() -> Generator[None]:
    """Handle the keyboard's signals by doing nothing. Ignoring them instead would make the program ignore them too, as
    it should only if we were started that way."""
    before = {number: signal.signal(number, _do_nothing) for number in unignored_signals(*_OF_THE_KEYBOARD)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _terminal_modes_restored() -> Generator[None]:
    """Restore the terminal's modes: a program that was killed cannot turn the echo on again."""
    modes: list[Any] | None = None
    with contextlib.suppress(termios.error, ValueError, OSError):
        modes = termios.tcgetattr(sys.__stdin__.fileno()) if sys.__stdin__ is not None else None
    try:
        yield
    finally:
        if modes is not None and sys.__stdin__ is not None:
            with contextlib.suppress(termios.error, ValueError, OSError):
                fd = sys.__stdin__.fileno()
                if os.tcgetpgrp(fd) == os.getpgrp():  # otherwise we would be stopped
                    termios.tcsetattr(fd, termios.TCSADRAIN, modes)
