"""`mcpServers` as MCP clients write it: each entry is translated into a source and read like any other.

Clients agree on a few keys and differ in the rest, so keys that only a client understands are warnings, not errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from trunkline.config.problems import InvalidValue, nearest
from trunkline.config.reader import ConfigReader, escape_references
from trunkline.config.section import Section, key
from trunkline.config.sources import NOTHING, ONE_DAY_S, SourceList, SourceSection, read_entries
from trunkline.config.tree import ListNode, Node, Scalar, Table, TableEntry
from trunkline.config.value_types import Boolean, Choice, FilePath, ListOf, MapOf, Seconds, Text, TimeUnit
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import (
    BAD_VALUE,
    CLIENT_ONLY_KEY,
    CONFLICTING_KEYS,
    MISSING_KEY,
    NAME_CHANGED,
    OWN_ENTRY_SKIPPED,
    UNKNOWN_KEY,
)
from trunkline.core.names import RESERVED_SOURCE, is_source_name, slug

TRANSPORT_OF: Final = {
    "stdio": "stdio",
    "http": "auto",
    "sse": "sse",
    "streamable-http": "streamable",
    "streamableHttp": "streamable",
    "streamable_http": "streamable",
}

_OF_PROGRAMS: Final = ("kind", "inherit_env", "limits")
"""Keys of sources that not every kind has."""

ServerKeys = dict[str, TableEntry]
"""The entries of one server by their canonical names: keys of ClientEntry or, where it has none, of sections."""


class ClientEntry(Section):
    """The keys of a server under `mcpServers`, as most clients name them."""

    command: str | None = key(Text(may_be_empty=False), default=None, doc="The program to start")
    args: tuple[str, ...] = key(ListOf(Text(any_scalar=True)), default=(), doc="The program's arguments")
    env: Mapping[str, str] = key(
        MapOf(Text(any_scalar=True)), default=NOTHING, doc="Environment variables of the program"
    )
    envFile: Path | None = key(FilePath(), default=None, doc="A file with more environment variables of the program")
    cwd: Path | None = key(FilePath(), default=None, doc="The folder the program starts in")
    url: str | None = key(Text(may_be_empty=False), default=None, doc="The server's URL")
    headers: Mapping[str, str] = key(
        MapOf(Text(any_scalar=True)), default=NOTHING, doc="Headers sent with every request"
    )
    type: str | None = key(Choice(*TRANSPORT_OF), default=None, doc="Transport")
    disabled: bool = key(Boolean(), default=False, doc="`true` leaves the server out")
    enabled: bool = key(Boolean(), default=True, doc="`false` leaves the server out")
    timeout: float = key(
        Seconds(maximum=ONE_DAY_S, unit="milliseconds"), default=60.0, doc="Milliseconds a call may take"
    )
    includeTools: tuple[str, ...] = key(ListOf(Text()), default=("*",), doc="The only tools to show")
    disabledTools: tuple[str, ...] = key(ListOf(Text()), default=(), doc="Tools to hide")


CANONICAL_NAMES: Final[Mapping[str, str]] = {
    **{name: name for name in ClientEntry.declared},
    "httpUrl": "url",
    "serverUrl": "url",
    "transport": "type",
    "transportType": "type",
    "excludeTools": "disabledTools",
}
CLIENT_ONLY: Final = frozenset(
    (
        *("autoApprove", "alwaysAllow", "alwaysLoad", "trust", "description"),
        *("auth", "oauth", "headersHelper", "authProviderType", "dev", "sandbox", "sandboxEnabled"),
        *("initTimeout", "startupTimeout", "toolTimeout"),
    )
)


class ClientFormat(NamedTuple):
    """How a client writes the servers in its file."""

    names: Mapping[str, str] = CANONICAL_NAMES
    """Its keys, each with its canonical name."""
    client_only: frozenset[str] = CLIENT_ONLY
    """Keys that only mean something to the client, as other unknown keys may unless they look like a typo."""
    notes: frozenset[str] = frozenset()
    """Keys that are ignored without a warning."""
    instead: Mapping[str, str] = NOTHING
    """Keys of other clients, each with this client's name for it."""
    adapt: Callable[[ServerKeys], ServerKeys] = dict
    """Translates what renaming keys cannot."""
    start_folder: Path | None = None
    """The folder its programs start in by default."""
    ours: bool = False
    """Whether this is a file of Trunkline, in which keys of sources may be misplaced."""


