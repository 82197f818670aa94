"""`mcpServers` as MCP clients write it: each entry is translated into a source of ours and read like any other.

Clients agree on a few keys and differ in the rest, so what only they understand is a warning here and no error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from trunkline.config.problems import Invalid, nearest
from trunkline.config.reader import ConfigReader
from trunkline.config.section import Section, key, section_schema
from trunkline.config.shapes import Boolean, Choice, FilePath, JsonSchema, ListOf, MapOf, Seconds, Text, Unit
from trunkline.config.sources import NOTHING, ONE_DAY_S, SourceList, SourceSection
from trunkline.config.tree import Items, Node, Scalar, Table, TableEntry
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
"""Keys of ours that not every source has."""

ServerKeys = dict[str, TableEntry]
"""The keys of one server by their usual names: those of ClientEntry, and for what it lacks those of our sections."""


class ClientEntry(Section):
    """The usual keys and names, as most clients write them under `mcpServers`."""

    command: str | None = key(Text(may_be_empty=False), default=None, doc="The program to start")
    args: tuple[str, ...] = key(ListOf(Text(written=True)), default=(), doc="The program's arguments")
    env: Mapping[str, str] = key(MapOf(Text(written=True)), default=NOTHING, doc="Environment variables of the program")
    envFile: Path | None = key(FilePath(), default=None, doc="A file with more environment variables of the program")
    cwd: Path | None = key(FilePath(), default=None, doc="The folder the program starts in")
    url: str | None = key(Text(may_be_empty=False), default=None, doc="Where the server answers")
    headers: Mapping[str, str] = key(MapOf(Text(written=True)), default=NOTHING, doc="Headers sent with every request")
    type: str | None = key(Choice(*TRANSPORT_OF), default=None, doc="How to speak to the server")
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
    """How the servers of one file are written."""

    names: Mapping[str, str] = CANONICAL_NAMES
    """Its keys, each with its usual name."""
    client_only: frozenset[str] = CLIENT_ONLY
    """Keys that only mean something to the client. Others are taken for that too, unless they look like a slip."""
    notes: frozenset[str] = frozenset()
    """Keys that are not worth a word."""
    instead: Mapping[str, str] = NOTHING
    """Keys of other clients, each with what this one calls it."""
    adapt: Callable[[ServerKeys], ServerKeys] = dict
    """Makes of the keys what no renaming can."""
    start_folder: Path | None = None
    """Where its programs start if nothing else is said."""
    ours: bool = False
    """Whether this is a file of our own, where a key of ours may have got into the wrong place."""


OWN_FORMAT: Final = ClientFormat(ours=True)


def canonical_keys(table: Table, client_format: ClientFormat, reader: ConfigReader) -> ServerKeys:
    """The entry's keys by their usual names. Of the others, a likely slip is an error and the rest a warning."""
    given: ServerKeys = {}
    for entry in table.entries:
        name = _usual_name(entry, client_format)
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


def entry_as(name: str, origin: TableEntry, value: Scalar | Items | Table) -> TableEntry:
    """The value under another key, which keeps the place of the one in the file."""
    return TableEntry(Scalar(origin.key.span, "text", name), value)


def _usual_name(entry: TableEntry, client_format: ClientFormat) -> str | None:
    if entry.key.text == "tools" and isinstance(entry.value, Items):
        return "includeTools"
    return client_format.names.get(entry.key.text)


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
    reader.warn(CLIENT_ONLY_KEY, name, f"`{name.text}` only means something to a client and is ignored")


_STDIO_ONLY: Final = ("command", "args", "env", "envFile", "cwd", "inherit_env")
_HTTP_ONLY: Final = ("url", "headers")
_LEAST_LIKELY_TIMEOUT_S: Final = 1.0
_ONE_HOUR_S: Final = 3600.0


def read_mcp_servers(
    node: Node, reader: ConfigReader, sources: SourceList, listen: BindAddress, client_format: ClientFormat = OWN_FORMAT
) -> None:
    """Read the servers of a file into the list. `listen` is our own address, which no entry may point at."""
    if isinstance(node, Scalar) and node.kind == "null":
        return
    if not isinstance(node, Table):
        reader.wrong_type(node, "a group of keys", "give each server a name, with its keys below it")
        return
    for entry in node.entries:
        with reader.reading_source():
            _read_server(entry, reader, sources, listen, client_format)


