"""Reads and writes the text of a git configuration without asking git, which would do what the text says."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import unquote

_NAME: Final = frozenset(string.ascii_letters + string.digits + "-")
_SPACE: Final = frozenset(" \t\n\r")
_ESCAPES: Final = {"t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}
_WRITTEN: Final = {"\t": "\\t", "\b": "\\b", "\n": "\\n", "\\": "\\\\", '"': '\\"'}
_IN_SUBSECTION: Final = re.compile(r'["\\]')
_IN_VALUE: Final = re.compile(r'[\t\b\n"\\]')


class BadGitConfig(ValueError):
    """The text is not one that git would take."""


@dataclass(frozen=True, slots=True)
class GitConfigEntry:
    """One line of it. Section and key are in lower case; a key without `=` has no value, which git reads as true.

    What stands before the first section has none; git takes that, and makes nothing of it.
    """

    section: str
    subsection: str | None
    key: str
    value: str | None

    @property
    def name(self) -> str:
        """As `git config` spells it."""
        if not self.section:
            return self.key
        middle = "" if self.subsection is None else f".{self.subsection}"
        return f"{self.section}{middle}.{self.key}"


def parse_git_config(data: bytes) -> list[GitConfigEntry]:
    """Every entry, in order. Raises BadGitConfig."""
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise BadGitConfig
    return list(_Reading(text).entries())


def format_git_config(entries: Iterable[GitConfigEntry]) -> bytes:
    """A text that says the same as these entries, but for those without a section."""
    lines: list[str] = []
    placed = (entry for entry in entries if entry.section)
    for (section, subsection), group in groupby(placed, lambda entry: (entry.section, entry.subsection)):
        quoted = "" if subsection is None else f' "{_IN_SUBSECTION.sub(lambda found: chr(92) + found[0], subsection)}"'
        lines.append(f"[{section}{quoted}]")
        lines += [f"\t{entry.key}{_assigned(entry.value)}" for entry in group]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def _assigned(value: str | None) -> str:
    return "" if value is None else f' = "{_IN_VALUE.sub(lambda found: _WRITTEN[found[0]], value)}"'


class _Reading:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def entries(self) -> Iterator[GitConfigEntry]:
        section = ""
        while found := self._next():
            if found in "#;":
                self._skip_line()
            elif found == "[":
                section = self._section()
            elif found not in _SPACE:
                yield self._entry(section, found)

    def _next(self) -> str | None:
        """The next character; None at the end."""
        if self._at >= len(self._text):
            return None
        self._at += 1
        return self._text[self._at - 1]

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end + 1

    def _section(self) -> str:
        found = ""
        while (character := self._next()) != "]":
            if character is not None and character in _SPACE:
                return f"{found}.{self._subsection(character)}"
            if character is None or (character not in _NAME and character != "."):
                raise BadGitConfig
            found += character.lower()
        return found

    def _subsection(self, character: str | None) -> str:
        while character in (" ", "\t", "\r"):
            character = self._next()
        if character != '"':
            raise BadGitConfig
        found = ""
        while (character := self._next()) != '"':
            if character == "\\":
                character = self._next()
            if character is None or character == "\n":
                raise BadGitConfig
            found += character
        if self._next() != "]":
            raise BadGitConfig
        return found

    def _entry(self, section: str, first: str) -> GitConfigEntry:
        key, following = first, self._next()
        while following is not None and following in _NAME:
            key, following = key + following, self._next()
        while following in (" ", "\t"):
            following = self._next()
        value = self._value() if following == "=" else None
        name, _, subsection = section.partition(".")
        good = first in string.ascii_letters and set(key) <= _NAME and following in ("=", "\n", None)
        if not good or (section and not name):
            raise BadGitConfig
        return GitConfigEntry(name, subsection if "." in section else None, key.lower(), value)

    def _value(self) -> str:
        found, spaces, quoted = "", "", False
        while (character := self._next()) not in ("\n", None):
            assert character is not None
            if not quoted and character in _SPACE:
                spaces += " " if found else ""
                continue
            if not quoted and character in "#;":
                self._skip_line()
                return found
            if character == '"':
                quoted = not quoted
                if not quoted or not spaces:
                    continue
                character = ""
            elif character == "\\":
                character = self._escaped()
            found, spaces = found + spaces + character, ""
        if quoted:
            raise BadGitConfig
        return found

    def _escaped(self) -> str:
        character = self._next()
        if character in ("\n", None):  # the end counts as the end of a line
            return ""
        if character not in _ESCAPES:
            raise BadGitConfig
        return _ESCAPES[character]


# Which keys of a repository's configuration may change as they like, and what takes the place of the others.
#
# Git has too many keys that run a program, and gets more with every version, to name those. So the harmless ones are
# named, and every other key counts.

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
"""Those with something between section and key."""
_URLS: Final = frozenset(
    (
        ("remote", "url"),
        ("remote", "pushurl"),
        ("remote", "pushdefault"),
        ("submodule", "url"),
        ("branch", "remote"),
        ("branch", "pushremote"),
    )
)
_WHOLE: Final = frozenset(("advice", "color", "column", "feature"))
_HARMLESS: Final = {section: frozenset(keys.split()) for section, keys in _PLAIN.items()}
_HARMLESS_OF_ONE: Final = {section: frozenset(keys.split()) for section, keys in _OF_ONE.items()}
_HARMLESS_UPDATES: Final = frozenset(("checkout", "rebase", "merge", "none"))
_PROGRAM_IN_URL: Final = re.compile(r"-|[^/]*::|.*(?://|@)-", re.DOTALL)
"""`ext::` and its like name a program; a host that begins with a dash becomes an option of one."""


def is_dangerous(entry: GitConfigEntry) -> bool:
    """Whether this entry may have git run a program, or work elsewhere, or believe something that does."""
    section, key = entry.section, entry.key
    if section in _WHOLE:
        return False
    value = entry.value or ""
    if (section, key) in _URLS:
        return _PROGRAM_IN_URL.match(value) is not None
    if entry.subsection is None:
        return key not in _HARMLESS.get(section, ())
    if (section, key) == ("submodule", "update"):
        return value not in _HARMLESS_UPDATES
    return key not in _HARMLESS_OF_ONE.get(section, ())


def repository_named(entry: GitConfigEntry) -> str:
    """The path of the repository that this entry fetches from or pushes to, which runs that one's hooks; empty where it
    is on another machine."""
    if (entry.section, entry.key) not in _URLS or not entry.value:
        return ""
    scheme, _, rest = entry.value.partition("://")
    if scheme == "file" and rest:
        return unquote(rest)
    return entry.value if ":" not in entry.value.partition("/")[0] else ""


# -- what stands for them where git is run -----------------------------------------------------------------------------

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
"""There is no such helper for a remote, so git tells of it and ends."""
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
    """What overrides this entry of a repository where it has git run a program: values by the names of keys."""
    if entry.section in ("include", "includeif"):
        return {}  # what is included is looked at itself
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
