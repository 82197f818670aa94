"""What servers offered last time, on disk, so that a first `tools/list` need not wait for them to start.

Keyed by a hash of the source's configuration: a changed command line is another server, whose list is not that of the
one before. What a source of this name said last is found all the same, however it was configured then: with a new token
or another version it is still worth knowing what it describes otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, cast

import msgspec

from trunkline.core.errors import DEFINITION_CHANGED, HIDDEN_CHARACTERS
from trunkline.core.events import Events
from trunkline.core.hidden_text import reveal
from trunkline.core.tool import LISTS, Item, ListName, Snapshot, Tool
from trunkline.protocol.jsonrpc import BadMessage, members_of

_FORMAT: Final = 2
_MOST_FILES: Final = 1000
"""Every change of a command, an address or a token is one more; those that nobody used for longest go."""
_LONGEST_KEY: Final = 64

_StoredList = list[tuple[str, msgspec.Raw]]
"""Definitions by what requests name them by."""


class _Stored(msgspec.Struct):
    format: int
    tools: _StoredList
    prompts: _StoredList
    resources: _StoredList
    templates: _StoredList
    instructions: str
    server_info: msgspec.Raw
    capabilities: msgspec.Raw
    protocol_version: str


def fingerprint(source: str, section: object) -> str:
    """The same for the same configuration. Secrets go into the hash and no further."""
    return hashlib.sha256(repr((source, _plain(section))).encode()).hexdigest()[:32]


def _plain(value: object) -> object:
    """Sections and mappings as sorted pairs: `repr` of a section hides its secrets."""
    if is_dataclass(value):
        return [(item.name, _plain(getattr(value, item.name))) for item in fields(value)]
    if isinstance(value, Mapping):
        pairs = cast(Mapping[object, object], value).items()
        return sorted((repr(name), repr(_plain(inner))) for name, inner in pairs)
    return value


class DefinitionStore:
    """A folder of snapshots. Losing it costs waiting time, never correctness, so no failure here is an error."""

    def __init__(self, folder: Path, gateway: str = "") -> None:
        """`gateway` tells apart the sources of one name that different configuration files have."""
        self._folder = folder
        self._gateway = gateway

    def last(self, source: str) -> Snapshot | None:
        """What the source of this name offered when it was last heard of."""
        try:
            key = self._last_file(source).read_text("ascii")
        except (OSError, ValueError):
            return None
        return self.load(source, key) if key.isalnum() and len(key) <= _LONGEST_KEY else None

    def _last_file(self, source: str) -> Path:
        name = hashlib.sha256(repr((self._gateway, source)).encode()).hexdigest()[:32]
        return self._folder / f"{name}.last"

    def load(self, source: str, key: str) -> Snapshot | None:
        try:
            path = self._folder / f"{key}.json"
            stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
            for _, definition in stored.tools + stored.prompts + stored.resources + stored.templates:
                members_of(definition, "definition")
            os.utime(path)
        except (OSError, msgspec.MsgspecError, BadMessage, RecursionError):
            return None
        if stored.format != _FORMAT:
            return None
        return Snapshot(
            tools=tuple(Tool(source, name, bytes(raw)) for name, raw in stored.tools),
            prompts=_items(source, stored.prompts),
            resources=_items(source, stored.resources),
            templates=_items(source, stored.templates),
            instructions=stored.instructions,
            server_info=bytes(stored.server_info),
            capabilities=bytes(stored.capabilities),
            protocol_version=stored.protocol_version,
        )

    def save(self, source: str, key: str, snapshot: Snapshot) -> bool:
        stored = _Stored(
            format=_FORMAT,
            tools=[(tool.name, msgspec.Raw(tool.definition)) for tool in snapshot.tools],
            prompts=_stored(snapshot.prompts),
            resources=_stored(snapshot.resources),
            templates=_stored(snapshot.templates),
            instructions=snapshot.instructions,
            server_info=msgspec.Raw(snapshot.server_info),
            capabilities=msgspec.Raw(snapshot.capabilities),
            protocol_version=snapshot.protocol_version,
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(self._folder / f"{key}.json", msgspec.json.encode(stored))
            self._write(self._last_file(source), key.encode())
        except OSError:
            return False
        return True

    def _write(self, path: Path, content: bytes) -> None:
        scratch = self._folder / f".{path.name}.{os.getpid()}"
        is_new = not path.exists()
        try:
            scratch.write_bytes(content)
            scratch.chmod(0o600)
            scratch.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise
        if is_new:
            self._make_room(path.suffix)

    def _make_room(self, suffix: str) -> None:
        files = list(self._folder.glob(f"*{suffix}"))
        if len(files) > _MOST_FILES:
            files.sort(key=lambda file: file.stat().st_mtime_ns)
            for file in files[: len(files) - _MOST_FILES * 9 // 10]:
                file.unlink(missing_ok=True)


def _items(source: str, stored: _StoredList) -> tuple[Item, ...]:
    return tuple(Item(source, key, bytes(raw)) for key, raw in stored)


def _stored(items: tuple[Item, ...]) -> _StoredList:
    return [(item.key, msgspec.Raw(item.definition)) for item in items]


# Which definitions a source describes otherwise than when they were last seen: at its last start, or during this run.
#
# Models do what descriptions say, so a server that changes them by itself is worth a line in the log. So is one that does
# it in the process of one client, where nobody else sees it.

REPORT_INTERVAL_S: Final = 10.0
"""A source that changes all the time is told of this often."""
_MOST_NAMED: Final = 10
_MOST_KEPT: Final = 50_000
"""Definitions of one source that are remembered, with those that are listed no longer."""
_MOST_VARIANTS: Final = 4
"""What clients' own processes say of one thing is told this often: some servers describe a tool to each client anew."""
_MOST_HIDDEN: Final = 10
"""Warnings of hidden characters that are kept of clients' own processes of one source."""
_FOR_A_CLIENT: Final = "in a client's own process"
_HINT: Final = "read what they say now: `trunkline tools --json`"
_NOUNS: Final[dict[ListName, str]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "resource template",
}
_INSTRUCTIONS: Final = "its instructions"

