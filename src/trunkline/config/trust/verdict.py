"""The verdict on one file: whether it counts, and what it would start if it did."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from trunkline.config.files import parse_text, read_text
from trunkline.config.problems import FileProblem, Invalid, Report
from trunkline.config.reader import has_reference
from trunkline.config.secret_names import is_secret_name
from trunkline.config.secret_values import CREDENTIAL, is_path_for_certain, secrets_in_urls
from trunkline.config.secrets import ONLY_REFERENCES
from trunkline.config.tree import Items, Node, Scalar, Table
from trunkline.config.trust.local_programs import ABSENT, LEADS_TO, LocalFile, local_files
from trunkline.config.trust.store import TrustStore, trust_key
from trunkline.core.bind_address import is_loopback
from trunkline.core.errors import NOT_TRUSTED, GatewayError, Severity

# What a file would start, reach and weaken, as its user is shown it before trusting it: all that is trusted, in lines.
#
# Secrets are hidden, but nothing else with them: a file could be written so that what matters looks like a part of one.
# The text comes from the file, so whoever prints it makes it harmless to a terminal.

# What a user trusts in a file: everything that it says but what is known to be harmless, and the programs and scripts
# of its own folder.
#
# A key that is new is covered by default. Text is taken as it is written: a reference stays a reference, and a value of
# the environment is nobody's secret here.

_FORMAT: Final = 1
_ANY: Final = "*"
_TIMES: Final = ("timeout", "connect_timeout", "start_timeout", "grace")
_TIMES_OF_CLIENTS: Final = ("timeout", "timeout_s", "start_timeout_ms", "start_timeout_s")

KeyPath = tuple[str, ...]
HARMLESS: Final[frozenset[KeyPath]] = frozenset(
    {
        ("$schema",),
        *(("gateway", name) for name in ("context_tokens", "disclosure", "log", "search", "start_wait")),
        *(
            ("gateway", "limits", f"{name}")
            for name in ("call_seconds", "source_session_idle", "server_request_seconds", "session_idle")
        ),
        *(("sources", _ANY, name) for name in _TIMES),
        ("sources", _ANY, "tools", "timeouts"),
        ("sources", _ANY, "cache", "ttl"),
        ("sources", _ANY, "declare", _ANY, "title"),
        ("sources", _ANY, "declare", _ANY, "description"),
        ("mcpServers", _ANY, "description"),
        *(("mcpServers", _ANY, name) for name in _TIMES_OF_CLIENTS),
        ("plugins", _ANY, "description"),
    }
)
"""Keys that start nothing and weaken nothing: to change them needs no new trust. `*` is any name, or an item."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`files` are the programs and scripts whose bytes are part of it."""

    digest: str
    files: tuple[LocalFile, ...]


def fingerprint(root: Node, file: Path, environ: Mapping[str, str]) -> Fingerprint:
    """Of the file at `file`, whose text was read as `root`."""
    files = local_files(root, file, environ)
    said = [_FORMAT, _plain(root, ()), [[one.path, one.state] for one in files]]
    data = json.dumps(said, ensure_ascii=True, separators=(",", ":")).encode()
    return Fingerprint(hashlib.sha256(data).hexdigest(), files)


def _is_harmless(node: Node, way: KeyPath) -> bool:
    """Whether what stands at this place of a file starts and weakens nothing. A reference may tell a secret to those
    who are shown a description, so it is not."""
    return any(_fits(way, harmless) for harmless in HARMLESS) and not _refers(node)


def _refers(node: Node) -> bool:
    if isinstance(node, Scalar):
        return has_reference(node.text)
    return any(map(_refers, node.items if isinstance(node, Items) else [value for _, value in node.entries]))


def _is_left_out(node: Node, way: KeyPath) -> bool:
    """Harmless by itself, or a group of settings of the gateway in which all are."""
    if way[0] != "gateway" or not isinstance(node, Table) or not node.entries:
        return _is_harmless(node, way)
    return _is_harmless(node, way) or all(_is_left_out(value, (*way, key.text)) for key, value in node.entries)


def _fits(way: KeyPath, pattern: KeyPath) -> bool:
    return len(way) == len(pattern) and all(part in (_ANY, name) for name, part in zip(way, pattern, strict=True))


