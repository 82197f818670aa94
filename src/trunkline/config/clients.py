"""`mcpServers` as MCP clients write it: each entry is translated into a source of ours and read like any other.

Clients agree on a few keys and differ in the rest, so what only they understand is a warning here and no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from trunkline.config.listen import Listen
from trunkline.config.own_entry import is_own_entry
from trunkline.config.reader import Reader
from trunkline.config.report import Invalid
from trunkline.config.section import Section, key, section_schema
from trunkline.config.shapes import Boolean, Choice, FilePath, JsonSchema, ListOf, MapOf, Seconds, Text
from trunkline.config.source_list import SourceList
from trunkline.config.sources import NOTHING, ONE_DAY_S, SourceSection
from trunkline.config.suggest import nearest
from trunkline.config.tree import Entry, Items, Node, Scalar, Table
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

_TRANSPORT_OF: Final = {
    "stdio": "stdio",
    "http": "auto",
    "sse": "sse",
    "streamable-http": "streamable",
    "streamableHttp": "streamable",
    "streamable_http": "streamable",
}
_SYNONYMS: Final = {
    "httpUrl": "url",
    "serverUrl": "url",
    "transport": "type",
    "transportType": "type",
    "excludeTools": "disabledTools",
}
_STDIO_ONLY: Final = ("command", "args", "env", "cwd")
_HTTP_ONLY: Final = ("url", "headers")
_CLIENT_ONLY: Final = frozenset(
    {"autoApprove", "alwaysAllow", "alwaysLoad", "trust", "description", "initTimeout", "startupTimeout", "toolTimeout"}
)
_LEAST_LIKELY_TIMEOUT_S: Final = 1.0


class ClientEntry(Section):
    """One server as clients describe it: the known keys, for editors and for telling a typo from a client's own key."""

    command: str | None = key(Text(may_be_empty=False), default=None, doc="The program to start")
    args: tuple[str, ...] = key(ListOf(Text(written=True)), default=(), doc="The program's arguments")
    env: Mapping[str, str] = key(MapOf(Text(written=True)), default=NOTHING, doc="Environment variables of the program")
    cwd: Path | None = key(FilePath(), default=None, doc="The folder the program starts in")
    url: str | None = key(Text(may_be_empty=False), default=None, doc="Where the server answers")
    headers: Mapping[str, str] = key(MapOf(Text(written=True)), default=NOTHING, doc="Headers sent with every request")
    type: str | None = key(Choice(*_TRANSPORT_OF), default=None, doc="How to speak to the server")
    disabled: bool = key(Boolean(), default=False, doc="`true` leaves the server out")
    enabled: bool = key(Boolean(), default=True, doc="`false` leaves the server out")
    timeout: float = key(
        Seconds(maximum=ONE_DAY_S, unit="milliseconds"), default=60.0, doc="Milliseconds a call may take"
    )
    includeTools: tuple[str, ...] = key(ListOf(Text()), default=("*",), doc="The only tools to show")
    disabledTools: tuple[str, ...] = key(ListOf(Text()), default=(), doc="Tools to hide")


def read_clients(node: Node, reader: Reader, sources: SourceList, listen: Listen) -> None:
    """Read the `mcpServers` of a file into the list. `listen` is our own address, which no entry may point at."""
    if isinstance(node, Scalar) and node.kind == "null":
        return
    if not isinstance(node, Table):
        reader.wrong_type(node, "a group of keys", "give each server a name, and its keys below")
        return
    for entry in node.entries:
        try:
            _read_server(entry, reader, sources, listen)
        except Invalid:
            continue


def clients_schema() -> JsonSchema:
    entry = section_schema(ClientEntry) | {"additionalProperties": True}
    return {"type": ["object", "null"], "additionalProperties": entry}


def _read_server(entry: Entry, reader: Reader, sources: SourceList, listen: Listen) -> None:
    if not isinstance(entry.value, Table):
        raise reader.wrong_type(entry.value, "a group of keys")
    if is_own_entry(entry.value, reader, listen):
        sources.release(entry.key)
        reader.warn(OWN_ENTRY_SKIPPED, entry.key, f"`{entry.key.text}` is Trunkline itself and is skipped")
        return
    given = _known_keys(entry.value, reader)
    kind = _kind_of(entry.key, given, reader)
    table = Table(entry.value.span, _translate(given, kind, reader))
    name = _name_for(entry.key, reader, sources)
    sources.claim(name, entry.key)
    enabled = reader.peek(table.get("enabled")) != "false"
    sources.add(name, kind, entry.key, table, enabled=enabled)


def _known_keys(table: Table, reader: Reader) -> dict[str, Entry]:
    """The entry's keys by their usual names. Of the others, a likely typo is an error and the rest a warning."""
    known = ClientEntry.declared
    given: dict[str, Entry] = {}
    for entry in table.entries:
        name = _usual_name(entry)
        if name not in known:
            _report_unknown(entry.key, known, reader)
        elif name in given:
            message = f"`{entry.key.text}` and `{given[name].key.text}` say the same"
            reader.error(CONFLICTING_KEYS, entry.key, message, "keep one of them")
        else:
            given[name] = entry
    return given