Label = str
"""What people call a definition, such as `` tool `add` ``; no two of a source have the same."""


class _Seen:
    """What one source offered so far. `changed` are all that did during this run, `untold` those of the last moment."""

    def __init__(self) -> None:
        self.definitions: dict[Label, bytes] = {}
        self.listed: dict[ListName, frozenset[Label]] = {}
        self.changed: dict[Label, None] = {}
        self.untold: dict[Label, None] = {}
        self.pause: asyncio.TimerHandle | None = None
        self.variants: dict[Label, set[bytes]] = {}
        """Digests of what clients' own processes said otherwise: each is told once, to however many clients."""
        self.hidden: dict[str, None] = {}
        """Warnings of hidden characters in what they said."""


class DefinitionChanges:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._sources: dict[str, _Seen] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, source: str, before: Snapshot | None) -> None:
        """A source comes, or another takes its name; `before` is what it offered when it last ran."""
        self.forget(source)
        seen = self._sources[source] = _Seen()
        if before is not None:
            _remember(seen, before)

    def published(self, source: str, snapshot: Snapshot) -> None:
        seen = self._sources.setdefault(source, _Seen())
        is_first = not seen.definitions
        listed, changed = _remember(seen, snapshot)
        if not is_first:
            self._tell_listed(source, listed)
        self._changed(source, seen, changed)

    def published_for_client(self, source: str, snapshot: Snapshot, known_warnings: Collection[str]) -> None:
        """What a client's own process of this source says. It is compared with what all are offered, and never takes
        its place; what comes and goes in such a list is that client's affair."""
        seen = self._sources.setdefault(source, _Seen())
        self._changed(source, seen, [f"{label} {_FOR_A_CLIENT}" for label in _new_variants(seen, snapshot)])
        for warning in snapshot.warnings:
            told = f"{warning}, {_FOR_A_CLIENT}"
            is_news = warning.startswith(f"{HIDDEN_CHARACTERS}:") and warning not in known_warnings
            if is_news and told not in seen.hidden and len(seen.hidden) < _MOST_HIDDEN:
                seen.hidden[told] = None
                self._events.note("warning", "source", told, source=source)

    def _changed(self, source: str, seen: _Seen, changed: list[Label]) -> None:
        if changed:
            seen.changed.update(dict.fromkeys(changed))
            seen.untold.update(dict.fromkeys(changed))
            if seen.pause is None:
                self._tell_changed(source, seen)

    def warnings(self, source: str) -> tuple[str, ...]:
        """For whoever asks how the source is."""
        seen = self._sources.get(source)
        if seen is None:
            return ()
        changed = f"{DEFINITION_CHANGED}: described otherwise than before: {_named(seen.changed)}; {_HINT}"
        return (*((changed,) if seen.changed else ()), *seen.hidden)

    def forget(self, source: str) -> None:
        """What was kept back until now is told: the next start will not know of it."""
        seen = self._sources.pop(source, None)
        if seen is not None and seen.pause is not None:
            seen.pause.cancel()
            if seen.untold:
                self._note_changed(source, seen)

    def close(self) -> None:
        for source in list(self._sources):
            self.forget(source)

    def _note_changed(self, source: str, seen: _Seen) -> None:
        message = f"{source} describes otherwise than before: {_named(seen.untold)}"
        code = DEFINITION_CHANGED.id
        self._events.note("warning", "definitions", message, source=source, code=code, hint=_HINT)
        seen.untold = {}

    def _tell_changed(self, source: str, seen: _Seen) -> None:
        seen.pause = None
        if seen.untold:
            self._note_changed(source, seen)
            seen.pause = self._loop.call_later(REPORT_INTERVAL_S, self._tell_changed, source, seen)

    def _tell_listed(self, source: str, listed: dict[str, list[Label]]) -> None:
        said = [f"{word} {_named(labels)}" for word, labels in listed.items() if labels]
        if said:
            self._events.note("info", "definitions", f"{source} now offers {'; '.join(said)}", source=source)


