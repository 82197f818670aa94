"""Reads and writes git configurations without git, which would do what they say, and knows which keys are dangerous."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
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
    """One setting. Section and key are in lower case; a key without `=` has no value, which git reads as true. Before the
    first section, where git ignores it, it has no section.
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
# Too many keys make git run a program, and every version adds some. So the harmless keys are listed, and every other one
# counts as dangerous.

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
_URLS: Final = frozenset(
    (("remote", "url"), ("remote", "pushurl"), ("remote", "pushdefault"))
    + (("submodule", "url"), ("branch", "remote"), ("branch", "pushremote"))
)
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
    if (section, key) in _URLS:
        return _PROGRAM_IN_URL.match(value) is not None
    if entry.subsection is None:
        return key not in _HARMLESS.get(section, ())
    if (section, key) == ("submodule", "update"):
        return value not in _HARMLESS_UPDATES
    return key not in _HARMLESS_OF_ONE.get(section, ())


def repository_named(entry: GitConfigEntry) -> str:
    """The path of a repository that git fetches from or pushes to, and whose hooks it runs; empty for a remote one."""
    if (entry.section, entry.key) not in _URLS or not entry.value:
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
