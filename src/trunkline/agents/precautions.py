"""What an isolated agent finds in its environment that is started in a project: nothing there may make it run programs
that the project brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NO_REPOSITORY: Final = "/dev/null"


def precautions(environ: Mapping[str, str]) -> dict[str, str]:
    """To be set on top of the user's environment.

    Agents ask git about the project, and a repository can name programs that git then runs: monitors, filters. For a
    relative folder of PATH, the project's own is taken.
    """
    given, kept = environ.get("PATH", ""), absolute_path(environ)
    return {"GIT_DIR": _NO_REPOSITORY} | ({} if kept == given else {"PATH": kept})


def absolute_path(environ: Mapping[str, str]) -> str:
    """PATH without its relative folders, of which an empty one is the folder one is in."""
    return ":".join(folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/"))
