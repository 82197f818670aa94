"""Which keys of a repository's configuration may change as they like, and what takes the place of the others.

Git has too many keys that run a program, and gets more with every version, to name those. So the harmless ones are
named, and every other key counts.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from trunkline.sources.builtin.protection.git_config import Entry

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


def counts(entry: Entry) -> bool:
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


def repository_named(entry: Entry) -> str:
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


def instead_of(entry: Entry) -> dict[str, str]:
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
    return {entry.name: ""} if runs and counts(entry) else {}
