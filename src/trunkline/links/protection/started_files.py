"""The files that a configuration has started or read: programs, their scripts, and where values are taken from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from trunkline.config.settings import Settings

_INTERPRETER: Final = re.compile(r"(?:python|pypy|node|deno|bun|tsx|ruby|perl|php|(?:ba|da|z|k)?sh|uv|go|java)[\d.]*\Z")
_CODE: Final = re.compile(r"\.(?:[cm]?[jt]sx?|pyw?|pyz|rb|p[lm]|php|(?:ba|da|z|k)?sh|jar|go|env)\Z", re.IGNORECASE)
"""Other files that a program is given may be its data, which it writes itself: to undo that would lose it."""
_RUNS: Final = ("run", "tool", "script")


def started_files(settings: Settings) -> tuple[str, ...]:
    """They need not exist, and may lie anywhere."""
    found = [str(path) for path in settings.files]
    for section in settings.sources.values():
        command: str = getattr(section, "command", "") or ""
        cwd: Path = getattr(section, "cwd", None) or Path()
        found += _files_of(command, getattr(section, "args", ()), cwd)
    return tuple(dict.fromkeys(os.path.abspath(path) for path in found))  # noqa: PTH100 - links are followed later


def roots_of(settings: Settings) -> tuple[str, ...]:
    """The folders that built-in tools work in."""
    found = (getattr(section, "root", None) for section in settings.sources.values())
    return tuple(os.path.abspath(root) for root in found if isinstance(root, Path))  # noqa: PTH100 - links follow later


def _files_of(command: str, args: Sequence[str], cwd: Path) -> Iterator[str]:
    if "/" in command:
        yield os.path.join(cwd, command)  # noqa: PTH118
    if _INTERPRETER.match(command.rpartition("/")[2]):
        words = [arg for arg in args if arg and not arg.startswith("-") and "\0" not in arg]
        paths = [os.path.join(cwd, word) for word in words]  # noqa: PTH118
        files = {path for path in paths if os.path.isfile(path)}  # noqa: PTH113
        first = [path for path in paths if path in files or os.path.basename(path) not in _RUNS][:1]  # noqa: PTH119
        yield from (
            path for path in paths if path in files and (_CODE.search(path) or (path in first and "-m" not in args))
        )