OWN_FORMAT: Final = ClientFormat(ours=True)


def canonical_keys(table: Table, client_format: ClientFormat, reader: ConfigReader) -> ServerKeys:
    """The entry's keys by their canonical names. Of the others, a likely typo is an error and the rest are warnings."""
    given: ServerKeys = {}
    for entry in table.entries:
        name = client_format.names.get(entry.key.text)
        if entry.key.text == "tools" and isinstance(entry.value, ListNode):
            name = "includeTools"
        if entry.key.text in client_format.notes:
            continue
        if name is None:
            _report_unknown(entry.key, client_format, reader)
        elif name in given:
            message = f"`{entry.key.text}` and `{given[name].key.text}` mean the same"
            reader.error(CONFLICTING_KEYS, entry.key, message, "keep one of them")
        else:
            given[name] = entry
    return given


def entry_as(name: str, origin: TableEntry, value: Scalar | ListNode | Table) -> TableEntry:
    """The value under another key, at the position of the original one."""
    return TableEntry(Scalar(origin.key.span, "text", name), value)


def _report_unknown(name: Scalar, client_format: ClientFormat, reader: ConfigReader) -> None:
    message = f"Unknown key `{name.text}`"
    if client_format.ours and (name.text in _OF_PROGRAMS or name.text in SourceSection.declared):
        reader.error(UNKNOWN_KEY, name, message, "Trunkline's own keys belong under `sources`, not under `mcpServers`")
        return
    guess = client_format.instead.get(name.text)
    if guess is None and name.text not in client_format.client_only:
        guess = nearest(name.text, client_format.names, cutoff=0.8)
    if guess is not None:
        reader.error(UNKNOWN_KEY, name, message, f"did you mean `{guess}`?")
        return
    reader.warn(CLIENT_ONLY_KEY, name, f"`{name.text}` is for the client and is ignored here")


_STDIO_ONLY: Final = ("command", "args", "env", "envFile", "cwd", "inherit_env")
_HTTP_ONLY: Final = ("url", "headers")
_LEAST_LIKELY_TIMEOUT_S: Final = 1.0


def read_mcp_servers(
    node: Node, sources: SourceList, listen: BindAddress, client_format: ClientFormat = OWN_FORMAT
) -> None:
    """Read the servers of a file into the list. Entries that lead back to the gateway, at `listen`, are skipped."""
    reader = sources.reader

    def read_server(entry: TableEntry, server: Table) -> None:
        if is_own_entry(server, reader, listen):
            sources.release(entry.key)
            reader.warn(OWN_ENTRY_SKIPPED, entry.key, f"`{entry.key.text}` is Trunkline itself and is skipped")
            return
        given = client_format.adapt(canonical_keys(server, client_format, reader))
        if not client_format.ours:
            given = _from_its_folder(given, reader)
        kind = _kind_of(entry.key, given, reader)
        table = Table(server.span, _translate(given, kind, reader))
        if kind == "mcp_stdio" and client_format.start_folder is not None and "cwd" not in given:
            folder = Scalar(entry.key.span, "text", escape_references(str(client_format.start_folder)))
            table.entries.append(entry_as("cwd", entry, folder))
        name = source_name_for(entry.key, sources)
        sources.claim(name, entry.key)
        sources.add(name, kind, entry.key, table)

    read_entries(node, reader, "server", read_server)


