"""Has the protected places compared around every command, and tells what was undone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from trunkline.core.errors import PLACE_UNDONE, PLACES_NOT_COMPARED
from trunkline.core.source import Level
from trunkline.sources.builtin.protection.places import ProtectedPlaces
from trunkline.sources.builtin.protection.undoing import Undone
from trunkline.sources.builtin.protection.watch import Mounts, Outcome, PlaceWatch, WatchedCommand
from trunkline.sources.builtin.root import shown
from trunkline.sources.builtin.threads import Threads
from trunkline.sources.builtin.tool import ToolFault

T = TypeVar("T")
Note = Callable[[Level, str, str, Mapping[str, object]], None]

_GONE_S: Final = 10.0
_CLOSE_S: Final = 15.0
_MOST_TOLD: Final = 20
_EVENT: Final = "protected_places"
_NO_MOUNTS: Final = Mounts({}, ())


class PlaceGuard:
    """For the commands that run below `root`; none of them is compared where there are no `places`.

    It has a thread of its own, so that what waits for the disk here keeps no other tool waiting.
    """

    def __init__(
        self, root: str, places: ProtectedPlaces | None, state_dir: Path, note: Note | None, home: str = ""
    ) -> None:
        self._root = root
        self._note = note
        self._watch = None if places is None else PlaceWatch([(root, places)], state_dir, self._told, home=home)
        self._threads = Threads("protection", 2)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._warned = False

    async def begin(self) -> GuardedCommand:
        """Look at the places before a command runs. Raises ToolFault where that is not possible."""
        if self._watch is None:
            return GuardedCommand(self, None)
        looking = self._own(self._threads.run(self._watch.begin))
        try:
            return GuardedCommand(self, await asyncio.shield(looking))
        except asyncio.CancelledError:
            self._own(self._end_when_begun(looking))
            raise
        except OSError as error:
            raise ToolFault(
                f"No command runs, because protected places cannot be compared: {error.strerror or error}. Where"
                " that is wanted all the same, set `protect: off` in the configuration"
            ) from None

    async def close(self) -> None:
        """No command begins any more. What is still to be compared is, within a time."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CLOSE_S)
        await self._threads.close()

    def end(self, command: WatchedCommand, gone: Sequence[asyncio.Future[None]]) -> asyncio.Task[str]:
        """Compare once nothing of the command runs any more, also where nobody waits for that."""
        return self._own(self._end(command, gone))

    async def _end(self, command: WatchedCommand, gone: Sequence[asyncio.Future[None]]) -> str:
        if gone:
            await asyncio.wait(gone, timeout=_GONE_S)
        try:
            outcome = await self._threads.run(command.end)
        except OSError as error:
            words = f"Protected places could not be compared after a command: {error.strerror or error}"
            self._tell("error", words, PLACES_NOT_COMPARED.id)
            return words
        return self._outcome(outcome)

    async def _end_when_begun(self, looking: asyncio.Task[WatchedCommand]) -> None:
        try:
            command = await looking
        except OSError:
            return
        await self._end(command, ())

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name="protected places")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever waits for it is told

    # -- what is told -----------------------------------------------------------------------------------------------

    def _outcome(self, outcome: Outcome) -> str:
        """For whoever called."""
        if not outcome.complete and not self._warned:
            self._warned = True
            self._told(
                f"Below {self._root} there are more folders than are looked at after a command, or some that cannot be"
                " looked into: protected places in them are not compared"
            )
        for one in outcome.undone:
            level: Level = "error" if one.failed else "warning"
            self._tell(level, sentence(one), PLACE_UNDONE.id, path=one.path, id=one.id)
        return words_for(outcome.undone)

    def _told(self, message: str) -> None:
        self._tell("warning", message, PLACES_NOT_COMPARED.id)

    def _tell(self, level: Level, message: str, code: str, **fields: object) -> None:
        if self._note is not None:
            self._note(level, _EVENT, message, {"code": code, **fields})


class GuardedCommand:
    """One command: `launched` hears when something of it will be gone, and `end` is asked for whatever became of it."""

    def __init__(self, guard: PlaceGuard, command: WatchedCommand | None) -> None:
        self._guard = guard
        self._command = command
        self._gone: list[asyncio.Future[None]] = []

    @property
    def mounts(self) -> Mounts:
        """For its sandbox, which it then has to have."""
        if self._command is None:
            return _NO_MOUNTS
        self._command.mounted()
        return self._command.mounts

    def launched(self, gone: asyncio.Future[None]) -> None:
        self._gone.append(gone)

    async def end(self) -> str:
        """What is to be told whoever called. Where that one is cancelled, it goes on to its end all the same."""
        if self._command is None:
            return ""
        command, self._command = self._command, None
        return await asyncio.shield(self._guard.end(command, self._gone))


# -- words -------------------------------------------------------------------------------------------------------------


def words_for(undone: Sequence[Undone]) -> str:
    """For a model: what became of its work, and what can be done about it."""
    if not undone:
        return ""
    lines = [
        "Protected places were changed. Programs outside the sandbox act on these files, so the changes were undone:",
        *(f"- {sentence(one)}" for one in undone[:_MOST_TOLD]),
    ]
    if len(undone) > _MOST_TOLD:
        lines.append(f"- and {len(undone) - _MOST_TOLD:,} more")
    lines.append("Carry on without them. If one is needed, ask the user to review it with `trunkline protect`.")
    return "\n".join(lines)


def sentence(one: Undone) -> str:
    keys = f" ({', '.join(shown(key) for key in one.keys)})" if one.keys else ""
    kept = f"; `trunkline protect accept {one.id}` brings the change back" if one.id else ""
    if one.failed:
        return f"{shown(one.path)}{keys} could not be undone: {one.failed}{kept}"
    if one.how == "gone":
        again = "was restored" if one.restored else "could not be restored"
        return f"{shown(one.path)} had been removed and {again}"
    became = "was restored" if one.restored else "was moved to quarantine"
    if one.keys and one.restored:
        became = "has its former settings again"
    if one.how == "changed" and not one.restored:
        became = "was moved to quarantine, as its former content is not known"
    return f"{shown(one.path)}{keys} {became}{kept}"