def mcp_servers_schema() -> JsonSchema:
    entry = section_schema(ClientEntry) | {"additionalProperties": True}
    return {"type": ["object", "null"], "additionalProperties": entry}


def _read_server(
    entry: TableEntry, reader: ConfigReader, sources: SourceList, listen: BindAddress, client_format: ClientFormat
) -> None:
    if not isinstance(entry.value, Table):
        raise reader.wrong_type(entry.value, "a group of keys")
    if is_own_entry(entry.value, reader, listen):
        sources.release(entry.key)
        reader.warn(OWN_ENTRY_SKIPPED, entry.key, f"`{entry.key.text}` is Trunkline itself and is skipped")
        return
    given = canonical_keys(entry.value, client_format, reader)
    enabled = not _is_switched_off(given, reader)
    given = client_format.adapt(given)
    if not client_format.ours:
        given = _from_its_folder(given, reader)
    kind = _kind_of(entry.key, given, reader)
    table = Table(entry.value.span, _translate(given, kind, reader))
    if kind == "mcp_stdio" and client_format.start_folder is not None and "cwd" not in given:
        folder = Scalar(entry.key.span, "text", str(client_format.start_folder).replace("${", "$${"))
        table.entries.append(entry_as("cwd", entry, folder))
    name = source_name_for(entry.key, reader, sources)
    sources.claim(name, entry.key)
    sources.add(name, kind, entry.key, table, enabled=enabled)


def _is_switched_off(given: ServerKeys, reader: ConfigReader) -> bool:
    """Whether nothing needs to be ready for this server, as far as that can be seen without a complaint."""
    words = {name: reader.peek(given[name].value) for name in ("disabled", "enabled") if name in given}
    return words.get("disabled") == "true" or words.get("enabled") == "false"


def _kind_of(at: Scalar, given: Mapping[str, TableEntry], reader: ConfigReader) -> str:
    command, url = given.get("command"), given.get("url")
    if command is None and url is None:
        raise reader.error(MISSING_KEY, at, "Missing key `command` or `url`")
    if command is not None and url is not None:
        message = f"`{command.key.text}` and `{url.key.text}` are mutually exclusive"
        raise reader.error(CONFLICTING_KEYS, url.key, message, "split them into two servers, or remove one")
    return "mcp_http" if command is None else "mcp_stdio"


def _from_its_folder(given: ServerKeys, reader: ConfigReader) -> ServerKeys:
    """Clients start a program in its folder, and that is where a relative path to it is followed from."""
    command, folder = given.get("command"), given.get("cwd")
    if (
        command is None
        or folder is None
        or not (isinstance(command.value, Scalar) and isinstance(folder.value, Scalar))
    ):
        return given
    program = reader.peek(command.value)
    if "/" not in program or program.startswith(("/", "~/")):
        return given
    path = Scalar(command.value.span, command.value.kind, f"{folder.value.text}/{command.value.text}")
    return given | {"command": TableEntry(command.key, path)}


def _translate(given: ServerKeys, kind: str, reader: ConfigReader) -> list[TableEntry]:
    """The entries of our own section that say the same."""
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
        except Invalid:
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
    except Invalid:
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
        return [entry_as(ours, entry, _time(entry, unit, longest_s, reader))]
    return [entry_as(name, entry, entry.value)]


_TIMES: Final[Mapping[str, tuple[str, Unit, float]]] = {
    "timeout": ("timeout", "milliseconds", ONE_DAY_S),
    "timeout_s": ("timeout", "seconds", ONE_DAY_S),
    "start_timeout_ms": ("start_timeout", "milliseconds", _ONE_HOUR_S),
    "start_timeout_s": ("start_timeout", "seconds", _ONE_HOUR_S),
}


def _time(entry: TableEntry, unit: Unit, longest_s: float, reader: ConfigReader) -> Scalar:
    seconds = Seconds(maximum=longest_s, unit=unit).read(entry.value, reader)
    if seconds < _LEAST_LIKELY_TIMEOUT_S and unit == "milliseconds":
        message = f"`{entry.key.text}` is in milliseconds here: this is {seconds:g} seconds"
        reader.warn(BAD_VALUE, entry.value, message, f"write {seconds * 1_000_000:.0f} for {seconds * 1000:g} seconds")
    return Scalar(entry.value.span, "number", repr(seconds))