def _kind_of(at: Scalar, given: Mapping[str, TableEntry], reader: ConfigReader) -> str:
    command, url = given.get("command"), given.get("url")
    if command is None and url is None:
        raise reader.error(MISSING_KEY, at, "Missing key `command` or `url`")
    if command is not None and url is not None:
        message = f"`{command.key.text}` and `{url.key.text}` are mutually exclusive"
        raise reader.error(CONFLICTING_KEYS, url.key, message, "split them into two servers, or remove one")
    return "mcp_http" if command is None else "mcp_stdio"


def _from_its_folder(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    """A relative path to the program is made relative to its `cwd`, as clients read it."""
    command, folder = given.get("command"), given.get("cwd")
    if command is None or folder is None:
        return given
    if not isinstance(command.value, Scalar) or not isinstance(folder.value, Scalar):
        return given
    program = reader.peek(command.value)
    if "/" not in program or program.startswith(("/", "~/")):
        return given
    path = Scalar(command.value.span, command.value.kind, f"{folder.value.text}/{command.value.text}")
    return given | {"command": TableEntry(command.key, path)}


def _translate(given: ServerKeys, kind: str, reader: ConfigReader) -> list[TableEntry]:
    """The equivalent entries of a section."""
    foreign = _HTTP_ONLY if kind == "mcp_stdio" else _STDIO_ONLY
    for name in foreign:
        if name in given:
            other = "url" if kind == "mcp_http" else "command"
            message = f"`{given[name].key.text}` does not apply to a server with a `{other}` and is ignored"
            reader.warn(CLIENT_ONLY_KEY, given[name].key, message)
    given = {name: entry for name, entry in given.items() if name not in foreign}
    translated: list[TableEntry] = []
    selection: list[TableEntry] = []
    for name, entry in _with_variables_of_file(given, reader).items():
        try:
            if name in ("includeTools", "disabledTools"):
                selection.append(entry_as("allow" if name == "includeTools" else "deny", entry, entry.value))
            else:
                translated += _translate_key(name, entry, kind, reader)
        except InvalidValue:
            continue
    if selection:
        translated.append(entry_as("tools", selection[0], Table(selection[0].key.span, selection)))
    return translated


def _with_variables_of_file(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    if "envFile" not in given:
        return given
    from trunkline.config.dialects.references import with_env_file

    given = dict(given)
    env_file = given.pop("envFile")
    try:
        env = with_env_file(given.get("env"), env_file, reader)
    except InvalidValue:
        return given
    return given if env is None else given | {"env": env}


def _translate_key(name: str, entry: TableEntry, kind: str, reader: ConfigReader) -> list[TableEntry]:
    if name in ("disabled", "enabled"):
        switched_on = Boolean().read(entry.value, reader) is (name == "enabled")
        return [] if switched_on else [entry_as("enabled", entry, Scalar(entry.value.span, "boolean", "false"))]
    if name == "type":
        return _transport(entry, kind, reader)
    if name in _TIMES:
        ours, unit, longest_s = _TIMES[name]
        seconds = Seconds(maximum=longest_s, unit=unit).read(entry.value, reader)
        if seconds < _LEAST_LIKELY_TIMEOUT_S and unit == "milliseconds":
            message = f"`{entry.key.text}` is in milliseconds here: this is {seconds:g} seconds"
            hint = f"write {seconds * 1_000_000:.0f} for {seconds * 1000:g} seconds"
            reader.warn(BAD_VALUE, entry.value, message, hint)
        return [entry_as(ours, entry, Scalar(entry.value.span, "number", repr(seconds)))]
    return [entry_as(name, entry, entry.value)]


_TIMES: Final[Mapping[str, tuple[str, TimeUnit, float]]] = {
    "timeout": ("timeout", "milliseconds", ONE_DAY_S),
    "timeout_s": ("timeout", "seconds", ONE_DAY_S),
    "start_timeout_ms": ("start_timeout", "milliseconds", 3600.0),
    "start_timeout_s": ("start_timeout", "seconds", 3600.0),
}


def _transport(entry: TableEntry, kind: str, reader: ConfigReader) -> list[TableEntry]:
    word = Choice(*TRANSPORT_OF).read(entry.value, reader)
    transport = TRANSPORT_OF[word]
    if (transport == "stdio") != (kind == "mcp_stdio"):
        other = "`command`" if kind == "mcp_stdio" else "`url`"
        raise reader.error(CONFLICTING_KEYS, entry.value, f"The type `{word}` does not fit a server with a {other}")
    if transport == "stdio":
        return []
    return [entry_as("transport", entry, Scalar(entry.value.span, "text", transport))]


def source_name_for(at: Scalar, sources: SourceList) -> str:
    """The entry's name if it can be a source's, else one made from it that no other source has."""
    if is_source_name(at.text) and at.text != RESERVED_SOURCE:
        return at.text
    name = sources.free_name(slug(at.text))
    message = f"`{at.text}` cannot be the name of a source; it is called `{name}` here"
    sources.reader.warn(NAME_CHANGED, at, message)
    return name


# -- entries that are Trunkline itself -------------------------------------------------------------------------------

_OWN: Final = "trunkline"
# programs that let a client which only starts commands reach a URL
_BRIDGES: Final = frozenset({"mcp-remote", "mcp-proxy", "supergateway"})
_ORIGIN: Final = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^/:?#]+))(?::(?P<port>[0-9]{1,5}))?", re.I
)
_PACKAGE: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_own_entry(table: Table, reader: ConfigReader, listen: BindAddress) -> bool:
    """Whether a server is Trunkline, by its command or the address it listens on: it would call itself forever."""
    command, args = table.get("command"), table.get("args")
    nodes = command.items if isinstance(command, ListNode) else [command]  # some write both in one list
    if isinstance(args, ListNode) and not isinstance(command, ListNode):
        nodes = [*nodes, *args.items]
    words = [reader.peek(node) for node in nodes] or [""]
    urls = [reader.peek(table.get(key)) for key in ("url", "httpUrl", "serverUrl")]
    if any(PurePath(word).name.partition("@")[0] in _BRIDGES for word in words):
        urls += words
    return _starts_trunkline(words[0], words[1:]) or any(_points_at_gateway(url, listen) for url in urls)


def _starts_trunkline(command: str, args: list[str]) -> bool:
    program = PurePath(command).name.removesuffix(".exe")
    if program == _OWN:
        return True
    if program.startswith("python"):
        return any(pair == ("-m", _OWN) for pair in pairwise(args))
    if program in ("uvx", "uv", "pipx"):
        # what stands after `--with` is only made available to the program that is run
        return any(_package(word) == _OWN and before != "--with" for before, word in pairwise(["", *args]))
    if program in ("docker", "podman", "nerdctl"):
        return any(_package(word.rpartition("/")[2]) == _OWN for word in args if not word.startswith("-"))
    if program == "env":
        words = [word for word in args if "=" not in word and not word.startswith("-")]
        return bool(words) and _starts_trunkline(words[0], words[1:])
    if program not in ("sh", "bash", "zsh", "dash", "fish", "cmd"):
        return False
    scripts = [word.removeprefix("exec ").split() for word in args]
    return any(PurePath(words[0]).name.removesuffix(".exe") == _OWN for words in scripts if words)


def _package(word: str) -> str:
    """The name in `name@latest`, `name==1.0`, `name[extra]` or `name:tag`."""
    match = _PACKAGE.match(word)
    return match.group() if match is not None else ""


def _points_at_gateway(url: str, listen: BindAddress) -> bool:
    origin = _ORIGIN.match(url)
    if origin is None:
        return False
    port = int(origin["port"] or (443 if origin["scheme"].lower() == "https" else 80))
    return listen.reaches(origin["ipv6"] or origin["host"], port)
