"""Takes something back from quarantine to its place, once its user has said so."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trunkline.core.errors import NOT_ACCEPTED, GatewayError, Problem
from trunkline.sources.builtin.protection.handles import link_at, parent_of, read_at
from trunkline.sources.builtin.protection.kept import LARGEST_BYTES, digest_of
from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine, Taken
from trunkline.sources.builtin.protection.sessions import Sessions
from trunkline.sources.builtin.protection.watch import STATE, commands_folder


def accept(state_dir: Path, taken: Taken, *, force: bool, home: Path) -> Taken | None:
    """Put it back. What stands there by now goes into quarantine in its turn, and is returned. Raises GatewayError
    where a command runs below that folder, or somebody else has changed the place and `force` does not say to go on."""
    quarantine = Quarantine(state_dir / FOLDER)
    sessions = Sessions(commands_folder(str(home), state_dir / STATE))
    try:
        with sessions.alone():
            running, _ = sessions.others(forget=False)
            if any(other.covers(taken.path) for other in running):
                raise _refused(taken, "an agent's command runs below that folder", "wait until it has ended")
            standing = _standing(taken)
            if standing != taken.left and not force:
                raise _refused(taken, "that place has changed since", "compare the two; `--force` takes it back")
            instead = None if standing == "" else quarantine.take(taken.base, taken.path, "changed", "accepted instead")
            try:
                quarantine.put_back(taken)
            except OSError:
                if instead is not None:
                    quarantine.put_back(instead)
                raise
            return instead
    except OSError as error:
        raise _refused(taken, error.strerror or str(error), "") from error


def _standing(taken: Taken) -> str:
    """What stands at the place now, as it is told apart; empty for nothing."""
    try:
        with parent_of(taken.base, taken.path) as (parent, name):
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(status.st_mode):
        return link_at(taken.base, taken.path)
    data = read_at(taken.base, taken.path, LARGEST_BYTES)
    return "something else" if data is None else digest_of(data)


def _refused(taken: Taken, why: str, hint: str) -> GatewayError:
    message = f"`{taken.id}` was not taken back: {why}"
    return GatewayError(Problem(code=NOT_ACCEPTED, message=message, where=taken.path, hint=hint))


def of_all(state_dirs: list[Path]) -> list[tuple[Path, Taken]]:
    """Everything in these folders, the oldest first."""
    found = [(state_dir, taken) for state_dir in state_dirs for taken in Quarantine(state_dir / FOLDER).all()]
    return sorted(found, key=lambda pair: pair[1].at)