def _transport(entry: TableEntry, kind: str, reader: ConfigReader) -> list[TableEntry]:
    word = Choice(*TRANSPORT_OF).read(entry.value, reader)
    transport = TRANSPORT_OF[word]
    if (transport == "stdio") != (kind == "mcp_stdio"):
        other = "`command`" if kind == "mcp_stdio" else "`url`"
        raise reader.error(CONFLICTING_KEYS, entry.value, f"The type `{word}` does not fit a server with a {other}")
    if transport == "stdio":
        return []
    return [entry_as("transport", entry, Scalar(entry.value.span, "text", transport))]


def source_name_for(at: Scalar, reader: ConfigReader, sources: SourceList) -> str:
    """The entry's name where it can be a source's, else one made from it that no other source has."""
    if is_source_name(at.text) and at.text != RESERVED_SOURCE:
        return at.text
    name = sources.free_name(slug(at.text))
    reader.warn(NAME_CHANGED, at, f"`{at.text}` cannot be the name of a source; it is called `{name}` here")
    return name


# Finding Trunkline among the servers of a client's file: a gateway behind itself would call itself for ever.

_OWN: Final = "trunkline"
_RUNNERS: Final = frozenset({"uvx", "uv", "pipx"})
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "fish", "cmd"})
# programs that let a client which only starts commands reach a URL
_BRIDGES: Final = frozenset({"mcp-remote", "mcp-proxy", "supergateway"})
_ORIGIN: Final = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^/:?#]+))(?::(?P<port>[0-9]{1,5}))?", re.I
)
_PACKAGE: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_own_entry(table: Table, reader: ConfigReader, listen: BindAddress) -> bool:
    """Whether a server of a client starts this program, or points at the address it listens on."""
    command, args = _command_line(table, reader)
    if _starts_trunkline(command, args) or _bridges_to_gateway([command, *args], listen):
        return True
    return any(_points_at_gateway(reader.peek(table.get(key)), listen) for key in ("url", "httpUrl", "serverUrl"))


def _command_line(table: Table, reader: ConfigReader) -> tuple[str, list[str]]:
    command, args = table.get("command"), table.get("args")
    if isinstance(command, Items):  # some write both in one list
        words = [reader.peek(item) for item in command.items]
        return (words[0], words[1:]) if words else ("", [])
    return reader.peek(command), [reader.peek(item) for item in args.items] if isinstance(args, Items) else []


def _starts_trunkline(command: str, args: list[str]) -> bool:
    program = PurePath(command).name.removesuffix(".exe")
    if program == _OWN:
        return True
    if program.startswith("python"):
        return any(pair == ("-m", _OWN) for pair in pairwise(args))
    if program in _RUNNERS:
        # what stands after `--with` is only made available to the program that is run
        return any(_package(word) == _OWN and before != "--with" for before, word in pairwise(["", *args]))
    if program in _CONTAINERS:
        return any(_package(word.rpartition("/")[2]) == _OWN for word in args if not word.startswith("-"))
    if program == "env":
        words = [word for word in args if "=" not in word and not word.startswith("-")]
        return bool(words) and _starts_trunkline(words[0], words[1:])
    return program in _SHELLS and any(_script_starts_us(word) for word in args)


def _script_starts_us(script: str) -> bool:
    words = script.removeprefix("exec ").split()
    return bool(words) and PurePath(words[0]).name.removesuffix(".exe") == _OWN


def _package(word: str) -> str:
    """The name in `name@latest`, `name==1.0`, `name[extra]` or `name:tag`."""
    match = _PACKAGE.match(word)
    return match.group() if match is not None else ""


def _bridges_to_gateway(words: list[str], listen: BindAddress) -> bool:
    is_bridge = any(PurePath(word).name.partition("@")[0] in _BRIDGES for word in words)
    return is_bridge and any(_points_at_gateway(word, listen) for word in words)


def _points_at_gateway(url: str, listen: BindAddress) -> bool:
    origin = _ORIGIN.match(url)
    if origin is None:
        return False
    port = int(origin["port"] or (443 if origin["scheme"].lower() == "https" else 80))
    return listen.reaches(origin["ipv6"] or origin["host"], port)
