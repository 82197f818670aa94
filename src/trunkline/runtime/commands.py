"""Runs commands to their end, with bounded output and a process limit; nothing that they started is left.

Commands have a supervisor of their own: whatever a command does to it, or to the process table, no server is lost, and
a process that hides its origin (no environment, no parent) still ends with the last of the commands.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Literal

from trunkline.runtime.child_io import HeadTailBuffer, PipeReader, PipeWriter
from trunkline.runtime.children import Children, SupervisorDied
from trunkline.runtime.deadlines import TimeLimit
from trunkline.runtime.processes import (
    Process,
    process_table,
    read_process,
    sees_all_processes,
    signal_group,
    tag_of,
    with_descendants,
)
from trunkline.runtime.supervisor_client import Child

HEAD_BYTES: Final = 32 << 10
TAIL_BYTES: Final = 128 << 10
PROCESS_LIMIT: Final = 512
_TERM_S: Final = 0.3  # enough to remove a lock file
_GONE_S: Final = 2.0  # a process that survives this long hangs in the kernel: do not wait for it
_LOOK_S: Final = 0.1
_F_GETPATH: Final[int] = getattr(fcntl, "F_GETPATH", 50)
_MAX_PATH_BYTES: Final = 1024
# Output and errors go into one pipe, in the order in which they are written. Without input, stdin would be the working
# folder or a pipe, which some programs would try to read. There are no core files, and when memory runs out, commands
# are killed first. The process limit (`-p` or `-u`, depending on the shell) counts all of the user's processes, and
# does not apply to root.
_LAUNCHER: Final = """\
{ ulimit -c 0; echo 500 >/proc/self/oom_score_adj; ulimit -p "$0" || ulimit -u "$0"; } 2>/dev/null
exec "$@" </dev/null 2>&1"""
_WITH_INPUT: Final = _LAUNCHER.replace("</dev/null ", "")

_LOAD: Final = Path("/proc/loadavg")
_ENVIRONMENT_BYTES: Final = 32 << 10  # a command may have thousands of huge environments, to make the check slow

EndReason = Literal["exited", "timed_out", "too_many_processes", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """What to run. `folder` is the working folder: its path, or the descriptor of an open folder, which nobody can swap
    for another. `stdin` is the input; it must be empty with an open folder."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: str | int
    timeout_s: float
    label: str
    stdin: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended. `code` is negative for a signal, and meaningless unless it `exited` by itself."""

    how: EndReason
    code: int
    output: HeadTailBuffer
    seconds: float


class CommandRunner:
    """Runs commands. `on_fault` is called with what goes wrong with their supervisor."""

    def __init__(
        self,
        *,
        process_limit: int = PROCESS_LIMIT,
        portable: bool = False,
        on_fault: Callable[[str], None] | None = None,
    ) -> None:
        self._children = Children(portable=portable, on_fault=on_fault)
        self._process_limit = process_limit

    @property
    def supervisor_pid(self) -> int | None:
        return self._children.supervisor_pid

    def hold(self, folder: Path, label: str) -> None:
        """Have this folder removed after the last command, in case the gateway is killed."""
        self._children.hold(folder, label)

    def release(self, folder: Path) -> None:
        """Tell the supervisor that this folder is gone."""
        self._children.release(folder)

    async def run(
        self,
        command: CommandSpec,
        on_look: Callable[[HeadTailBuffer], None] | None = None,
        on_launch: Callable[[asyncio.Future[None]], None] | None = None,
    ) -> CommandResult:
        """Run one command until it ends or its time is up; nothing of it is left afterwards.

        `on_look` is called several times a second while it runs. `on_launch` gets a future that is done once nothing of
        it runs any more. Raises `GatewayError` when it cannot be started. Cancelling this ends the command soon after.
        """
        started_at = monotonic()
        launcher = _WITH_INPUT if command.stdin else _LAUNCHER
        tasks = tasks_in_system()  # the kernel counts everything that runs already
        user_limit = "unlimited" if tasks is None else str(tasks + self._process_limit)
        argv = ["/bin/sh", "-c", launcher, user_limit, *command.argv]
        folder = command.folder
        if isinstance(folder, int) and not sees_all_processes():  # only Linux can start in an open folder
            folder = path_of_folder(folder)
        output = HeadTailBuffer(head_bytes=HEAD_BYTES, tail_bytes=TAIL_BYTES)
        try:
            child = await self._children.spawn(
                argv, env=command.env, cwd=folder, label=command.label, on_launch=on_launch
            )
        except SupervisorDied:
            return CommandResult(how="lost", code=0, output=output, seconds=monotonic() - started_at)
        os.close(child.stderr)  # the launcher redirects it to stdout
        feeding = PipeWriter(child.stdin, command.stdin)
        reading = PipeReader(child.stdout, output.add)
        try:
            how = await self._wait(child, started_at + command.timeout_s, lambda: on_look and on_look(output))
            seconds = monotonic() - started_at
            await _end(child, at_once=how == "too_many_processes")
        finally:
            child.terminate(term_s=_TERM_S)  # has no effect unless this was cancelled
            feeding.close()
            reading.close()
        code = child.exited.result() if child.exited.done() else 0
        return CommandResult(how=how, code=code, output=output, seconds=seconds)

    async def close(self) -> None:
        """End every command; nothing can be started afterwards."""
        await self._children.close()

    async def _wait(self, child: Child, deadline: float, on_look: Callable[[], object]) -> EndReason:
        limit = ProcessLimit(self._process_limit, lambda: self._has_too_many(child))
        with suppress(TimeoutError):
            async with TimeLimit(deadline - monotonic()):
                while not child.exited.done():
                    await asyncio.wait([child.exited], timeout=_LOOK_S)
                    if limit.exceeded():
                        return "too_many_processes"
                    on_look()
        if not child.exited.done():
            return "timed_out"
        return "lost" if child.lost else "exited"

    def _has_too_many(self, child: Child) -> bool:
        supervisor = self._children.supervisor_pid
        return supervisor is not None and exceeds_process_limit(
            self._process_limit, leader=child.pid, supervisor=supervisor, others=child.others()
        )


async def _end(child: Child, *, at_once: bool) -> None:
    """End a command with everything it started. If it ended by itself, its supervisor is doing that already."""
    if at_once:
        signal_group(child.pid, signal.SIGKILL)  # all in one step, before the supervisor looks for the rest
        child.kill()
    elif not child.exited.done():
        child.terminate(term_s=_TERM_S)
    await asyncio.wait([child.gone], timeout=_GONE_S)


def path_of_folder(folder: int) -> str:
    """The current path of an open folder."""
    if sees_all_processes():
        return os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115
    path = fcntl.fcntl(folder, _F_GETPATH, bytes(_MAX_PATH_BYTES))  # macOS
    return os.fsdecode(path.partition(b"\0")[0])


def tasks_in_system() -> int | None:
    """The number of processes and threads in the whole system, which is cheap to read; None when it is unknown."""
    try:
        return int(_LOAD.read_bytes().split()[3].partition(b"/")[2])  # "0.13 0.24 0.75 1/96 23213"
    except (OSError, IndexError, ValueError):
        return None


def exceeds_process_limit(limit: int, *, leader: int, supervisor: int, others: Mapping[str, int]) -> bool:
    """Whether a command has more than `limit` processes: those of its leader's session, and whatever else is below the
    supervisor and does not come from `others`, the leaders of other commands by tag.

    A flooded session is noticed first, by looking at the youngest processes only.
    """
    if _session_exceeds(limit, leader):
        return True
    table = process_table()
    # A leader that is starting has no pid yet, and the pid of one that has ended may be this command's by now.
    leaders = set(others.values()) - {0, leader}
    tops = [
        process
        for process in table.values()
        if process.parent == supervisor and not _is_of(process, leaders, tags=others)
    ]
    return len(with_descendants(tops, table)) > limit


def _is_of(process: Process, leaders: Collection[int], *, tags: Iterable[str]) -> bool:
    """Whether a process comes from one of these commands. An orphan without a tag may come from any.

    A process that is killed together with its command has no environment any more; it does not count.
    """
    if process.pid in leaders or process.session in leaders:
        return True
    tag = tag_of(process.pid, within=_ENVIRONMENT_BYTES)
    if not tag:
        now = read_process(process.pid)
        return now is None or now.dead
    return any(f"{tag}/".startswith(f"{other}/") for other in tags)


def _session_exceeds(limit: int, session: int) -> bool:
    pids = sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)  # noqa: PTH208
    count = 0
    for pid in pids[: 2 * limit]:
        process = read_process(pid)
        count += process is not None and process.session == session and not process.dead
        if count > limit:
            return True
    return False


class ProcessLimit:
    """Notices a command that starts processes without end. `look`, which is slow, is called only once the number of
    tasks in the system has grown by more than the limit."""

    def __init__(self, limit: int, look: Callable[[], bool]) -> None:
        self._limit = limit
        self._look = look
        self._before = tasks_in_system()

    def exceeded(self) -> bool:
        if self._before is None:
            return False
        now = tasks_in_system() or 0
        if now - self._before <= self._limit:
            return False
        self._before = now  # if others are growing, the next look is that much later
        return self._look()
