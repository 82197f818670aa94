"""Decides by its fingerprint whether a file is trusted, and sums up what it would start, reach and weaken.

The fingerprint covers unknown keys and the text as it is written: a reference stays a reference. What is shown is all
that the fingerprint covers. Secrets are hidden, but nothing beside them: a file could be written so that what matters
looks like a part of one. Whoever prints the text has to make it harmless to a terminal.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from trunkline.config.files import parse_text, read_text
from trunkline.config.problems import FileProblem, InvalidValue, Report
from trunkline.config.reader import has_reference
from trunkline.config.secret_detection import CREDENTIAL, is_path_for_certain, is_secret_name, secrets_in_urls
from trunkline.config.secrets import ONLY_REFERENCES
from trunkline.config.tree import ListNode, Node, Scalar, Table
from trunkline.config.trust.local_programs import ABSENT, LEADS_TO, SOURCE_GROUPS, LocalFile, entries_of, local_files
from trunkline.config.trust.store import TrustStore, trust_key
from trunkline.core.bind_address import is_loopback
from trunkline.core.errors import NOT_TRUSTED, GatewayError, Severity

# -- the fingerprint: everything in a file that is not known to be harmless, and the programs in its folder ----------

_FORMAT: Final = 1
_ANY: Final = "*"

KeyPath = tuple[str, ...]
HARMLESS: Final[frozenset[KeyPath]] = frozenset(
    {
        ("$schema",),
        *(("gateway", name) for name in ("context_tokens", "disclosure", "log", "search", "start_wait")),
        ("gateway", "limits", "call_seconds"),
        ("gateway", "limits", "source_session_idle"),
        ("gateway", "limits", "server_request_seconds"),
        ("gateway", "limits", "session_idle"),
        *(("sources", _ANY, name) for name in ("timeout", "connect_timeout", "start_timeout", "grace")),
        ("sources", _ANY, "tools", "timeouts"),
        ("sources", _ANY, "cache", "ttl"),
        ("sources", _ANY, "declare", _ANY, "title"),
        ("sources", _ANY, "declare", _ANY, "description"),
        ("mcpServers", _ANY, "description"),
        *(("mcpServers", _ANY, name) for name in ("timeout", "timeout_s", "start_timeout_ms", "start_timeout_s")),
        ("plugins", _ANY, "description"),
    }
)
"""Keys that start and weaken nothing, so that changing them needs no new trust. `*` is any name or item."""


def fingerprint(root: Node, files: Sequence[LocalFile]) -> str:
    """The digest of a file whose tree is `root`, and of the programs and scripts in its folder."""
    covered = [_FORMAT, _normalized(root, ()), [[file.path, file.state] for file in files]]
    return hashlib.sha256(json.dumps(covered, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()


def _is_harmless(node: Node, path: KeyPath) -> bool:
    """Whether a value starts and weakens nothing. A reference might put a secret into a description, so it may not."""
    return any(map(partial(_matches, path), HARMLESS)) and not _has_reference(node)


def _has_reference(node: Node) -> bool:
    if isinstance(node, Scalar):
        return has_reference(node.text)
    return any(map(_has_reference, node.items if isinstance(node, ListNode) else [value for _, value in node.entries]))


def _is_left_out(node: Node, path: KeyPath) -> bool:
    """Whether a value is harmless, or a group of the gateway's settings in which all are."""
    if path[0] != "gateway" or not isinstance(node, Table) or not node.entries:
        return _is_harmless(node, path)
    return _is_harmless(node, path) or all(_is_left_out(value, (*path, key.text)) for key, value in node.entries)


def _matches(path: KeyPath, pattern: KeyPath) -> bool:
    return len(path) == len(pattern) and all(part in (_ANY, name) for name, part in zip(path, pattern, strict=True))


