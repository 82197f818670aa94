"""Finds everything that is at protected paths below a folder, again and again, in a tree that may be large.

What a directory holds is remembered for as long as its time of change stays the same, which nobody can set back; so a
second scan costs one `lstat` for each directory. Links are not followed, except for protected ones.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from trunkline.sources.builtin.protection.git import gitdir_target, read_git_file
from trunkline.sources.builtin.protection.protected_paths import GIT, HEAD, HOOKS, ProtectedPaths

PACKAGES: Final = frozenset(("node_modules", "site-packages"))
"""Folders of installed packages. Many bring settings of their author's editor, which no program reads there."""
MOST_FOLDERS: Final = 50_000
MOST_ITEMS: Final = 10_000
YOUNG_NS: Final = 50_000_000
"""Times of change are coarse: a directory may change again within one tick of their clock."""
_UNKNOWN: Final = (0, 0, 0)
_THOROUGH: Final = 10
_SAMPLE: Final = ".sample"
_DEEPEST_REPOSITORY: Final = 8

EntryKind = Literal["file", "link", "other", "config", "folder"]


class FileStamp(NamedTuple):
    """Tells one state of a file from another, as long as clocks are right."""

    mode: int
    device: int
    inode: int
    size: int
    changed_ns: int
    links: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class ProtectedFile:
    """A file at or below the protected path `protected_path`. `listed` paths are those that every gateway
    protects; a `config` is one of git's. `content` is the digest of its bytes or the target of a link; empty if not
    known."""

    protected_path: str
    kind: EntryKind
    stamp: FileStamp
    listed: bool
    content: str = ""


class _Directory(NamedTuple):
    stamp: tuple[int, int, int]
    folders: tuple[str, ...]
    candidates: tuple[str, ...]
    links: tuple[str, ...]
    repository: bool


Directories = dict[str, _Directory]


@dataclass(slots=True)
class ScanResult:
    """What one scan has found, by absolute path. `folders` are protected ones, and those of repositories, each with its
    identity."""

    items: dict[str, ProtectedFile] = field(default_factory=dict[str, ProtectedFile])
    folders: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    complete: bool = True
    full: bool = False
    unlisted: set[str] = field(default_factory=set[str])
    """The user's own directories that cannot be listed."""
    visited: Directories = field(default_factory=dict[str, _Directory])
    """Every directory that was looked at; those below protected paths end with a slash."""
    repositories: set[str] = field(default_factory=set[str])
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """What was found when there was no room for it any more."""

    def was_missed(self, path: str, stamp: FileStamp, base: str, since_ns: int) -> bool:
        """Whether this scan may have missed what has been at this path all the time: it was incomplete, and did not
        come to a directory on the way that was neither made nor moved there since."""
        if self.complete:
            return False
        if path in self.dropped:
            return self.dropped[path] == stamp.identity and stamp.changed_ns < since_ns
        upper = base
        for name in path[len(base.rstrip("/")) + 1 :].split("/")[:-1]:
            folder = _joined(upper, name)
            if folder not in self.repositories and folder not in self.visited and f"{folder}/" not in self.visited:
                status = _status(folder)
                return status is not None and status.st_ctime_ns < since_ns
            upper = folder
        return False

    def add(
        self, path: str, protected_path: str, status: os.stat_result, listed: bool, kind: EntryKind | None = None
    ) -> None:
        if path in self.items:
            return  # as part of a folder that it lies in, or by another way
        if len(self.items) >= MOST_ITEMS:
            self.complete, self.full = False, True
            self.dropped[path] = status.st_dev, status.st_ino
            return
        mode = status.st_mode
        stamp = FileStamp(mode, status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns, status.st_nlink)
        kind = kind or ("file" if stat.S_ISREG(mode) else "link" if stat.S_ISLNK(mode) else "other")
        self.items[path] = ProtectedFile(protected_path, kind, stamp, listed)


