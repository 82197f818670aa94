"""The protected paths: the files and folders below a root that say what programs run outside of a sandbox.

Each is protected at any depth, whether it exists or not, with everything in it. Names are compared without case, as
many file systems do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Final

from trunkline.config.sandbox import ProtectSettings
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection
from trunkline.config.trust.local_programs import code_named, is_interpreter

GIT: Final = ".git"
HEAD: Final = "HEAD"
"""The file that makes a folder a git repository, whatever the folder is called."""
HOOKS: Final = "hooks"


@dataclass(frozen=True, slots=True)
class ProtectedPath:
    """A path that agents must not change; `used_by` names the programs that run it or act on it."""

    path: str
    used_by: str


_EDITORS: Final = "the editor: tasks, servers and programs that it starts"
PROTECTED_PATHS: Final = (
    ProtectedPath("trunkline.yaml", "Trunkline itself, in the folder it is started in"),
    ProtectedPath("trunkline.yml", "Trunkline itself"),
    ProtectedPath("trunkline.json", "Trunkline itself"),
    ProtectedPath(".awf", "Trunkline and AWF: plugins and workflows"),
    ProtectedPath(".claude", "Claude Code: hooks, permissions, commands, agents"),
    ProtectedPath(".mcp.json", "Claude Code and others: MCP servers"),
    ProtectedPath(".codex", "Codex: its configuration"),
    ProtectedPath(".gemini", "Gemini CLI: hooks, MCP servers, commands"),
    ProtectedPath(".opencode", "OpenCode: plugins, tools, agents"),
    ProtectedPath("opencode.json", "OpenCode: its configuration"),
    ProtectedPath("opencode.jsonc", "OpenCode: its configuration"),
    ProtectedPath(".vscode/tasks.json", "Visual Studio Code: tasks, including those that run when a folder is opened"),
    ProtectedPath(".vscode/launch.json", "Visual Studio Code: programs to debug"),
    ProtectedPath(".vscode/settings.json", "Visual Studio Code: paths of programs, terminals"),
    ProtectedPath(".vscode/mcp.json", "Visual Studio Code: MCP servers"),
    ProtectedPath(".cursor", _EDITORS),
    ProtectedPath(".windsurf", _EDITORS),
    ProtectedPath(".zed", _EDITORS),
    ProtectedPath(".kiro", _EDITORS),
    ProtectedPath(".roo/mcp.json", "Roo Code: MCP servers"),
    ProtectedPath(".continue", "Continue: MCP servers, models"),
    ProtectedPath(".qwen", "Qwen Code: its configuration, MCP servers"),
    ProtectedPath(".crush.json", "Crush: MCP and language servers"),
    ProtectedPath("crush.json", "Crush: MCP and language servers"),
    ProtectedPath(".junie/mcp", "Junie: MCP servers"),
    ProtectedPath(".aider.conf.yml", "Aider: lint and test commands"),
    ProtectedPath(".amazonq", "Amazon Q: MCP servers, agents"),
    ProtectedPath(".envrc", "direnv: commands that run in every shell that enters the folder"),
)
GIT_FILES: Final = ("config", "config.worktree", "commondir", HOOKS)
"""Files in the folder of a repository that name programs, or lead to such files."""


class ProtectedPaths:
    """The list, with additions: `more` are patterns with `*` and `?`, at any depth or, beginning with a `/`, from the
    root. `files` are the names of paths below the root, `roots` those of folders that other tools work in, which must
    not become links."""

    def __init__(
        self, more: Iterable[str] = (), files: Iterable[Sequence[str]] = (), roots: Iterable[Sequence[str]] = ()
    ) -> None:
        self._listed: dict[str, list[tuple[str, ...]]] = {}
        for protected in PROTECTED_PATHS:
            *above, last = protected.path.casefold().split("/")
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
        self._first = {protected.path.split("/")[0] for protected in PROTECTED_PATHS if "/" in protected.path}
        self._firsts = [pattern.first for pattern in self._patterns if pattern.first is not None]

    def may_match(self, name: str) -> bool:
        """Whether anything of this name can be protected: quick, as it is asked of every name in a tree."""
        folded = name.casefold()
        if folded in self._listed or folded in self._file_names:
            return True
        return self._last is not None and self._last(folded) is not None

    def matches(self, names: Sequence[str]) -> bool:
        """Whether these names, from the root down, are those of a protected path."""
        folded = tuple(name.casefold() for name in names)
        if not folded:
            return False
        return self.is_listed(names) or folded in self._files or any(pattern.fits(folded) for pattern in self._patterns)

    def may_be_above(self, name: str) -> bool:
        """Whether protected paths may lie in a folder of this name."""
        folded = name.casefold()
        return folded in self._first or any(first.match(folded) for first in self._firsts)

    def may_lead(self, name: str) -> bool:
        """Whether a folder of this name may be on the way to one of the files, or to a root."""
        return name.casefold() in self._way_names

    def is_way(self, names: Sequence[str]) -> bool:
        """Whether these names, from the root down, lead to a folder on the way to one of the files, or to a root."""
        return tuple(name.casefold() for name in names) in self._ways

    def is_listed(self, names: Sequence[str]) -> bool:
        """Whether it is one of the paths that every gateway protects."""
        folded = tuple(name.casefold() for name in names)
        listed = self._listed.get(folded[-1], ())
        return any(len(above) < len(folded) and folded[len(folded) - 1 - len(above) : -1] == above for above in listed)

    def apart(self, folders: Iterable[str]) -> list[str]:
        """The paths of single files that lie in folders of these names."""
        return ["/".join(names) for names in self._written if not set(folders).isdisjoint(names[:-1])]

    def names(self) -> Iterable[str]:
        """The first names of protected paths that are not patterns."""
        return sorted(
            {protected.path.split("/")[0] for protected in PROTECTED_PATHS} | {names[0] for names in self._written}
        )


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


def protected_path_at(names: Sequence[str], protected: ProtectedPaths) -> str:
    """The protected path that these names, from the root down, are or lie in; empty if there is none.

    Tools that write files may write nothing in a folder `.git`.
    """
    folded = [name.casefold() for name in names]
    if GIT in folded:
        return "/".join(names[: folded.index(GIT) + 1])
    return next(("/".join(names[:end]) for end in range(1, len(names) + 1) if protected.matches(names[:end])), "")


def programs_using(names: Sequence[str]) -> str:
    """The programs that do what a protected path with these names says."""
    folded = [name.casefold() for name in names]
    for protected in PROTECTED_PATHS:
        parts = protected.path.casefold().split("/")
        if any(folded[at : at + len(parts)] == parts for at in range(len(folded))):
            return protected.used_by
    is_git = folded[-1] in (GIT, *GIT_FILES) or HOOKS in folded
    return "git: hooks, and the programs that its configuration names" if is_git else "the configuration in use"


def protected_below(
    root: Path | str, settings: ProtectSettings, files: Iterable[str] = (), roots: Iterable[str] = ()
) -> ProtectedPaths | None:
    """The protected paths below this root, with the files and other roots that lie there; None if protection is
    off."""
    if not settings.on:
        return None
    return ProtectedPaths(settings.more, _below(root, files), _below(root, roots))


def _below(root: Path | str, files: Iterable[str]) -> list[list[str]]:
    """The names of the paths that lie below the root, even if either is a link."""
    homes = {f"{home.rstrip('/')}/" for home in (os.path.abspath(root), os.path.realpath(root))}  # noqa: PTH100
    spellings = {spelling for file in files for spelling in (file, os.path.realpath(file))}
    below = {path[len(home) :] for path in spellings for home in homes if path.startswith(home)}
    return [path.split("/") for path in sorted(below)]


# -- what the configuration starts -------------------------------------------------------------------------------------

_RUNS: Final = ("run", "tool", "script")


def started_files(settings: Settings) -> tuple[str, ...]:
    """The files that the configuration reads or starts, with scripts of programs. They need not exist."""
    found = [str(path) for path in settings.files]
    for section in settings.sources.values():
        command: str = getattr(section, "command", "") or ""
        cwd: Path = getattr(section, "cwd", None) or Path()
        args = [arg for arg in getattr(section, "args", ()) if "\0" not in arg]
        # other files that a program is given may be its data, which it writes itself: undoing that would lose it
        found += [*_files_of(command, args, cwd), *code_named(command, args, getattr(section, "env", {}), str(cwd))]
    return tuple(dict.fromkeys(os.path.abspath(path) for path in found))  # noqa: PTH100 - links are followed later


def roots_of(settings: Settings) -> tuple[str, ...]:
    """The folders that built-in tools work in."""
    found = (getattr(section, "root", None) for section in settings.sources.values())
    return tuple(os.path.abspath(root) for root in found if isinstance(root, Path))  # noqa: PTH100 - links follow later


def folders_of(section: SourceSection) -> list[Path]:
    """The folders that the commands of a built-in source can write to."""
    root: Path | None = getattr(section, "root", None)
    shown = getattr(getattr(section, "sandbox", None), "folders", ())
    return [] if root is None else [root, *shown]


def lie_below(folders: Iterable[Path], paths: Iterable[str]) -> bool:
    """Whether one of these paths lies in one of the folders, by its name or by where its links lead."""
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
