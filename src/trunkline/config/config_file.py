"""Finds the configuration file to load: named by the user, in the user's own folder, or found in a project's folder.

A file that was found may be anybody's: it is used once the user has trusted it (`trunkline.config.trust`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Origin = Literal["named", "own", "found"]
"""Named by the user; in the user's own folder; or found in the working folder or above a workflow."""

NAMES: Final = ("trunkline.yaml", "trunkline.yml", "trunkline.json")
PLUGINS: Final = Path(".awf", "plugins.yaml")
_OWN_FOLDER: Final = Path(".config", "trunkline")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file to be loaded, and how it came to be chosen."""

    path: Path
    origin: Origin

    @classmethod
    def named(cls, path: Path) -> ConfigFile:
        """A file that its user has named."""
        return cls(path, "named")


def home_folder(environ: Mapping[str, str]) -> Path:
    """The home folder of the user whose environment this is."""
    return Path(environ.get("HOME") or Path.home())


def find_config(explicit: Path | None, cwd: Path, home: Path, *, workflow: Path | None = None) -> ConfigFile | None:
    """The file to load: the one asked for, else the first that exists beside the workflow, in the working folder or in
    the user's own folder."""
    if explicit is not None:
        return ConfigFile.named(explicit)
    own = home / _OWN_FOLDER
    candidates: list[ConfigFile] = []
    for folder in (*(() if workflow is None else (workflow.absolute().parent,)), cwd):
        here: Origin = "own" if _same_folder(folder, own) else "found"
        candidates += (ConfigFile(folder / name, here) for name in NAMES)
    candidates.append(ConfigFile(own / NAMES[0], "own"))
    return next((file for file in candidates if file.path.is_file()), None)


def plugins_file(config: Path) -> Path:
    """The path of AWF's file beside the configuration file at `config`."""
    return config.absolute().parent / PLUGINS


def plugins_at(folder: Path, home: Path) -> ConfigFile:
    """AWF's file in a folder. Even beside a configuration file that was named it counts as found."""
    return ConfigFile(folder / PLUGINS, "own" if _same_folder(folder, home / _OWN_FOLDER) else "found")


def find_plugins(workflow: Path, cwd: Path, home: Path) -> ConfigFile | None:
    """AWF's file for a workflow: that of the nearest folder above it, else that of the working folder."""
    files = (plugins_at(folder, home) for folder in (*workflow.absolute().parents, cwd.absolute()))
    return next((file for file in files if os.path.lexists(file.path)), None)


def discovered_files(folder: Path, home: Path) -> list[ConfigFile]:
    """The files that would be found in this folder and need to be trusted."""
    config = find_config(None, folder, home)
    files = [file for file in (config, plugins_at(folder, home)) if file is not None and os.path.lexists(file.path)]
    return [file for file in files if file.origin == "found"]


def is_discoverable(path: Path) -> bool:
    """Whether a file of this name can be found without being named."""
    return path.name in NAMES or path.absolute().parts[-2:] == PLUGINS.parts


def _same_folder(one: Path, other: Path) -> bool:
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except FileNotFoundError:  # the working folder has been removed
        return False