def _remember(seen: _Seen, snapshot: Snapshot) -> tuple[dict[str, list[Label]], list[Label]]:
    """What came and went in the lists, and what changed. An empty list may be one that is still to come."""
    news: dict[str, list[Label]] = {"more:": [], "no longer:": []}
    changed: list[Label] = []
    if len(seen.definitions) > _MOST_KEPT:
        seen.definitions.clear()
    for name in LISTS:
        definitions = dict(_labelled(snapshot, name))
        if not definitions:
            continue
        changed += [label for label, raw in definitions.items() if _differs(seen.definitions.get(label), raw)]
        labels = frozenset(definitions)
        before = seen.listed.get(name, labels)
        news["more:"] += [label for label in definitions if label not in before]
        news["no longer:"] += sorted(before - labels)
        seen.listed[name] = labels
        seen.definitions.update(definitions)
    for label, text in _instructions(snapshot):
        changed += [label] if seen.definitions.get(label, text) != text else []
        seen.definitions[label] = text
    return news, changed


def _new_variants(seen: _Seen, snapshot: Snapshot) -> list[Label]:
    """What is said otherwise than all are told, and than any client was told yet. Of what only clients are offered the
    first is the measure."""
    found: list[Label] = []
    offered = [pair for name in LISTS for pair in _labelled(snapshot, name)]
    for label, definition in (*offered, *_instructions(snapshot)):
        known = seen.definitions.get(label)
        if known is not None and not _differs(known, definition):
            continue
        variants = seen.variants.get(label)
        if variants is None:
            if known is None and len(seen.variants) >= _MOST_KEPT:
                continue
            variants = seen.variants[label] = set()
        if len(variants) >= _MOST_VARIANTS or (digest := _digest(definition)) in variants:
            continue
        if known is not None or variants:
            found.append(label)
        variants.add(digest)
    return found


def _digest(definition: bytes) -> bytes:
    with suppress(msgspec.MsgspecError, RecursionError, TypeError):  # else its bytes will do
        definition = msgspec.json.encode(_canonical(definition), order="deterministic")
    return blake2b(definition, digest_size=16).digest()


def _instructions(snapshot: Snapshot) -> Iterator[tuple[Label, bytes]]:
    if snapshot.instructions:
        yield _INSTRUCTIONS, snapshot.instructions.encode("utf-8", "surrogatepass")


def _labelled(snapshot: Snapshot, name: ListName) -> Iterator[tuple[Label, bytes]]:
    for item in getattr(snapshot, name):
        key = item.name if isinstance(item, Tool) else item.key
        yield f"{_NOUNS[name]} `{reveal(key)}`", item.definition


def _differs(before: bytes | None, now: bytes) -> bool:
    return before is not None and before != now and _canonical(before) != _canonical(now)


def _canonical(definition: bytes) -> object:
    """The order of members and the spelling of texts mean nothing."""
    try:
        return msgspec.json.decode(definition)
    except (msgspec.MsgspecError, RecursionError):
        return definition


def _named(labels: Iterable[Label]) -> str:
    names = list(labels)
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