def fingerprinted_values(node: Node, way: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
    """Every list, and every value outside of one, that is part of the fingerprint, in the order of the file."""
    if _is_harmless(node, way) or (not way and _says_nothing(node)):
        return
    if isinstance(node, Table) and node.entries:
        for key, value in node.entries:
            yield from fingerprinted_values(value, (*way, key.text))
    elif isinstance(node, Items) and any(isinstance(item, Table) for item in node.items):
        for number, item in enumerate(node.items, 1):
            yield from fingerprinted_values(item, (*way, str(number)))
    else:
        yield way, node


def _says_nothing(node: Node) -> bool:
    return (isinstance(node, Scalar) and node.kind == "null") or (isinstance(node, Table) and not node.entries)


def _plain(node: Node, way: KeyPath) -> Any:
    """The tree in a form that is the same whenever it says the same. The order of keys says nothing."""
    if isinstance(node, Table):
        said = ((key.text, value, (*way, key.text)) for key, value in node.entries)
        return {"keys": sorted([name, _plain(value, at)] for name, value, at in said if not _is_left_out(value, at))}
    if isinstance(node, Items):
        return [_plain(item, (*way, str(number))) for number, item in enumerate(node.items, 1)]
    return {node.kind: node.text}


Effect = Literal["start", "reach", "weaken", "set"]
_HIDDEN: Final = "********"
_PLAIN: Final = re.compile(r"[\w.~+/=:@ -]*", re.ASCII)
"""What a secret is made of. A shell obeys none of it."""
_ONE_WORD: Final = re.compile(r"(?:(?:Bearer|Basic|Token|Bot|ApiKey) +)?[^ ]*", re.IGNORECASE)
"""More would be a command."""
_PATH: Final = re.compile(r"(?:\.{1,2}|~\w*)/")
_ADDRESS: Final = re.compile(r"\A([^/?#]*//)([^/?#]*@)?([^/?#]*)(.*)\Z", re.DOTALL)
"""Scheme, user, host and path of a URL, the slashes and the `@` included."""
_PROGRAMS: Final = ("command", "path")
_VERBS: Final[dict[str, Effect]] = {
    **dict.fromkeys(("env", "envFile", "cwd", "config"), "start"),
    **dict.fromkeys(("headers", "tokens"), "reach"),
}
"""What decides, besides its arguments, what a program does, and what is told to whom is reached."""
_URLS: Final = (("url",), ("httpUrl",), ("serverUrl",), ("endpoint",))
_SOURCES: Final = ("sources", "mcpServers", "plugins")


@dataclass(frozen=True, slots=True)
class SummaryLine:
    effect: Effect
    what: str
    text: str


def summary_lines(root: Node, files: Sequence[LocalFile]) -> tuple[SummaryLine, ...]:
    """What matters most comes first. Nothing that is trusted is left out."""
    lines = [*_programs(root), *(_line(way, node) for way, node in fingerprinted_values(root) if not _is_told(way))]
    lines += [_file_line(file) for file in files if file.state not in ABSENT]
    order: tuple[Effect, ...] = ("start", "reach", "weaken", "set")
    return tuple(sorted(lines, key=lambda line: order.index(line.effect)))


def _file_line(file: LocalFile) -> SummaryLine:
    if file.state.startswith(LEADS_TO):
        return SummaryLine("weaken", "", f"{file.path} {file.state} (a link that leads out of the file's folder)")
    return SummaryLine("start", "", f"from the file {file.path}")


def _is_told(way: KeyPath) -> bool:
    """Whether it is part of the line of its program."""
    return len(way) == 3 and way[0] in _SOURCES and way[2] in (*_PROGRAMS, "args")


def _programs(root: Node) -> Iterator[SummaryLine]:
    for group in _SOURCES:
        node = root.get(group) if isinstance(root, Table) else None
        entries = [(key.text, value) for key, value in node.entries] if isinstance(node, Table) else []
        if isinstance(node, Items):
            entries += [(str(number), item) for number, item in enumerate(node.items, 1)]
        for name, entry in entries:
            if not isinstance(entry, Table):
                continue
            programs = [word for key in _PROGRAMS if (word := entry.get(key)) is not None]
            args = entry.get("args")
            words = [_words(word, hide=False) for word in programs] + ([] if args is None else [_words(args)])
            if words:
                yield SummaryLine("start", name, " ".join(words))


def _line(way: KeyPath, node: Node) -> SummaryLine:
    in_source = len(way) > 2 and way[0] in _SOURCES
    what, rest = ("".join(way[1:2]), way[2:]) if in_source else ("", way)
    if in_source and rest[:1] in _URLS and isinstance(node, Scalar):
        return SummaryLine("reach", what, _url(node.text))
    why = _weakened(rest, node)
    effect: Effect = _VERBS.get(rest[0], "set") if in_source and rest else "set"
    text = f"{'.'.join(rest)}: {_words(node, secret=any(map(is_secret_name, rest)))}"
    return SummaryLine("weaken" if why else effect, what, f"{text} ({why})" if why else text)


def _words(node: Node, *, secret: bool = False, hide: bool = True) -> str:
    """`secret` says that its name is that of a secret. The name of a program is none, whatever it looks like."""
    if isinstance(node, Items):
        return " ".join(_listed(node.items, secret=secret)) or "[]"
    if isinstance(node, Table):
        return "{}"  # one with keys has a line for each
    text = node.text
    if secret and _is_hidden(text):
        return _HIDDEN
    text = CREDENTIAL.sub(_hidden, text) if hide else text
    return f"'{text}'" if not text or " " in text else text


def _listed(items: Sequence[Node], *, secret: bool) -> Iterator[str]:
    """The words of a list. What follows `--token`, say, is a secret."""
    before = ""
    for item in items:
        text = item.text if isinstance(item, Scalar) else ""
        name, equals, value = text.partition("=")
        if equals and is_secret_name(name) and _is_hidden(value):
            yield f"{CREDENTIAL.sub(_hidden, name)}={_HIDDEN}"
        else:
            yield _words(item, secret=secret or is_secret_name(before))
        before = text if text.startswith("-") and not equals else ""


def _is_hidden(text: str) -> bool:
    """Whether a value with a secret's name may be one: neither a reference, nor something that can be run."""
    if not (_PLAIN.fullmatch(text) and _ONE_WORD.fullmatch(text)) or ONLY_REFERENCES.match(text):
        return False
    return not _PATH.match(text) and not is_path_for_certain(text)


def _hidden(match: re.Match[str]) -> str:
    """A credential, up to where it is none any more."""
    plain = _PLAIN.match(match.group())
    return _HIDDEN + match.group()[plain.end() if plain else 0 :]


def _url(url: str) -> str:
    """Its host is always there to be seen, whatever else the URL has in it."""
    address, mark, query = url.partition("?")
    told = [_told(part) for part in query.split("&")] if query else []
    return f"{_ADDRESS.sub(_shown_address, address)}{mark}{'&'.join(told)}"


def _shown_address(address: re.Match[str]) -> str:
    scheme, user, host, path = address.groups("")
    secrets = {re.escape(secret) for secret in secrets_in_urls(f"{scheme}{host}{path}") if secret}
    if secrets:
        path = re.sub("|".join(sorted(secrets, key=len, reverse=True)), _HIDDEN, path)
    if user and _PLAIN.fullmatch(user):
        user = f"{_HIDDEN}@"
    return f"{scheme}{user}{host}{path}"


def _told(part: str) -> str:
    """A value of a query. Which variable is sent to whom is no secret."""
    name, equals, value = part.partition("=")
    return part if equals and ONLY_REFERENCES.match(value) else f"{name}={_HIDDEN}" if equals else _HIDDEN


# -- what weakens -----------------------------------------------------------------------------------------------------


def _text(node: Node) -> str:
    return node.text.lower() if isinstance(node, Scalar) else ""


def _texts(node: Node) -> list[str]:
    return [item.text for item in node.items if isinstance(item, Scalar)] if isinstance(node, Items) else []


def _always(node: Node) -> bool:
    return True


def _is_off(node: Node) -> bool:
    return _text(node) in ("off", "false") or "${" in _text(node)


def _is_open(node: Node) -> bool:
    return not is_loopback(_text(node).rpartition(":")[0].strip("[]"))


def _allows_commands(node: Node) -> bool:
    return any(text == "Bash" or "${" in text for text in _texts(node))


def _leads_out(node: Node) -> bool:
    text = _text(node)
    return text.startswith(("/", "~")) or "${" in text or ".." in text.split("/")


_WEAKENING: Final[tuple[tuple[KeyPath, Callable[[Node], bool], str], ...]] = (
    (("sandbox",), _is_off, "commands run without a sandbox"),
    (("sandbox", "mode"), _is_off, "commands run without a sandbox"),
    (("sandbox", "network"), lambda node: _text(node) != "off", "commands have network access"),
    (("sandbox", "folders"), _always, "commands see more folders"),
    (("sandbox", "env"), _always, "commands get environment variables of its choice"),
    (("root",), _leads_out, "agents work in a folder other than the file's"),
    (("protect",), _is_off, "files that start programs can be modified"),
    (("tools", "allow"), _allows_commands, "agents can run commands"),
    (("guard", "path_traversal"), _is_off, "path traversal is not refused"),
    (("listen",), lambda node: "/" not in _text(node) and _is_open(node), "others can reach it"),
    (("inherit_env",), _always, "it gets variables of your environment"),
    (("gateway", "listen"), _is_open, "others can reach the gateway"),
    (("gateway", "allowed_hosts"), _always, "more host names are accepted"),
    (("gateway", "require_provisioning"), _is_off, "tools are executed without having been discovered"),
    (("gateway", "state_dir"), _always, "state is kept there between runs"),
    (("gateway", "socket"), _always, "others can reach the gateway there"),
    (("gateway", "telemetry"), _always, "calls are reported there"),
)


def _weakened(key: KeyPath, node: Node) -> str:
    return next((why for way, weakens, why in _WEAKENING if key[: len(way)] == way and weakens(node)), "")


MOST_READS: Final = 10
"""How often a file that changes all the time is read anew before it counts as changed."""
State = Literal["trusted", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`path` is the real one. `changed` is a file that was trusted as it was before. `fault` says why the list of
    trusted files cannot be used."""

    path: Path
    state: State
    digest: str
    root: Node = field(repr=False, compare=False)
    files: tuple[LocalFile, ...] = field(repr=False, compare=False)
    fault: str = ""

    @property
    def is_trusted(self) -> bool:
        return self.state == "trusted"

    def lines(self) -> tuple[SummaryLine, ...]:
        """What it would start, reach and weaken, for its user to see."""
        return summary_lines(self.root, self.files)

    def problem(self, severity: Severity = "error") -> FileProblem:
        changed = "has changed since it was trusted" if self.state == "changed" else "is not trusted"
        fault = f" ({self.fault})" if self.fault else ""
        command = f"`trunkline trust {shlex.quote(str(self.path))}` shows what it would start, and asks"
        return FileProblem(
            code=NOT_TRUSTED,
            message=f"This file was found, not named with `-c`, and {changed}{fault}: {command}",
            where=str(self.path),
            severity=severity,
            file=str(self.path),
        )


def verdict_on(file: Path, root: Node, environ: Mapping[str, str]) -> Verdict:
    """Of the file at `file`, whose text was read as `root`: that very text is what is trusted or not. Whichever way the
    file was named, it is the same one."""
    key = trust_key(file)
    found = fingerprint(root, Path(key), environ)
    store = TrustStore(environ)
    kept = store.read()
    known = kept.files.get(key)
    state: State = "unknown" if known is None else "trusted" if known.covers(found.digest) else "changed"
    fault = f"the list of trusted files {store.path} cannot be used: {kept.fault}" if kept.fault else ""
    return Verdict(Path(key), state, found.digest, root, found.files, fault)


def read_verdict(file: Path, environ: Mapping[str, str]) -> Verdict:
    """The verdict on a file as it is now. Raises GatewayError where it cannot be read at all."""
    verdict = _read_verdict(file, environ)
    for _ in range(MOST_READS):
        if verdict.state != "changed":
            break
        # `add` may have written the file and the list between our reading the one and the other
        before, verdict = verdict, _read_verdict(file, environ)
        if verdict.digest == before.digest:
            break
    return verdict


def _read_verdict(file: Path, environ: Mapping[str, str]) -> Verdict:
    report = Report(str(file))
    try:
        return verdict_on(file, parse_text(read_text(file, report), file, report), environ)
    except Invalid:
        errors = (problem for problem in report.in_file_order() if problem.severity == "error")
        raise GatewayError(next(errors)) from None
