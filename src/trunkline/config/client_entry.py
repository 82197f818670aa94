"""One server as MCP clients describe it: the keys that mean something to us, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.config.reader import Reader
from trunkline.config.section import Section, key
from trunkline.config.shapes import Boolean, Choice, FilePath, ListOf, MapOf, Seconds, Text
from trunkline.config.sources import NOTHING, ONE_DAY_S, SourceSection
from trunkline.config.suggest import nearest
from trunkline.config.tree import Entry, Items, Scalar, Table
from trunkline.core.errors import CLIENT_ONLY_KEY, CONFLICTING_KEYS, UNKNOWN_KEY

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

Given = dict[str, Entry]
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


USUAL_NAMES: Final[Mapping[str, str]] = {
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


class Spelling(NamedTuple):
    """How the servers of one file are written."""

    names: Mapping[str, str] = USUAL_NAMES
    """Its keys, each with its usual name."""
    client_only: frozenset[str] = CLIENT_ONLY
    """Keys that only mean something to the client. Others are taken for that too, unless they look like a slip."""
    notes: frozenset[str] = frozenset()
    """Keys that are not worth a word."""
    instead: Mapping[str, str] = NOTHING
    """Keys of other clients, each with what this one calls it."""
    adapt: Callable[[Given], Given] = dict
    """Makes of the keys what no renaming can."""
    start_folder: Path | None = None
    """Where its programs start if nothing else is said."""
    ours: bool = False
    """Whether this is a file of our own, where a key of ours may have got into the wrong place."""


OURS: Final = Spelling(ours=True)


def usual_keys(table: Table, spelling: Spelling, reader: Reader) -> Given:
    """The entry's keys by their usual names. Of the others, a likely slip is an error and the rest a warning."""
    given: Given = {}
    for entry in table.entries:
        name = _usual_name(entry, spelling)
        if entry.key.text in spelling.notes:
            continue
        if name is None:
            _report_unknown(entry.key, spelling, reader)
        elif name in given:
            message = f"`{entry.key.text}` and `{given[name].key.text}` say the same"
            reader.error(CONFLICTING_KEYS, entry.key, message, "keep one of them")
        else:
            given[name] = entry
    return given


def under(name: str, origin: Entry, value: Scalar | Items | Table) -> Entry:
    """The value under another key, which keeps the place of the one in the file."""
    return Entry(Scalar(origin.key.span, "text", name), value)


def _usual_name(entry: Entry, spelling: Spelling) -> str | None:
    if entry.key.text == "tools" and isinstance(entry.value, Items):
        return "includeTools"
    return spelling.names.get(entry.key.text)


def _report_unknown(name: Scalar, spelling: Spelling, reader: Reader) -> None:
    message = f"Unknown key `{name.text}`"
    if spelling.ours and (name.text in _OF_PROGRAMS or name.text in SourceSection.declared):
        reader.error(UNKNOWN_KEY, name, message, "keys of our own stand under `sources`, not under `mcpServers`")
        return
    guess = spelling.instead.get(name.text)
    if guess is None and name.text not in spelling.client_only:
        guess = nearest(name.text, spelling.names, cutoff=0.8)
    if guess is not None:
        reader.error(UNKNOWN_KEY, name, message, f"did you mean `{guess}`?")
        return
    reader.warn(CLIENT_ONLY_KEY, name, f"`{name.text}` only means something to a client and is ignored")
