"""What an isolated agent is told by the project it works in, looked up where its tools may look as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trunkline.agents.instructions import read_instructions
from trunkline.config.found import plugins_file
from trunkline.config.settings import Settings
from trunkline.core.errors import Problem
from trunkline.sources.builtin.own_places import OwnPlaces


def project_instructions(
    folder: Path,
    names: Sequence[str],
    settings: Settings,
    redact: Callable[[str], str],
    warn: Callable[[Problem], None],
) -> str:
    """The text for the agent; empty where there is none. What its tools may not read is not in it either, whatever
    links lead there."""
    own = OwnPlaces(
        folders=(str(settings.gateway.state_dir),),
        files=(str(settings.path.absolute()), str(plugins_file(settings.path))),
        redact=redact,
    )
    found = read_instructions(folder, names, hidden=own.hidden())
    if found.problem is not None:
        warn(found.problem)
    return found.text