def _usual_name(entry: Entry) -> str:
    if entry.key.text == "tools" and isinstance(entry.value, Items):
        return "includeTools"
    return _SYNONYMS.get(entry.key.text, entry.key.text)


def _report_unknown(name: Scalar, known: Iterable[str], reader: Reader) -> None:
    message = f"Unknown key `{name.text}`"
    if name.text == "kind" or name.text in SourceSection.declared:
        reader.error(UNKNOWN_KEY, name, message, "keys of our own stand under `sources`, not under `mcpServers`")
        return
    guess = None if name.text in _CLIENT_ONLY else nearest(name.text, known, cutoff=0.8)
    if guess is not None:
        reader.error(UNKNOWN_KEY, name, message, f"did you mean `{guess}`?")
        return
    reader.warn(CLIENT_ONLY_KEY, name, f"`{name.text}` only means something to a client and is ignored")


def _kind_of(at: Scalar, given: Mapping[str, Entry], reader: Reader) -> str:
    command, url = given.get("command"), given.get("url")
    if command is None and url is None:
        raise reader.error(MISSING_KEY, at, "Missing key `command` or `url`")
    if command is not None and url is not None:
        message = f"`{command.key.text}` and `{url.key.text}` exclude each other"
        raise reader.error(CONFLICTING_KEYS, url.key, message, "make two servers of them, or remove one")
    return "mcp_http" if command is None else "mcp_stdio"


def _translate(given: Mapping[str, Entry], kind: str, reader: Reader) -> list[Entry]:
    """The entries of our own section that say the same."""
    translated: list[Entry] = []
    selection: list[Entry] = []
    foreign = _HTTP_ONLY if kind == "mcp_stdio" else _STDIO_ONLY
    for name, entry in given.items():
        try:
            if name in foreign:
                other = "url" if kind == "mcp_http" else "command"
                message = f"`{entry.key.text}` means nothing for a server with a `{other}` and is ignored"
                reader.warn(CLIENT_ONLY_KEY, entry.key, message)
            elif name in ("includeTools", "disabledTools"):
                selection.append(_under("allow" if name == "includeTools" else "deny", entry, entry.value))
            else:
                translated += _translate_key(name, entry, kind, reader)
        except Invalid:
            continue
    if selection:
        translated.append(_under("tools", selection[0], Table(selection[0].key.span, selection)))
    return translated


def _translate_key(name: str, entry: Entry, kind: str, reader: Reader) -> list[Entry]:
    if name in ("disabled", "enabled"):
        switched_on = Boolean().read(entry.value, reader) is (name == "enabled")
        return [] if switched_on else [_under("enabled", entry, Scalar(entry.value.span, "boolean", "false"))]
    if name == "timeout":
        return [_under("timeout", entry, _timeout(entry.value, reader))]
    if name == "type":
        return _transport(entry, kind, reader)
    return [_under(name, entry, entry.value)]


def _timeout(node: Node, reader: Reader) -> Scalar:
    seconds = Seconds(maximum=ONE_DAY_S, unit="milliseconds").read(node, reader)
    if seconds < _LEAST_LIKELY_TIMEOUT_S:
        message = f"`timeout` is in milliseconds here: this is {seconds:g} seconds"
        reader.warn(BAD_VALUE, node, message, f"write {seconds * 1_000_000:.0f} for {seconds * 1000:g} seconds")
    return Scalar(node.span, "number", repr(seconds))


def _transport(entry: Entry, kind: str, reader: Reader) -> list[Entry]:
    word = Choice(*_TRANSPORT_OF).read(entry.value, reader)
    transport = _TRANSPORT_OF[word]
    if (transport == "stdio") != (kind == "mcp_stdio"):
        other = "`command`" if kind == "mcp_stdio" else "`url`"
        raise reader.error(CONFLICTING_KEYS, entry.value, f"The type `{word}` does not fit a server with a {other}")
    if transport == "stdio":
        return []
    return [_under("transport", entry, Scalar(entry.value.span, "text", transport))]


def _under(name: str, origin: Entry, value: Node) -> Entry:
    """The value under another key, which keeps the place of the one in the file."""
    return Entry(Scalar(origin.key.span, "text", name), value)


def _name_for(at: Scalar, reader: Reader, sources: SourceList) -> str:
    """The entry's name where it can be a source's, else one made from it that no other source has."""
    if is_source_name(at.text) and at.text != RESERVED_SOURCE:
        return at.text
    name = sources.free_name(slug(at.text))
    reader.warn(NAME_CHANGED, at, f"`{at.text}` cannot be the name of a source; it is `{name}` here")
    return name
