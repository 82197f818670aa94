"""Reads and writes git configurations without git, which would do what they say.

Knows which keys make git run programs, where git finds repositories and their configuration, and how to override that.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_ITEM: Final = re.compile(
    r"""
      [ \t\n\r]+ | [#;][^\n]*
    | \[ (?P<section>[A-Za-z0-9.-]*) (?: [ \t\r]+ "(?P<subsection>(?:[^"\\\n]|\\[^\n])*)" )? \]
    | (?P<key>[A-Za-z][A-Za-z0-9-]*) [ \t]* (?P<assigns>=|\n|\Z)
    """,
    re.VERBOSE,
)
_VALUE_PART: Final = re.compile(r'(?P<end>\n|\Z)|\\(?:[tbn\\"]|\n|\Z)|[ \t\r"#;]|[^ \t\r\n"#;\\]+')
_ESCAPED: Final = {r"\t": "\t", r"\b": "\b", r"\n": "\n", r"\\": "\\", r"\"": '"'}
_ESCAPES: Final = {character: escape for escape, character in _ESCAPED.items()}


class BadGitConfig(ValueError):
    """The text is one that git would refuse."""


@dataclass(frozen=True, slots=True)
class GitConfigEntry:
    """One setting. Section and key are in lower case; a key without `=` has no value, which git reads as true. Before
    the first section, where git ignores it, it has no section.
    """

    section: str
    subsection: str | None
    key: str
    value: str | None

    @property
    def name(self) -> str:
        """As `git config` spells it."""
        middle = "" if self.subsection is None else f".{self.subsection}"
        return f"{self.section}{middle}.{self.key}" if self.section else self.key


def parse_git_config(data: bytes) -> list[GitConfigEntry]:
    """Every entry, in order. Raises BadGitConfig."""
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise BadGitConfig
    entries: list[GitConfigEntry] = []
    section, at = "", 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            raise BadGitConfig
        at = item.end()
        if item["section"] is not None:
            section = item["section"].lower()
            if item["subsection"] is not None:
                section += "." + re.sub(r"\\(.)", r"\1", item["subsection"])
        elif item["key"]:
            value = None
            if item["assigns"] == "=":
                value, at = _value(text, at)
            name, dot, subsection = section.partition(".")
            if section and not name:
                raise BadGitConfig
            entries.append(GitConfigEntry(name, subsection if dot else None, item["key"].lower(), value))
    return entries


def _value(text: str, at: int) -> tuple[str, int]:
    """A value, and where the next line begins. Spaces count only inside quotes and between words."""
    found, spaces, quoted = "", "", False
    while True:
        match = _VALUE_PART.match(text, at)
        if match is None:
            raise BadGitConfig
        part, at = match.group(), match.end()
        if match["end"] is not None:
            break
        if part == '"':
            quoted = not quoted
            part = ""
            if not quoted or not spaces:
                continue
        elif part.startswith("\\"):
            part = _ESCAPED.get(part, "")  # the end of the text counts as the end of a line, which goes on in the next
        elif not quoted and part in " \t\r":
            spaces += " " if found else ""
            continue
        elif not quoted and part in "#;":
            return found, text.find("\n", at) + 1 or len(text)
        found, spaces = found + spaces + part, ""
    if quoted:
        raise BadGitConfig
    return found, at


def format_git_config(entries: Iterable[GitConfigEntry]) -> bytes:
    """A text with these entries, except for those without a section."""
    lines: list[str] = []
    placed = (entry for entry in entries if entry.section)
    for (section, subsection), group in groupby(placed, lambda entry: (entry.section, entry.subsection)):
        quoted = "" if subsection is None else ' "' + re.sub(r'["\\]', r"\\\g<0>", subsection) + '"'
        lines.append(f"[{section}{quoted}]\n")
        for entry in group:
            escaped = "".join(_ESCAPES.get(character, character) for character in entry.value or "")
            lines.append(f"\t{entry.key}\n" if entry.value is None else f'\t{entry.key} = "{escaped}"\n')
    return "".join(lines).encode("utf-8", "surrogateescape")


# -- dangerous keys ---------------------------------------------------------------------------------------------------
#
# Too many keys make git run a program, and every version adds some. So the harmless keys are listed, and every other
# one counts as dangerous.

_PLAIN: Final = {
    "core": """abbrev autocrlf bare bigfilethreshold checkroundtripencoding checkstat commitgraph compression eol
        filemode ignorecase ignorestat logallrefupdates loosecompression multipackindex packedgitlimit
        packedgitwindowsize precomposeunicode preloadindex quotepath repositoryformatversion safecrlf
        sparsecheckout sparsecheckoutcone splitindex symlinks trustctime untrackedcache warnambiguousrefs whitespace""",
    "extensions": "compatobjectformat noop objectformat partialclone refstorage relativeworktrees worktreeconfig",
    "user": "email name useconfigonly",
    "author": "email name",
    "committer": "email name",
    "init": "defaultbranch defaultobjectformat defaultrefformat",
    "branch": "autosetupmerge autosetuprebase sort",
    "checkout": "defaultremote guess workers",
    "clone": "defaultremotename rejectshallow",
    "commit": "cleanup gpgsign status verbose",
    "diff": """algorithm colormoved colormovedws context dirstat ignoresubmodules indentheuristic interhunkcontext
        mnemonicprefix noprefix relative renamelimit renames statgraphwidth submodule suppressblankempty""",
    "fetch": """all fsckobjects negotiationalgorithm output parallel prune prunetags recursesubmodules showforcedupdates
        unpacklimit writecommitgraph""",
    "gc": "auto autodetach autopacklimit cruftpacks packrefs pruneexpire reflogexpire reflogexpireunreachable",
    "index": "skiphash sparse threads version",
    "log": "abbrevcommit date decorate follow showsignature",
    "maintenance": "auto autodetach strategy",
    "merge": "autostash conflictstyle directoryrenames ff log renamelimit renames stat",
    "pack": "compression depth threads window windowmemory writebitmaps",
    "pull": "ff octopus rebase twohead",
    "push": "autosetupremote default followtags recursesubmodules useforceifincludes",
    "rebase": "autosquash autostash missingcommitscheck rebasemerges stat updaterefs",
    "receive": "denycurrentbranch denydeletes denynonfastforwards fsckobjects",
    "rerere": "autoupdate enabled",
    "stash": "showincludeuntracked showpatch showstat",
    "status": "ahead aheadbehind branch relativepaths renames short showstash showuntrackedfiles submodulesummary",
    "submodule": "active alternateerrorstrategy fetchjobs propagatebranches recurse",
    "tag": "gpgsign sort",
    "transfer": "fsckobjects unpacklimit",
    "lfs": "repositoryformatversion",
}
_OF_ONE: Final = {
    "branch": "description merge pushremote rebase remote",
    "remote": """fetch followremotehead mirror partialclonefilter promisor prune prunetags push skipdefaultupdate
        skipfetchall tagopt""",
    "submodule": "active branch fetchrecursesubmodules ignore",
    "lfs": "access",
}
"""Keys of sections that have a subsection."""
_URLS: Final = {"remote": ("url", "pushurl", "pushdefault"), "submodule": ("url",), "branch": ("remote", "pushremote")}
_WHOLE: Final = frozenset(("advice", "color", "column", "feature"))
_HARMLESS: Final = {section: frozenset(keys.split()) for section, keys in _PLAIN.items()}
_HARMLESS_OF_ONE: Final = {section: frozenset(keys.split()) for section, keys in _OF_ONE.items()}
_HARMLESS_UPDATES: Final = frozenset(("checkout", "rebase", "merge", "none"))
_PROGRAM_IN_URL: Final = re.compile(r"-|[^/]*::|.*(?://|@)-", re.DOTALL)
"""`ext::` and the like name a program; a host that begins with a dash becomes an option of one."""


def is_dangerous(entry: GitConfigEntry) -> bool:
    """Whether this entry may make git run a program, work in another folder, or read more configuration."""
    section, key = entry.section, entry.key
    if section in _WHOLE:
        return False
    value = entry.value or ""
    if key in _URLS.get(section, ()):
        return _PROGRAM_IN_URL.match(value) is not None
    if entry.subsection is None:
        return key not in _HARMLESS.get(section, ())
    if (section, key) == ("submodule", "update"):
        return value not in _HARMLESS_UPDATES
    return key not in _HARMLESS_OF_ONE.get(section, ())


def repository_named(entry: GitConfigEntry) -> str:
    """The path of a repository that git fetches from or pushes to, and whose hooks it runs; empty for a remote one."""
    if entry.key not in _URLS.get(entry.section, ()) or not entry.value:
        return ""
    scheme, _, rest = entry.value.partition("://")
    if scheme == "file" and rest:
        return unquote(rest)
    return entry.value if ":" not in entry.value.partition("/")[0] else ""


# -- harmless values for them -----------------------------------------------------------------------------------------

_DIFF: Final = 'sh -c \'diff -u -- "$2" "$5"; :\' diff'
_INSTEAD: Final = {
    "core.fsmonitor": "false",
    "core.hookspath": "/dev/null",
    "core.sshcommand": "ssh",
    "core.editor": "vi",
    "core.pager": "cat",
    "diff.external": _DIFF,
    "diff..command": _DIFF,
    "diff..textconv": "cat",
    "filter..required": "false",
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.x509.program": "gpgsm",
    "gpg.ssh.program": "ssh-keygen",
    "merge..driver": "git merge-file %A %O %B",
    "pager.": "false",
    "sequence.editor": "true",
    "submodule..update": "checkout",
}
_NO_HELPER: Final = "refused-as-its-repository-names-a-program"
"""There is no such remote helper, so git reports that and ends."""
_PROGRAMS: Final = frozenset(
    """
    alias alternaterefscommand askpass browser clean cmd command diffcmd difffilter driver editor external fsmonitor
    gitproxy helper hookspath keygen pager path process program packobjectshook receivepack recentobjectshook
    required sendmailcmd sendpack smtpserver smudge sshcommand templatedir textconv tool tunnel uploadarchive
    uploadpack vcs
    """.split()  # noqa: SIM905 - a list of words
)
_PROGRAM_SECTIONS: Final = frozenset(("alias", "pager"))


def safe_override(entry: GitConfigEntry) -> dict[str, str]:
    """What overrides an entry of a repository that makes git run a program: values by the names of keys."""
    if entry.section in ("include", "includeif"):
        return {}  # included files are read themselves
    if entry.name == "core.gitproxy":
        return {"protocol.git.allow": "never"}  # of several proxies, git takes the first
    if entry.section == "remote" and entry.key in ("uploadpack", "receivepack"):
        return {f"remote.{entry.subsection}.vcs": _NO_HELPER}  # of these, too
    generic = f"{entry.section}.{'' if entry.subsection is None else '.'}{entry.key}"
    for name in (entry.name.casefold(), generic, f"{entry.section}."):
        if name in _INSTEAD:
            return {entry.name: _INSTEAD[name]}
    runs = entry.section in _PROGRAM_SECTIONS or entry.key in _PROGRAMS or entry.key.endswith(("cmd", "command"))
    return {entry.name: ""} if runs and is_dangerous(entry) else {}


# -- repositories ------------------------------------------------------------------------------------------------------

LARGEST_GIT_FILE_BYTES: Final = 1 << 20
_MOST_INCLUDED: Final = 64
_DEEPEST_MODULE: Final = 8
_GITDIR: Final = b"gitdir: "


def read_git_file(path: str) -> bytes | None:
    """The content of a regular file; None for anything else, and for one that is too large."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = os.read(fd, LARGEST_GIT_FILE_BYTES + 1)
        return data if len(data) <= LARGEST_GIT_FILE_BYTES else None
    except OSError:
        return None
    finally:
        os.close(fd)


