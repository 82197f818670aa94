"""Which programs of the system the tools use: never one that whoever writes below the root could have put there."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

_OF_THE_SYSTEM: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Who may write there has this machine already, also where the root is all of it."""


def find_program(name: str, path: str, root: str) -> str | None:
    """A program on `path`, which is written like PATH; None where there is none to be trusted."""
    trusted = (*_OF_THE_SYSTEM, os.path.dirname(sys.executable))  # noqa: PTH120 - we come from there ourselves
    below = os.path.realpath(root).rstrip("/") + "/"
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and (folder in trusted or not _can_be_written(folder, below))
    ]
    return shutil.which(name, path=os.pathsep.join(folders)) if folders else None


def _can_be_written(folder: str, below: str) -> bool:
    return f"{os.path.realpath(folder)}/".startswith(below) and os.access(folder, os.W_OK)
