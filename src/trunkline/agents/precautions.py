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
    given = environ.get("PATH", "").split(":")
    absolute = [folder for folder in given if folder.startswith("/")]
    return {"GIT_DIR": _NO_REPOSITORY} | ({} if absolute == given else {"PATH": ":".join(absolute)})
