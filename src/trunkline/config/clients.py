"""`mcpServers` as MCP clients write it: each entry is translated into a source of ours and read like any other.

Clients agree on a few keys and differ in the rest, so what only they understand is a warning here and no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trunkline.config.client_entry import OURS, TRANSPORT_OF, ClientEntry, Given, Spelling, under, usual_keys
from trunkline.config.own_entry import is_own_entry
from trunkline.config.reader import Reader
from trunkline.config.report import Invalid
from trunkline.config.section import section_schema
from trunkline.config.shapes import Boolean, Choice, JsonSchema, Seconds, Unit
from trunkline.config.source_list import SourceList
from trunkline.config.sources import ONE_DAY_S
from trunkline.config.tree import Entry, Node, Scalar, Table
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import (
    BAD_VALUE,
    CLIENT_ONLY_KEY,
    CONFLICTING_KEYS,
    MISSING_KEY,
    NAME_CHANGED,
    OWN_ENTRY_SKIPPED,
)
from trunkline.core.names import RESERVED_SOURCE, is_source_name, slug

_STDIO_ONLY: Final = ("command", "args", "env", "envFile", "cwd", "inherit_env")
_HTTP_ONLY: Final = ("url", "headers")
_LEAST_LIKELY_TIMEOUT_S: Final = 1.0
_ONE_HOUR_S: Final = 3600.0


def read_clients(
    node: Node, reader: Reader, sources: SourceList, listen: BindAddress, spelling: Spelling = OURS
) -> None:
    """Read the servers of a file into the list. `listen` is our own address, which no entry may point at."""
    if isinstance(node, Scalar) and node.kind == "null":
        return
    if not isinstance(node, Table):
        reader.wrong_type(node, "a group of keys", "give each server a name, and its keys below")
        return
    for entry in node.entries:
        with reader.one_source():
            _read_server(entry, reader, sources, listen, spelling)


def clients_schema() -> JsonSchema:
    entry = section_schema(ClientEntry) | {"additionalProperties": True}
    return {"type": ["object", "null"], "additionalProperties": entry}


def _read_server(entry: Entry, reader: Reader, sources: SourceList, listen: BindAddress, spelling: Spelling) -> None:
    if not isinstance(entry.value, Table):
        raise reader.wrong_type(entry.value, "a group of keys")
    if is_own_entry(entry.value, reader, listen):
        sources.release(entry.key)
        reader.warn(OWN_ENTRY_SKIPPED, entry.key, f"`{entry.key.text}` is Trunkline itself and is skipped")
        return
    given = usual_keys(entry.value, spelling, reader)
    enabled = not _is_switched_off(given, reader)
    given = spelling.adapt(given)
    if not spelling.ours:
        given = _from_its_folder(given, reader)
    kind = _kind_of(entry.key, given, reader)
    table = Table(entry.value.span, _translate(given, kind, reader))
    if kind == "mcp_stdio" and spelling.start_folder is not None and "cwd" not in given:
        folder = Scalar(entry.key.span, "text", str(spelling.start_folder).replace("${", "$${"))
        table.entries.append(under("cwd", entry, folder))
    name = name_for(entry.key, reader, sources)
    sources.claim(name, entry.key)
    sources.add(name, kind, entry.key, table, enabled=enabled)


def _is_switched_off(given: Given, reader: Reader) -> bool:
    """Whether nothing needs to be ready for this server, as far as that can be seen without a complaint."""
    words = {name: reader.peek(given[name].value) for name in ("disabled", "enabled") if name in given}
    return words.get("disabled") == "true" or words.get("enabled") == "false"


def _kind_of(at: Scalar, given: Mapping[str, Entry], reader: Reader) -> str:
    command, url = given.get("command"), given.get("url")
    if command is None and url is None:
        raise reader.error(MISSING_KEY, at, "Missing key `command` or `url`")
    if command is not None and url is not None:
        message = f"`{command.key.text}` and `{url.key.text}` exclude each other"
        raise reader.error(CONFLICTING_KEYS, url.key, message, "make two servers of them, or remove one")
    return "mcp_http" if command is None else "mcp_stdio"


def _from_its_folder(given: Given, reader: Reader) -> Given:
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
    return given | {"command": Entry(command.key, path)}


def _translate(given: Given, kind: str, reader: Reader) -> list[Entry]:
    """The entries of our own section that say the same."""
    foreign = _HTTP_ONLY if kind == "mcp_stdio" else _STDIO_ONLY
    for name in foreign:
        if name in given:
            other = "url" if kind == "mcp_http" else "command"
            message = f"`{given[name].key.text}` means nothing for a server with a `{other}` and is ignored"
            reader.warn(CLIENT_ONLY_KEY, given[name].key, message)
    given = {name: entry for name, entry in given.items() if name not in foreign}
    translated: list[Entry] = []
    selection: list[Entry] = []
    for name, entry in _with_variables_of_file(given, reader).items():
        try:
            if name in ("includeTools", "disabledTools"):
                selection.append(under("allow" if name == "includeTools" else "deny", entry, entry.value))
            else:
                translated += _translate_key(name, entry, kind, reader)
        except Invalid:
            continue
    if selection:
        translated.append(under("tools", selection[0], Table(selection[0].key.span, selection)))
    return translated


def _with_variables_of_file(given: Given, reader: Reader) -> Given:
    if "envFile" not in given:
        return given
    from trunkline.config.env_file import with_env_file

    given = dict(given)
    env_file = given.pop("envFile")
    try:
        env = with_env_file(given.get("env"), env_file, reader)
    except Invalid:
        return given
    return given if env is None else given | {"env": env}


def _translate_key(name: str, entry: Entry, kind: str, reader: Reader) -> list[Entry]:
    if name in ("disabled", "enabled"):
        switched_on = Boolean().read(entry.value, reader) is (name == "enabled")
        return [] if switched_on else [under("enabled", entry, Scalar(entry.value.span, "boolean", "false"))]
    if name == "type":
        return _transport(entry, kind, reader)
    if name in _TIMES:
        ours, unit, longest_s = _TIMES[name]
        return [under(ours, entry, _time(entry, unit, longest_s, reader))]
    return [under(name, entry, entry.value)]


_TIMES: Final[Mapping[str, tuple[str, Unit, float]]] = {
    "timeout": ("timeout", "milliseconds", ONE_DAY_S),
    "timeout_s": ("timeout", "seconds", ONE_DAY_S),
    "start_timeout_ms": ("start_timeout", "milliseconds", _ONE_HOUR_S),
    "start_timeout_s": ("start_timeout", "seconds", _ONE_HOUR_S),
}


def _time(entry: Entry, unit: Unit, longest_s: float, reader: Reader) -> Scalar:
    seconds = Seconds(maximum=longest_s, unit=unit).read(entry.value, reader)
    if seconds < _LEAST_LIKELY_TIMEOUT_S and unit == "milliseconds":
        message = f"`{entry.key.text}` is in milliseconds here: this is {seconds:g} seconds"
        reader.warn(BAD_VALUE, entry.value, message, f"write {seconds * 1_000_000:.0f} for {seconds * 1000:g} seconds")
    return Scalar(entry.value.span, "number", repr(seconds))


def _transport(entry: Entry, kind: str, reader: Reader) -> list[Entry]:
    word = Choice(*TRANSPORT_OF).read(entry.value, reader)
    transport = TRANSPORT_OF[word]
    if (transport == "stdio") != (kind == "mcp_stdio"):
        other = "`command`" if kind == "mcp_stdio" else "`url`"
        raise reader.error(CONFLICTING_KEYS, entry.value, f"The type `{word}` does not fit a server with a {other}")
    if transport == "stdio":
        return []
    return [under("transport", entry, Scalar(entry.value.span, "text", transport))]


def name_for(at: Scalar, reader: Reader, sources: SourceList) -> str:
    """The entry's name where it can be a source's, else one made from it that no other source has."""
    if is_source_name(at.text) and at.text != RESERVED_SOURCE:
        return at.text
    name = sources.free_name(slug(at.text))
    reader.warn(NAME_CHANGED, at, f"`{at.text}` cannot be the name of a source; it is `{name}` here")
    return name