def gitdir_target(data: bytes, folder: str) -> str | None:
    """The repository that a file `.git` in this folder points to."""
    if not data.startswith(_GITDIR):
        return None
    path = os.fsdecode(data[len(_GITDIR) :].rstrip(b"\r\n"))
    return os.path.join(folder, path) if path and "\0" not in path else None  # noqa: PTH118


def is_repository(path: str) -> bool:
    """Whether git takes this folder for a repository."""
    if not os.path.lexists(f"{path}/HEAD") or os.path.lexists(f"{path}/commondir"):
        return os.path.lexists(f"{path}/HEAD")
    return os.path.isdir(f"{path}/objects") and os.path.isdir(f"{path}/refs")  # noqa: PTH112


def repository_at(folder: str) -> str | None:
    """The repository that git finds in this folder, not above it."""
    dot = f"{folder}/.git"
    if os.path.isdir(dot):  # noqa: PTH112
        return dot
    data = read_git_file(dot)
    if data is not None:
        return gitdir_target(data, folder)
    return folder if is_repository(folder) else None


def repository_above(folder: str) -> str | None:
    """The repository that git finds from this folder upwards."""
    start = Path(os.path.realpath(folder))
    return next(filter(None, (repository_at(str(at)) for at in (start, *start.parents))), None)


