"""An empty folder to start an agent in, for those that would run what they find in the project: programs named in its
configuration, plugins, variables. Their tools work in the project all the same, because they are ours."""

from __future__ import annotations

from typing import Final

from trunkline.agents.plan import Asked

WORKPLACE: Final = "work"
WORKPLACE_FOLDERS: Final = (f"{WORKPLACE}/.git/objects", f"{WORKPLACE}/.git/refs")
WORKPLACE_FILES: Final = {f"{WORKPLACE}/.git/HEAD": "ref: refs/heads/main\n"}
"""As little as makes it a repository: agents look for configuration in the folders above, up to where one begins."""

OTHER_REPOSITORY: Final = (
    *("GIT_CEILING_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_DIR"),
    *("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE"),
)
"""Variables by which git, which an agent may ask, takes another repository for this one. They are set in every hook of
git. What is above this folder, in that for temporary files, anybody may have put there."""

PROXIES: Final = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy")
"""Variables that lead elsewhere what is meant for the model of a trial, which is on this machine."""


def whereabouts(asked: Asked) -> str:
    """What the agent has to be told, as it sees another folder than the one that its tools work in."""
    place = (
        f"The project you work on is the folder {asked.project}. Your tools work there: relative paths are relative to"
        " it, and absolute paths have to lie in it. The folder that you were started in is empty and of no use.\n"
    )
    return "\n\n".join(filter(None, [asked.mitigation, place, asked.instructions]))
