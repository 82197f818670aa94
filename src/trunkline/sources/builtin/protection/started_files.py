"""The files that a configuration has started or read: programs, their scripts, and where values are taken from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.config.trust.own_programs import code_named, is_interpreter

_RUNS: Final = ("run", "tool", "script")


def started_files(settings: Settings) -> tuple[str, ...]:
    """They need not exist, and may lie anywhere."""
    found = [str(path) for path in settings.files]
    for section in settings.sources.values():
        command: str = getattr(section, "command", "") or ""
        cwd: Path = getattr(section, "cwd", None) or Path()
        args = [arg for arg in getattr(section, "args", ()) if "\0" not in arg]
        # other files that a program is given may be its data, which it writes itself: to undo that would lose it
        found += [*_files_of(command, args, cwd), *code_named(command, args, getattr(section, "env", {}), str(cwd))]
    return tuple(dict.fromkeys(os.path.abspath(path) for path in found))  # noqa: PTH100 - links are followed later


def roots_of(settings: Settings) -> tuple[str, ...]:
    """The folders that built-in tools work in."""
    found = (getattr(section, "root", None) for section in settings.sources.values())
    return tuple(os.path.abspath(root) for root in found if isinstance(root, Path))  # noqa: PTH100 - links follow later


def folders_of(section: SourceSection) -> list[Path]:
    """Where the commands of built-in tools can write."""
    root: Path | None = getattr(section, "root", None)
    shown = getattr(getattr(section, "sandbox", None), "folders", ())
    return [] if root is None else [root, *shown]


def lie_below(folders: Iterable[Path], paths: Iterable[str]) -> bool:
    """Whether one of these paths lies in one of the folders, by its name or by where links lead."""
    spellings = {spelling for path in paths for spelling in (path, os.path.realpath(path))}
    within = {f"{real(folder).rstrip('/')}/" for folder in folders for real in (os.path.abspath, os.path.realpath)}
    return any(f"{path}/".startswith(folder) for path in spellings for folder in within)


def _files_of(command: str, args: Sequence[str], cwd: Path) -> Iterator[str]:
    if "/" in command:
        yield os.path.join(cwd, command)  # noqa: PTH118
    if is_interpreter(command):
        words = [arg for arg in args if arg and not arg.startswith("-")]
        paths = [os.path.join(cwd, word) for word in words]  # noqa: PTH118
        first = next((path for path in paths if os.path.isfile(path) or os.path.basename(path) not in _RUNS), "")  # noqa: PTH113, PTH119
        if os.path.isfile(first) and "-m" not in args:  # noqa: PTH113
            yield first
