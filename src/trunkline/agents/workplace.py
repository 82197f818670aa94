"""An empty folder to start an agent in, for those that would run what they find in the project: programs named in its
configuration, plugins, variables. Their tools work in the project all the same, because they are ours."""

from __future__ import annotations

from typing import Final

from trunkline.agents.plan import Asked

WORKPLACE: Final = "work"
WORKPLACE_FOLDERS: Final = (f"{WORKPLACE}/.git/objects", f"{WORKPLACE}/.git/refs")
WORKPLACE_FILES: Final = {f"{WORKPLACE}/.git/HEAD": "ref: refs/heads/main\n"}
"""As little as makes it a repository: agents look for configuration in the folders above, up to where one begins."""


def whereabouts(asked: Asked) -> str:
    """What the agent has to be told, as it sees another folder than the one that its tools work in."""
    place = (
        f"The project you work on is the folder {asked.project}. Your tools work there: relative paths are relative to"
        " it, and absolute paths have to lie in it. The folder that you were started in is empty and of no use.\n"
    )
    return f"{asked.mitigation}\n\n{place}" if asked.mitigation else place