def configurations_of(repository: str) -> Iterator[str]:
    """The configuration files of a repository, of its submodules and of its other working trees."""
    yield f"{repository}/config"
    yield f"{repository}/config.worktree"
    common = read_git_file(f"{repository}/commondir")
    if common is not None:
        shared = os.path.join(repository, os.fsdecode(common.rstrip(b"\r\n")).replace("\0", ""))  # noqa: PTH118
        yield f"{shared}/config"
        yield from _of_modules(shared, 0)
    yield from _of_modules(repository, 0)


def _of_modules(repository: str, depth: int) -> Iterator[str]:
    """The name of a submodule may have slashes in it."""
    if depth > _DEEPEST_MODULE:
        return
    for group in ("modules", "worktrees") if depth == 0 or is_repository(repository) else ("",):
        folders: list[str] = []
        with contextlib.suppress(OSError), os.scandir(f"{repository}/{group}" if group else repository) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        for path in folders:
            if os.path.lexists(f"{path}/HEAD"):
                yield f"{path}/config"
                yield f"{path}/config.worktree"
            yield from _of_modules(path, depth + 1)


class IncompleteGitConfig(Exception):
    """A repository's configuration cannot be read completely, although git would use it."""


def entries_of(path: str) -> Iterator[GitConfigEntry]:
    """The entries of a configuration file and of all that it may include. Raises IncompleteGitConfig."""
    waiting, seen = [path], set[str]()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if len(seen) > _MOST_INCLUDED:
            raise IncompleteGitConfig(f"`{path}` includes more than {_MOST_INCLUDED} files")
        data = read_git_file(at)
        with contextlib.suppress(OSError, ValueError):
            if data is None and os.stat(at).st_size > LARGEST_GIT_FILE_BYTES:  # noqa: PTH116
                raise IncompleteGitConfig(f"`{at}` is larger than {LARGEST_GIT_FILE_BYTES >> 20} MiB")
        try:
            entries = [] if data is None else parse_git_config(data)
        except BadGitConfig:
            if data is not None and b"\0" in data:
                raise IncompleteGitConfig(f"`{at}` contains a NUL byte") from None
            continue  # git refuses to run then
        yield from entries
        for entry in entries:
            if entry.section in ("include", "includeif") and entry.key == "path" and entry.value:
                included = os.path.expanduser(entry.value)  # noqa: PTH111
                waiting.append(os.path.join(os.path.dirname(at), included))  # noqa: PTH118, PTH120