def fingerprinted_values(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
    """Every list, and every value outside of lists, that the fingerprint covers, in the order of the file."""
    is_empty = (isinstance(node, Scalar) and node.kind == "null") or (isinstance(node, Table) and not node.entries)
    if _is_harmless(node, path) or (not path and is_empty):
        return
    if isinstance(node, Table) and node.entries:
        for key, value in node.entries:
            yield from fingerprinted_values(value, (*path, key.text))
    elif isinstance(node, ListNode) and any(isinstance(item, Table) for item in node.items):
        for number, item in enumerate(node.items, 1):
            yield from fingerprinted_values(item, (*path, str(number)))
    else:
        yield path, node


def _normalized(node: Node, path: KeyPath) -> Any:
    """The tree in a form that does not depend on the syntax or the order of keys."""
    if isinstance(node, Table):
        inner = ((key.text, value, (*path, key.text)) for key, value in node.entries)
        kept = ([name, _normalized(value, at)] for name, value, at in inner if not _is_left_out(value, at))
        return {"keys": sorted(kept)}
    if isinstance(node, ListNode):
        return [_normalized(item, (*path, str(number))) for number, item in enumerate(node.items, 1)]
    return {node.kind: node.text}


# -- what is shown to the user ---------------------------------------------------------------------------------------

Effect = Literal["start", "reach", "weaken", "set"]
_HIDDEN: Final = "********"
_PLAIN: Final = re.compile(r"[\w.~+/=:@ -]*", re.ASCII)
"""The characters of a secret, none of which are special to a shell."""
_ONE_WORD: Final = re.compile(r"(?:(?:Bearer|Basic|Token|Bot|ApiKey) +)?[^ ]*", re.IGNORECASE)
"""A secret is one word; more would be a command."""
_PATH: Final = re.compile(r"(?:\.{1,2}|~\w*)/")
_ADDRESS: Final = re.compile(r"\A([^/?#]*//)([^/?#]*@)?([^/?#]*)(.*)\Z", re.DOTALL)
"""Scheme, user, host and path of a URL, with the slashes and the `@`."""
_PROGRAMS: Final = ("command", "path")
_EFFECTS: Final[dict[str, Effect]] = {
    **dict.fromkeys(("env", "envFile", "cwd", "config"), "start"),
    **dict.fromkeys(("headers", "tokens"), "reach"),
}
"""The effects of keys: what decides what a program does, and what is sent to a server."""


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One effect of a file: what a source (`what`) would start, reach, weaken or set."""

    effect: Effect
    what: str
    text: str


def summary_lines(root: Node, files: Sequence[LocalFile]) -> tuple[SummaryLine, ...]:
    """All that the fingerprint covers, the most important first."""
    lines = [*_programs(root)]
    for path, node in fingerprinted_values(root):
        if len(path) != 3 or path[0] not in SOURCE_GROUPS or path[2] not in (*_PROGRAMS, "args"):  # those have a line
            lines.append(_line(path, node))
    for file in files:
        if file.state.startswith(LEADS_TO):
            text = f"{file.path} {file.state} (a link that leads out of the file's folder)"
            lines.append(SummaryLine("weaken", "", text))
        elif file.state not in ABSENT:
            lines.append(SummaryLine("start", "", f"from the file {file.path}"))
    order: tuple[Effect, ...] = ("start", "reach", "weaken", "set")
    return tuple(sorted(lines, key=lambda line: order.index(line.effect)))


def _programs(root: Node) -> Iterator[SummaryLine]:
    for name, entry in entries_of(root):
        programs = [word for key in _PROGRAMS if (word := entry.get(key)) is not None]
        args = entry.get("args")
        words = [_words(word, hide=False) for word in programs] + ([] if args is None else [_words(args)])
        if words:
            yield SummaryLine("start", name, " ".join(words))


def _line(path: KeyPath, node: Node) -> SummaryLine:
    in_source = len(path) > 2 and path[0] in SOURCE_GROUPS
    what, rest = ("".join(path[1:2]), path[2:]) if in_source else ("", path)
    if in_source and rest[:1] in (("url",), ("httpUrl",), ("serverUrl",), ("endpoint",)) and isinstance(node, Scalar):
        return SummaryLine("reach", what, _url(node.text))
    why = next((why for key, weakens, why in _WEAKENING if rest[: len(key)] == key and weakens(node)), "")
    effect: Effect = _EFFECTS.get(rest[0], "set") if in_source and rest else "set"
    text = f"{'.'.join(rest)}: {_words(node, secret=any(map(is_secret_name, rest)))}"
    return SummaryLine("weaken" if why else effect, what, f"{text} ({why})" if why else text)


def _words(node: Node, *, secret: bool = False, hide: bool = True) -> str:
    """A value as it is shown. `secret` is for one with the name of a secret; `hide` is off for a program."""
    if isinstance(node, ListNode):
        return " ".join(_listed(node.items, secret=secret)) or "[]"
    if isinstance(node, Table):
        return "{}"  # the keys of others have lines of their own
    text = node.text
    if secret and _is_hidden(text):
        return _HIDDEN
    text = CREDENTIAL.sub(_hidden, text) if hide else text
    return f"'{text}'" if not text or " " in text else text


def _listed(items: Sequence[Node], *, secret: bool) -> Iterator[str]:
    """The words of a list, where what follows `--token`, for example, is a secret."""
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
    """Whether a value with the name of a secret is hidden: not a reference, nor anything that can be run."""
    if not (_PLAIN.fullmatch(text) and _ONE_WORD.fullmatch(text)) or ONLY_REFERENCES.match(text):
        return False
    return not _PATH.match(text) and not is_path_for_certain(text)


def _hidden(match: re.Match[str]) -> str:
    """The replacement for a credential, which ends at the first character that secrets do not have."""
    plain = _PLAIN.match(match.group())
    return _HIDDEN + match.group()[plain.end() if plain else 0 :]


def _url(url: str) -> str:
    """A URL without its secrets. Its host is always shown."""

    def without_value(part: str) -> str:
        name, equals, value = part.partition("=")
        # which variable is sent is no secret
        return part if equals and ONLY_REFERENCES.match(value) else f"{name}={_HIDDEN}" if equals else _HIDDEN

    address, mark, query = url.partition("?")
    parts = map(without_value, query.split("&")) if query else ()
    return f"{_ADDRESS.sub(_shown_address, address)}{mark}{'&'.join(parts)}"


def _shown_address(address: re.Match[str]) -> str:
    scheme, user, host, path = address.groups("")
    secrets = {re.escape(secret) for secret in secrets_in_urls(f"{scheme}{host}{path}") if secret}
    if secrets:
        path = re.sub("|".join(sorted(secrets, key=len, reverse=True)), _HIDDEN, path)
    if user and _PLAIN.fullmatch(user):
        user = f"{_HIDDEN}@"
    return f"{scheme}{user}{host}{path}"


# -- keys that weaken what protects the user -------------------------------------------------------------------------


def _text(node: Node) -> str:
    return node.text.lower() if isinstance(node, Scalar) else ""


def _is_off(node: Node) -> bool:
    return _text(node) in ("off", "false") or "${" in _text(node)


def _is_open(node: Node) -> bool:
    return not is_loopback(_text(node).rpartition(":")[0].strip("[]"))


def _allows_commands(node: Node) -> bool:
    items = node.items if isinstance(node, ListNode) else []
    return any(item.text == "Bash" or "${" in item.text for item in items if isinstance(item, Scalar))


def _leads_out(node: Node) -> bool:
    text = _text(node)
    return text.startswith(("/", "~")) or "${" in text or ".." in text.split("/")


_WEAKENING: Final[tuple[tuple[KeyPath, Callable[[Node], bool], str], ...]] = (
    (("sandbox",), _is_off, "commands run without a sandbox"),
    (("sandbox", "mode"), _is_off, "commands run without a sandbox"),
    (("sandbox", "network"), lambda node: _text(node) != "off", "commands have network access"),
    (("sandbox", "folders"), lambda _: True, "commands see more folders"),
    (("sandbox", "env"), lambda _: True, "commands get environment variables of its choice"),
    (("root",), _leads_out, "agents work in a folder other than the file's"),
    (("protect",), _is_off, "files that start programs can be modified"),
    (("tools", "allow"), _allows_commands, "agents can run commands"),
    (("guard", "path_traversal"), _is_off, "path traversal is not refused"),
    (("listen",), lambda node: "/" not in _text(node) and _is_open(node), "others can reach it"),
    (("inherit_env",), lambda _: True, "it gets variables of your environment"),
    (("gateway", "listen"), _is_open, "others can reach the gateway"),
    (("gateway", "allowed_hosts"), lambda _: True, "more host names are accepted"),
    (("gateway", "require_provisioning"), _is_off, "tools are executed without having been discovered"),
    (("gateway", "state_dir"), lambda _: True, "state is kept there between runs"),
    (("gateway", "socket"), lambda _: True, "others can reach the gateway there"),
    (("gateway", "telemetry"), lambda _: True, "calls are reported there"),
)


# -- the verdict -----------------------------------------------------------------------------------------------------


MOST_READS: Final = 10
"""How often a file that keeps changing is read again before it counts as changed."""
State = Literal["trusted", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a file, at its real path, is trusted; `changed` files were trusted with other content.

    `fault` says why the list of trusted files cannot be used.
    """

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
        """What the file would start, reach and weaken, to be shown to the user."""
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
    """The verdict on the file at `file` with the tree `root`."""
    key = trust_key(file)
    files = local_files(root, Path(key), environ)
    digest = fingerprint(root, files)
    store = TrustStore(environ)
    kept = store.read()
    known = kept.files.get(key)
    state: State = "unknown" if known is None else "trusted" if digest in (known.digest, known.also) else "changed"
    fault = f"the list of trusted files {store.path} cannot be used: {kept.fault}" if kept.fault else ""
    return Verdict(Path(key), state, digest, root, files, fault)


def read_verdict(file: Path, environ: Mapping[str, str]) -> Verdict:
    """The verdict on a file as it is now. Raises GatewayError if it cannot be read."""
    verdict = _read_verdict(file, environ)
    for _ in range(MOST_READS):
        if verdict.state != "changed":
            break
        # `add` may have written the file and the list while they were read
        before, verdict = verdict, _read_verdict(file, environ)
        if verdict.digest == before.digest:
            break
    return verdict


def _read_verdict(file: Path, environ: Mapping[str, str]) -> Verdict:
    report = Report(str(file))
    try:
        return verdict_on(file, parse_text(read_text(file, report), file, report), environ)
    except InvalidValue:
        errors = (problem for problem in report.in_file_order() if problem.severity == "error")
        raise GatewayError(next(errors)) from None
