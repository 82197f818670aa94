"""The protected places: the one list of files and folders below a root that say what is run outside of a sandbox.

Each counts at any depth, whether it exists or not, with everything in it. Upper and lower case are the same, as they
are on many a file system.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Final

from trunkline.config.protect import ProtectSettings

GIT: Final = ".git"
HEAD: Final = "HEAD"
"""The file that makes a folder a git repository, whatever the folder is called."""
HOOKS: Final = "hooks"


@dataclass(frozen=True, slots=True)
class Place:
    """`path` has `/` between its names. `believed_by` says who runs it, or does what it says."""

    path: str
    believed_by: str


_EDITORS: Final = "editors of that family: tasks, servers and programs that they start"
PLACES: Final = (
    Place("trunkline.yaml", "Trunkline itself, in the folder it is started in"),
    Place("trunkline.yml", "Trunkline itself"),
    Place("trunkline.json", "Trunkline itself"),
    Place(".awf", "Trunkline and AWF: plugins and workflows"),
    Place(".claude", "Claude Code: hooks, permissions, commands, agents"),
    Place(".mcp.json", "Claude Code and others: MCP servers"),
    Place(".codex", "Codex: its configuration"),
    Place(".gemini", "Gemini CLI: hooks, MCP servers, commands"),
    Place(".opencode", "OpenCode: plugins, tools, agents"),
    Place("opencode.json", "OpenCode: its configuration"),
    Place("opencode.jsonc", "OpenCode: its configuration"),
    Place(".vscode/tasks.json", "Visual Studio Code: tasks, also those that run when a folder is opened"),
    Place(".vscode/launch.json", "Visual Studio Code: programs to debug"),
    Place(".vscode/settings.json", "Visual Studio Code: paths of programs, terminals"),
    Place(".vscode/mcp.json", "Visual Studio Code: MCP servers"),
    Place(".cursor", _EDITORS),
    Place(".windsurf", _EDITORS),
    Place(".zed", _EDITORS),
    Place(".kiro", _EDITORS),
    Place(".roo/mcp.json", "Roo Code: MCP servers"),
    Place(".continue", "Continue: MCP servers, models"),
    Place(".qwen", "Qwen Code: its configuration, MCP servers"),
    Place(".crush.json", "Crush: MCP and language servers"),
    Place("crush.json", "Crush: MCP and language servers"),
    Place(".junie/mcp", "Junie: MCP servers"),
    Place(".aider.conf.yml", "Aider: commands that check and test"),
    Place(".amazonq", "Amazon Q: MCP servers, agents"),
    Place(".envrc", "direnv: commands that run in every shell that enters the folder"),
)
GIT_FILES: Final = ("config", "config.worktree", "commondir", HOOKS)
"""What in the folder of a repository names programs, or says where such a thing is."""


class ProtectedPlaces:
    """The list with what was added to it: `more` are patterns with `*` and `?`, also at any depth, and from the root
    where they begin with a `/`. `files` are paths below the root, each with its names, and `roots` folders that others
    work in, which are not to lead elsewhere."""

    def __init__(
        self, more: Iterable[str] = (), files: Iterable[Sequence[str]] = (), roots: Iterable[Sequence[str]] = ()
    ) -> None:
        self._listed: dict[str, list[tuple[str, ...]]] = {}
        for place in PLACES:
            *above, last = place.path.casefold().split("/")
            self._listed.setdefault(last, []).append(tuple(above))
        self._written = [tuple(names) for names in files]
        self._files = {tuple(name.casefold() for name in names) for names in self._written}
        self._file_names = frozenset(names[-1] for names in self._files)
        self.roots = [tuple(names) for names in roots]
        ends = [*self._files, *(tuple(name.casefold() for name in (*names, "")) for names in self.roots)]
        self._ways = {names[:count] for names in ends for count in range(1, len(names))}
        self._way_names = frozenset(names[-1] for names in self._ways)
        self._patterns = [_Pattern(written) for written in more]
        lasts = "|".join(pattern.last for pattern in self._patterns)
        self._last = re.compile(lasts).match if lasts else None
        self._first = {place.path.split("/")[0] for place in PLACES if "/" in place.path}
        self._firsts = [pattern.first for pattern in self._patterns if pattern.first is not None]

    def may_be(self, name: str) -> bool:
        """Whether anything of this name can be one: quick, as it is asked of every name in a tree."""
        folded = name.casefold()
        return (
            folded in self._listed
            or folded in self._file_names
            or (self._last is not None and self._last(folded) is not None)
        )

    def is_one(self, names: Sequence[str]) -> bool:
        """Whether these names, from the root down, are those of a place itself."""
        folded = tuple(name.casefold() for name in names)
        if not folded:
            return False
        return self.is_listed(names) or folded in self._files or any(pattern.fits(folded) for pattern in self._patterns)

    def may_begin(self, name: str) -> bool:
        """Whether places may lie in a folder of this name."""
        folded = name.casefold()
        return folded in self._first or any(first.match(folded) for first in self._firsts)

    def may_lead(self, name: str) -> bool:
        """Whether a folder of this name may be on the way to one of the files, or to a root."""
        return name.casefold() in self._way_names

    def is_way(self, names: Sequence[str]) -> bool:
        """Whether these names, from the root down, lead to a folder on the way to one of the files, or to a root."""
        return tuple(name.casefold() for name in names) in self._ways

    def is_listed(self, names: Sequence[str]) -> bool:
        """Whether a place is one of those that every gateway has."""
        folded = tuple(name.casefold() for name in names)
        listed = self._listed.get(folded[-1], ())
        return any(len(above) < len(folded) and folded[len(folded) - 1 - len(above) : -1] == above for above in listed)

    def apart(self, folders: Iterable[str]) -> list[str]:
        """The paths of single files that lie in folders of these names."""
        return ["/".join(names) for names in self._written if not set(folders).isdisjoint(names[:-1])]

    def around(self, names: Sequence[str]) -> int:
        """How many of these names lead to a place that they are, or are in; 0 where there is none."""
        return next((count for count in range(1, len(names) + 1) if self.is_one(names[:count])), 0)

    def names(self) -> Iterable[str]:
        """The names that places and the folders of places have, as far as they are no patterns."""
        return sorted({place.path.split("/")[0] for place in PLACES} | {names[0] for names in self._written})

    def links(self) -> Iterable[str]:
        """The listed paths themselves, each of which may be a link in the root."""
        return (place.path for place in PLACES)


class _Pattern:
    def __init__(self, written: str) -> None:
        names = [translate(name) for name in written.casefold().strip("/").split("/")]
        self._anchored = written.startswith("/")
        self._names = [re.compile(name) for name in names]
        self.last = names[-1]
        self.first = self._names[0] if len(names) > 1 else None

    def fits(self, folded: Sequence[str]) -> bool:
        count = len(self._names)
        if len(folded) < count or (self._anchored and len(folded) != count):
            return False
        return all(name.match(given) for name, given in zip(self._names, folded[-count:], strict=True))


def wrong_to_write(names: Sequence[str], places: ProtectedPlaces) -> str:
    """Which place a file or folder with these names, from the root down, would be or be in; empty where it may be made.

    Of a folder `.git` nothing is for tools that write files.
    """
    folded = [name.casefold() for name in names]
    if GIT in folded:
        return "/".join(names[: folded.index(GIT) + 1])
    return "/".join(names[: places.around(names)])


def believers(names: Sequence[str]) -> str:
    """Who does what a place with these names says."""
    own = ProtectedPlaces()
    for place in PLACES:
        parts = place.path.split("/")
        if any(own.is_one(names[: end + 1]) and _ends_in(names[: end + 1], parts) for end in range(len(names))):
            return place.believed_by
    is_git = names[-1].casefold() in (GIT, *GIT_FILES) or HOOKS in (name.casefold() for name in names)
    return "git: hooks, and the programs that its configuration names" if is_git else "the configuration in use"


def _ends_in(names: Sequence[str], parts: Sequence[str]) -> bool:
    return [name.casefold() for name in names[-len(parts) :]] == [part.casefold() for part in parts]


def protected_below(
    root: Path | str, settings: ProtectSettings, files: Iterable[str] = (), roots: Iterable[str] = ()
) -> ProtectedPlaces | None:
    """The places below this root, with those of these files and other roots that lie there; None where nothing is
    protected."""
    if not settings.on:
        return None
    return ProtectedPlaces(settings.more, _below(root, files), _below(root, roots))


def _below(root: Path | str, files: Iterable[str]) -> list[list[str]]:
    """The names of those that lie below the root, also where either is a link."""
    homes = {f"{home.rstrip('/')}/" for home in (os.path.abspath(root), os.path.realpath(root))}  # noqa: PTH100
    spellings = {spelling for file in files for spelling in (file, os.path.realpath(file))}
    below = {path[len(home) :] for path in spellings for home in homes if path.startswith(home)}
    return [path.split("/") for path in sorted(below)]
