"""What a file would start, reach and weaken, as its user is shown it before trusting it: all that is trusted, in lines.

Secrets are hidden, but nothing else with them: a file could be written so that what matters looks like a part of one.
The text comes from the file, so whoever prints it makes it harmless to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from trunkline.config.secret_names import is_secret_name
from trunkline.config.secret_values import CREDENTIAL, is_path_for_certain, secrets_in_urls
from trunkline.config.secrets import ONLY_REFERENCES
from trunkline.config.tree import Items, Node, Scalar, Table
from trunkline.config.trust.fingerprint import Way, covered
from trunkline.config.trust.own_programs import ABSENT, LEADS_TO, OwnFile
from trunkline.core.bind_address import is_loopback

Verb = Literal["start", "reach", "weaken", "set"]
_HIDDEN: Final = "********"
_PLAIN: Final = re.compile(r"[\w.~+/=:@ -]*", re.ASCII)
"""What a secret is made of. A shell obeys none of it."""
_ONE_WORD: Final = re.compile(r"(?:(?:Bearer|Basic|Token|Bot|ApiKey) +)?[^ ]*", re.IGNORECASE)
"""More would be a command."""
_PATH: Final = re.compile(r"(?:\.{1,2}|~\w*)/")
_ADDRESS: Final = re.compile(r"\A([^/?#]*//)([^/?#]*@)?([^/?#]*)(.*)\Z", re.DOTALL)
"""Scheme, user, host and path of a URL, the slashes and the `@` included."""
_PROGRAMS: Final = ("command", "path")
_VERBS: Final[dict[str, Verb]] = {
    **dict.fromkeys(("env", "envFile", "cwd", "config"), "start"),
    **dict.fromkeys(("headers", "tokens"), "reach"),
}
"""What decides, besides its arguments, what a program does, and what is told to whom is reached."""
_URLS: Final = (("url",), ("httpUrl",), ("serverUrl",), ("endpoint",))
_SOURCES: Final = ("sources", "mcpServers", "plugins")


@dataclass(frozen=True, slots=True)
class ShownLine:
    verb: Verb
    what: str
    text: str


def shown_lines(root: Node, files: Sequence[OwnFile]) -> tuple[ShownLine, ...]:
    """What matters most comes first. Nothing that is trusted is left out."""
    lines = [*_programs(root), *(_line(way, node) for way, node in covered(root) if not _is_told(way))]
    lines += [_file_line(file) for file in files if file.state not in ABSENT]
    order: tuple[Verb, ...] = ("start", "reach", "weaken", "set")
    return tuple(sorted(lines, key=lambda line: order.index(line.verb)))


def _file_line(file: OwnFile) -> ShownLine:
    if file.state.startswith(LEADS_TO):
        return ShownLine("weaken", "", f"{file.path} {file.state} (a link out of the folder of the file)")
    return ShownLine("start", "", f"from the file {file.path}")


def _is_told(way: Way) -> bool:
    """Whether it is part of the line of its program."""
    return len(way) == 3 and way[0] in _SOURCES and way[2] in (*_PROGRAMS, "args")


def _programs(root: Node) -> Iterator[ShownLine]:
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
                yield ShownLine("start", name, " ".join(words))


def _line(way: Way, node: Node) -> ShownLine:
    in_source = len(way) > 2 and way[0] in _SOURCES
    what, rest = ("".join(way[1:2]), way[2:]) if in_source else ("", way)
    if in_source and rest[:1] in _URLS and isinstance(node, Scalar):
        return ShownLine("reach", what, _url(node.text))
    why = _weakened(rest, node)
    verb: Verb = _VERBS.get(rest[0], "set") if in_source and rest else "set"
    text = f"{'.'.join(rest)}: {_words(node, secret=any(map(is_secret_name, rest)))}"
    return ShownLine("weaken" if why else verb, what, f"{text} ({why})" if why else text)


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


_WEAKENING: Final[tuple[tuple[Way, Callable[[Node], bool], str], ...]] = (
    (("sandbox",), _is_off, "commands run without a sandbox"),
    (("sandbox", "mode"), _is_off, "commands run without a sandbox"),
    (("sandbox", "network"), lambda node: _text(node) != "off", "commands have a network"),
    (("sandbox", "folders"), _always, "commands see more folders"),
    (("sandbox", "env"), _always, "commands get variables of its choice"),
    (("root",), _leads_out, "agents work in another folder than that of the file"),
    (("protect",), _is_off, "the files that start programs can be written"),
    (("tools", "allow"), _allows_commands, "agents can run commands"),
    (("guard", "path_traversal"), _is_off, "path traversal is not refused"),
    (("listen",), lambda node: "/" not in _text(node) and _is_open(node), "others can reach it"),
    (("inherit_env",), _always, "it gets variables of your environment"),
    (("gateway", "listen"), _is_open, "others can reach the gateway"),
    (("gateway", "allowed_hosts"), _always, "more names are accepted"),
    (("gateway", "require_provisioning"), _is_off, "tools are executed without having been discovered"),
    (("gateway", "state_dir"), _always, "what is kept between runs lies there"),
    (("gateway", "socket"), _always, "others can reach the gateway there"),
    (("gateway", "telemetry"), _always, "what is called is told there"),
)


def _weakened(key: Way, node: Node) -> str:
    return next((why for way, weakens, why in _WEAKENING if key[: len(way)] == way and weakens(node)), "")