class ProtectedPathScanner:
    """Scans the protected paths below `base`, itself a real path; one scan at a time, others wait for it.

    Directories that are `left_out` are not entered. In `home`, the folders of agents are the user's own and full of
    what agents write all the time: they count as one thing each.
    """

    def __init__(
        self,
        base: str,
        protected: ProtectedPaths,
        *,
        most_folders: int = MOST_FOLDERS,
        left_out: Iterable[str] = (),
        home: str = "",
    ) -> None:
        self.base = base
        self.protected = protected
        self._home = home
        self._left_out = frozenset(left_out)
        self._most_folders = most_folders
        self._lock = threading.Lock()
        self._known: Directories = {}
        # of the scan that runs:
        self._scan = ScanResult()
        self._limit = most_folders
        self._targets: set[str] = set()

    def look(self, *, thoroughly: bool = False) -> ScanResult:
        """Takes a moment for each directory: not on the event loop. `thoroughly` goes further before it gives up."""
        with self._lock:
            self._scan, self._targets = ScanResult(), set()
            self._limit = self._most_folders * (_THOROUGH if thoroughly else 1)
            waiting = deque([self.base])  # the upper ones first: what programs read lies there
            while waiting and self._goes_on():
                path = waiting.popleft()
                directory = self._directory(path, whole=False)
                if directory is not None:
                    self._paths_in(path, directory)
                    waiting.extend(directory.folders)
                    # folders that are passed over where they lie, but in which programs work that follow a link
                    targets = [os.path.realpath(_joined(path, name)) for name in directory.links]
                    targets = [one for one in targets if self._is_below(one) and one not in self._scan.visited]
                    waiting.extend(one for one in targets if is_passed_over(one[len(self.base) :].split("/")))
            for path in self.protected.apart(PACKAGES):
                self._add_protected(_joined(self.base, path), listed=False)
            self._known = self._scan.visited
            return self._scan

    def _goes_on(self) -> bool:
        if len(self._scan.visited) >= self._limit:
            self._scan.complete = False
        return len(self._scan.visited) < self._limit and not self._scan.full

    def _directory(self, path: str, *, whole: bool) -> _Directory | None:
        """What is in a directory. `whole` says that everything there is of interest, since it is protected."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError) as error:
            gone = isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
            if not gone or path == self.base:
                self._scan.complete = False
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        stamp = status.st_dev, status.st_ino, status.st_ctime_ns
        key = f"{path}/" if whole else path
        known = self._known.get(key)
        young = time.time_ns() - status.st_ctime_ns < YOUNG_NS
        if known is None or known.stamp != stamp:
            known = self._read(path, stamp, whole)
        self._scan.visited[key] = known._replace(stamp=_UNKNOWN) if young else known
        return known

    def _read(self, path: str, stamp: tuple[int, int, int], whole: bool) -> _Directory:
        folders: list[str] = []
        candidates: list[str] = []
        links: list[str] = []
        names: set[str] = set()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name, folded = entry.name, entry.name.casefold()
                    names.add(folded)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if (whole and not is_folder) or (not whole and self._may_be(entry, folded)):
                        candidates.append(name)
                    if is_folder and (whole or (name not in PACKAGES and folded != GIT)):
                        folders.append(_joined(path, name))
                    elif not whole and name not in PACKAGES and entry.is_symlink():
                        links.append(name)
        except OSError:
            return self._unlisted(path)
        if not os.access(path, os.X_OK):
            return self._unlisted(path)
        folders = [folder for folder in folders if folder not in self._left_out]
        repository = HEAD.casefold() in names and ("commondir" in names or {"objects", "refs"} <= names)
        return _Directory(stamp, tuple(folders), tuple(candidates), tuple(links), repository)

    def _may_be(self, entry: os.DirEntry[str], folded: str) -> bool:
        """Whether its name may be that of a protected path, or it is a link in place of a folder on the way to one."""
        if folded == GIT or self.protected.may_match(entry.name):
            return True
        return (self.protected.may_be_above(entry.name) or self.protected.may_lead(entry.name)) and entry.is_symlink()

    def _unlisted(self, path: str) -> _Directory:
        """One that cannot be listed or entered: a program that knows a name may still find it there."""
        status = _status(path)
        if status is not None and status.st_uid == os.geteuid():
            self._scan.complete = False
            self._scan.unlisted.add(path)
        names = [name for name in (GIT, *self.protected.names()) if _status(_joined(path, name)) is not None]
        return _Directory(_UNKNOWN, (), tuple(names), (), repository=False)

    # -- protected paths -----------------------------------------------------------------------------------------

    def _paths_in(self, folder: str, directory: _Directory) -> None:
        if directory.candidates:
            above = folder[len(self.base) :].strip("/").split("/") if folder != self.base else []
            for name in directory.candidates:
                path, names = _joined(folder, name), [*above, name]
                if name.casefold() == GIT:
                    self._git(path)
                elif self.protected.matches(names):
                    self._add_protected(path, listed=self.protected.is_listed(names))
                elif self.protected.may_be_above(name) or self.protected.is_way(names):
                    status = _status(path)
                    # in place of a folder on the way to a protected path
                    if status is not None and stat.S_ISLNK(status.st_mode):
                        self._scan.add(path, path, status, listed=self.protected.may_be_above(name))
        if directory.repository:
            self._repository(folder, 0)

    def _add_protected(self, path: str, *, listed: bool) -> None:
        status = _status(path)
        if status is None:
            return
        if stat.S_ISDIR(status.st_mode):
            self._scan.folders[path] = status.st_dev, status.st_ino
            if path.rpartition("/")[0] == self._home:
                self._scan.add(path, path, status, listed, kind="folder")
            else:
                self._within(path, listed)
        else:
            self._scan.add(path, path, status, listed)
            self._follow(path, status, listed)

    def _within(self, protected_path: str, listed: bool) -> None:
        """Everything in a protected folder."""
        waiting = deque([protected_path])
        while waiting and self._goes_on():
            path = waiting.popleft()
            directory = self._directory(path, whole=True)
            if directory is not None:
                for name in directory.candidates:
                    status = _status(_joined(path, name))
                    if status is not None:
                        self._scan.add(_joined(path, name), protected_path, status, listed)
                waiting.extend(directory.folders)

    def _follow(self, path: str, status: os.stat_result, listed: bool) -> None:
        """What a protected link leads to is protected, too, if it can be written to."""
        if not stat.S_ISLNK(status.st_mode):
            return
        target = os.path.realpath(path)
        if self._is_below(target) and target not in self._targets:
            self._targets.add(target)
            self._add_protected(target, listed=listed)

    def _is_below(self, path: str) -> bool:
        return path.startswith(f"{self.base.rstrip('/')}/")

    # -- repositories ---------------------------------------------------------------------------------------------

    def _git(self, path: str) -> None:
        """`.git` in a folder: a repository, or a link or a file that leads to one."""
        status = _status(path)
        if status is None:
            return
        real = path
        if stat.S_ISDIR(status.st_mode):
            self._scan.folders[path] = status.st_dev, status.st_ino
        elif stat.S_ISREG(status.st_mode):
            target = gitdir_target(read_git_file(path) or b"", os.path.dirname(path))  # noqa: PTH120
            real = "" if target is None else os.path.realpath(target)
            if not real or not _is_part_of_repository_around(path, real):
                self._scan.add(path, path, status, listed=True)
        else:
            self._scan.add(path, path, status, listed=True)
            real = os.path.realpath(path)
        self._repository(real, 0)

    def _repository(self, path: str, depth: int) -> None:
        if path in self._scan.repositories or depth > _DEEPEST_REPOSITORY or not self._is_below(path):
            return
        self._scan.repositories.add(path)
        for config in (_joined(path, "config"), _joined(path, "config.worktree")):
            status = _status(config)
            if status is not None:
                kind: EntryKind | None = "config" if stat.S_ISREG(status.st_mode) else None
                self._scan.add(config, config, status, listed=True, kind=kind)
        commondir = _joined(path, "commondir")
        status = _status(commondir)
        if status is not None:
            written = os.fsdecode((read_git_file(commondir) or b"").rstrip(b"\r\n")).replace("\0", "")
            shared = os.path.realpath(os.path.join(path, written))  # noqa: PTH118
            if not commondir.startswith(f"{shared}/worktrees/"):
                self._scan.add(commondir, commondir, status, listed=True)
            self._repository(shared, 0)
        self._hooks(_joined(path, HOOKS))
        for name in ("remotes", "branches"):  # where git kept URLs once
            self._within(_joined(path, name), listed=True)
        for group in ("modules", "worktrees"):
            self._modules(_joined(path, group), depth + 1)

    def _hooks(self, path: str) -> None:
        status = _status(path)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            self._scan.add(path, path, status, listed=True)
            self._follow(path, status, listed=True)
            return
        self._scan.folders[path] = status.st_dev, status.st_ino
        before = set(self._scan.items)
        self._within(path, listed=True)
        hooks = self._scan.items.keys() - before
        for hook in hooks:
            if hook.endswith(_SAMPLE):
                del self._scan.items[hook]  # git makes them, and runs none but those that another hook leads to
        for hook in hooks & self._scan.items.keys():
            status = _status(hook)
            if status is not None and os.path.isfile(hook):  # noqa: PTH113
                self._follow(hook, status, listed=True)

    def _modules(self, path: str, depth: int) -> None:
        """Repositories of submodules, whose names may have slashes in them, and of other working trees."""
        if depth > _DEEPEST_REPOSITORY:
            return
        directory = self._directory(path, whole=True)
        for inner in () if directory is None else directory.folders:
            if _status(_joined(inner, HEAD)) is not None:
                self._repository(inner, depth)
            else:
                self._modules(inner, depth + 1)


def _is_part_of_repository_around(file: str, repository: str) -> bool:
    """Whether a repository is a submodule or another working tree of the one that the file lies in: no harm then."""
    home, inside, part = repository.partition(f"/{GIT}/")
    return bool(inside) and file.startswith(f"{home}/") and part.startswith(("modules/", "worktrees/"))


def is_passed_over(names: Sequence[str]) -> bool:
    """Whether what has these names, from the root down, is not scanned as any other folder is."""
    return any(name in PACKAGES or name.casefold() == GIT for name in names)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"