# -- overrides in git's environment ------------------------------------------------------------------------------------
#
# Variables keep git from running programs that only a repository names: they win over every file. What the user has set
# for all repositories is still respected.

COUNT: Final = "GIT_CONFIG_COUNT"
_ALWAYS: Final = {"core.fsmonitor": "false", "core.hookspath": "/dev/null", "protocol.ext.allow": "never"}
_MOST: Final = 1000
_ADDS_UP: Final = ".helper"
"""The values of such a key add up, and an empty one removes those before it."""


def git_overrides(repositories: Iterable[str]) -> dict[str, str]:
    """The keys of these repositories that make git run programs, with harmless values. Reads files. Raises
    IncompleteGitConfig if there may be more."""
    found = dict(_ALWAYS)
    for repository in repositories:
        for path in configurations_of(repository):
            for entry in entries_of(path):
                found |= safe_override(entry)
                if len(found) > _MOST:
                    raise IncompleteGitConfig(f"`{path}` and others name more than {_MOST:,} programs")
    return found


def git_environment(
    settings: Mapping[str, str], own: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables that override these settings, except if the user has `own` ones, to be added to `environ`."""
    pairs: list[tuple[str, str]] = []
    for name, neutral in settings.items():
        values = own.get(name, ())
        if name.endswith(_ADDS_UP):
            pairs += [(name, value) for value in ("", *values)]
        else:
            pairs.append((name, values[-1] if values else neutral))
    count = environ.get(COUNT, "")  # the user's environment may have some already
    is_valid = count.isascii() and count.isdigit() and len(count) <= len(str(_MOST))
    start = int(count) if is_valid else 0
    variables = {COUNT: str(start + len(pairs))}
    for number, (name, value) in enumerate(pairs, start):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def parse_git_list(text: str) -> dict[str, list[str]]:
    """The output of `git config --list -z` as values by key."""
    found: dict[str, list[str]] = {}
    for line in filter(None, text.split("\0")):
        name, _, value = line.partition("\n")
        found.setdefault(name, []).append(value)
    return found
