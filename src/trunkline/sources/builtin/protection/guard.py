"""Guards commands from the event loop: has the changes of each tracked, and reports what was undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from trunkline.core.errors import CHANGE_UNDONE, PATHS_NOT_COMPARED
from trunkline.core.source import Level
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.protection.snapshots import ProtectiveMounts
from trunkline.sources.builtin.protection.tracker import ChangeTracker, TrackedCommand, UndoOutcome
from trunkline.sources.builtin.protection.undo import UndoneChange
from trunkline.sources.builtin.root import quoted
from trunkline.sources.builtin.tool import ToolFault, WorkerThreads

T = TypeVar("T")
Notify = Callable[[Level, str, str, Mapping[str, object]], None]

_EXIT_S: Final = 10.0
_CLOSE_S: Final = 15.0
_MOST_REPORTED: Final = 20
_EVENT: Final = "protected_paths"


class CommandGuard:
    """Guards the commands that run below `root`; does nothing if there are no `protected` paths.

    It has threads of its own, so that other tools do not wait while it waits for the disk.
    """

    def __init__(
        self, root: str, protected: ProtectedPaths | None, state_dir: Path, note: Notify | None, home: str = ""
    ) -> None:
        self._root = root
        self._note = note
        self._tracker = None if protected is None else ChangeTracker(root, protected, state_dir, self._warn, home=home)
        self._threads = WorkerThreads("protection", 2)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._warned = False

    async def begin(self) -> GuardedCommand:
        """Take a snapshot before a command runs. Raises ToolFault if that is not possible."""
        if self._tracker is None:
            return GuardedCommand(self, None)
        beginning = self._start(self._threads.run(self._tracker.begin))
        try:
            return GuardedCommand(self, await asyncio.shield(beginning))
        except asyncio.CancelledError:
            self._start(self._end_when_begun(beginning))
            raise
        except OSError as error:
            raise ToolFault(
                f"No command was run, because protected paths cannot be compared: {error.strerror or error}. To run"
                " commands anyway, set `protect: off` in the configuration"
            ) from None

    async def close(self) -> None:
        """No command begins any more. Comparisons that are due are finished, within a time limit."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CLOSE_S)
        await self._threads.close()

    def end(self, command: TrackedCommand, exited: Sequence[asyncio.Future[None]]) -> asyncio.Task[str]:
        """Compare once nothing of the command runs any more, whether or not anyone waits for it."""
        return self._start(self._end(command, exited))

    async def _end(self, command: TrackedCommand, exited: Sequence[asyncio.Future[None]]) -> str:
        if exited:
            await asyncio.wait(exited, timeout=_EXIT_S)
        try:
            outcome = await self._threads.run(command.end)
        except OSError as error:
            message = f"Protected paths could not be compared after a command: {error.strerror or error}"
            self._report("error", message, PATHS_NOT_COMPARED.id)
            return message
        return self._reported(outcome)

    async def _end_when_begun(self, beginning: asyncio.Task[TrackedCommand]) -> None:
        try:
            command = await beginning
        except OSError:
            return
        await self._end(command, ())

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name="protected paths")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it: the awaiting caller gets it

    def _reported(self, outcome: UndoOutcome) -> str:
        """Log what was undone, and return it as text for the caller."""
        if not outcome.complete and not self._warned:
            self._warned = True
            self._warn(
                f"Below {self._root} there are more folders than are scanned after a command, or some that cannot be"
                " read: protected paths in them are not compared"
            )
        for one in outcome.undone:
            level: Level = "error" if one.failed else "warning"
            self._report(level, undone_sentence(one), CHANGE_UNDONE.id, path=one.path, id=one.id)
        return undone_text(outcome.undone)

    def _warn(self, message: str) -> None:
        self._report("warning", message, PATHS_NOT_COMPARED.id)

    def _report(self, level: Level, message: str, code: str, **fields: object) -> None:
        if self._note is not None:
            self._note(level, _EVENT, message, {"code": code, **fields})


class GuardedCommand:
    """One command: give `launched` a future for each process, and call `end` however the command went."""

    def __init__(self, guard: CommandGuard, command: TrackedCommand | None) -> None:
        self._guard = guard
        self._command = command
        self._exited: list[asyncio.Future[None]] = []

    @property
    def mounts(self) -> ProtectiveMounts:
        """The mounts that the command's sandbox must make."""
        if self._command is None:
            return ProtectiveMounts()
        self._command.is_mounted = True
        return self._command.before.mounts

    def launched(self, exited: asyncio.Future[None]) -> None:
        self._exited.append(exited)

    async def end(self) -> str:
        """The text for the caller. Even if the caller is cancelled, the comparison runs to its end."""
        if self._command is None:
            return ""
        command, self._command = self._command, None
        return await asyncio.shield(self._guard.end(command, self._exited))


# -- texts -------------------------------------------------------------------------------------------------------------


def undone_text(undone: Sequence[UndoneChange]) -> str:
    """For a model: what was undone of its work, and what can be done about it."""
    if not undone:
        return ""
    lines = [
        "Protected paths were changed. Programs outside the sandbox act on these files, so the changes were undone:",
        *(f"- {undone_sentence(one)}" for one in undone[:_MOST_REPORTED]),
    ]
    if len(undone) > _MOST_REPORTED:
        lines.append(f"- and {len(undone) - _MOST_REPORTED:,} more")
    lines.append("Carry on without them. If one is needed, ask the user to review it with `trunkline protect`.")
    return "\n".join(lines)


def undone_sentence(one: UndoneChange) -> str:
    keys = f" ({', '.join(quoted(key) for key in one.keys)})" if one.keys else ""
    accept = f"; `trunkline protect accept {one.id}` brings the change back" if one.id else ""
    if one.failed:
        return f"{quoted(one.path)}{keys} could not be undone: {one.failed}{accept}"
    if one.how == "gone":
        return f"{quoted(one.path)} had been removed and {'was' if one.restored else 'could not be'} restored"
    result = "was restored" if one.restored else "was moved to quarantine"
    if one.keys and one.restored:
        result = "was restored to its former settings"
    if one.how == "changed" and not one.restored:
        result = "was moved to quarantine, as its former content is not known"
    return f"{quoted(one.path)}{keys} {result}{accept}"
