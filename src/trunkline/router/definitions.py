"""Definitions of tools, prompts and resources: stored on disk between runs, and watched for changes.

The store answers a first `tools/list` before servers have started. It is keyed by a hash of the source's configuration,
since another command line is another server. `last` finds what a source of this name offered last under any
configuration, to compare it with: a new token or version is no reason not to notice changes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final, cast

import msgspec

from trunkline.core.errors import DEFINITION_CHANGED, HIDDEN_CHARACTERS
from trunkline.core.events import Events
from trunkline.core.hidden_text import reveal
from trunkline.core.tool import LISTS, ItemDefinition, ListName, Snapshot, ToolDefinition
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.router.sanitizing import first_of

_FORMAT: Final = 2
_MOST_FILES: Final = 1000
"""Each configuration of a source has a file; the least recently used ones are deleted."""
_LONGEST_KEY: Final = 64

_StoredList = list[tuple[str, msgspec.Raw]]
"""Keys and definitions."""


class _StoredSnapshot(msgspec.Struct):
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
    """A hash of a source's configuration, secrets included."""
    return sha256(repr((source, _plain(section))).encode()).hexdigest()[:32]


def _plain(value: object) -> object:
    """Convert sections and mappings to pairs, because `repr` of a section hides its secrets."""
    if is_dataclass(value):
        return [(item.name, _plain(getattr(value, item.name))) for item in fields(value)]
    if isinstance(value, Mapping):
        pairs = cast(Mapping[object, object], value).items()
        return sorted((repr(name), repr(_plain(inner))) for name, inner in pairs)
    return value


class DefinitionStore:
    """A folder of snapshots. Without it clients wait longer, but nothing goes wrong, so I/O errors are ignored."""

    def __init__(self, folder: Path, gateway: str = "") -> None:
        """`gateway` distinguishes sources of the same name in different configuration files."""
        self._folder = folder
        self._gateway = gateway

    def last(self, source: str) -> Snapshot | None:
        """What a source of this name offered last, under any configuration."""
        try:
            key = self._last_file(source).read_text("ascii")
        except (OSError, ValueError):
            return None
        return self.load(source, key) if key.isalnum() and len(key) <= _LONGEST_KEY else None

    def _last_file(self, source: str) -> Path:
        name = sha256(repr((self._gateway, source)).encode()).hexdigest()[:32]
        return self._folder / f"{name}.last"

    def load(self, source: str, key: str) -> Snapshot | None:
        try:
            path = self._folder / f"{key}.json"
            stored = msgspec.json.decode(path.read_bytes(), type=_StoredSnapshot)
            for _, definition in stored.tools + stored.prompts + stored.resources + stored.templates:
                members_of(definition, "definition")
            os.utime(path)
        except (OSError, msgspec.MsgspecError, BadMessage, RecursionError):
            return None
        if stored.format != _FORMAT:
            return None
        return Snapshot(
            tools=tuple(ToolDefinition(source, name, bytes(raw)) for name, raw in stored.tools),
            prompts=_items(source, stored.prompts),
            resources=_items(source, stored.resources),
            templates=_items(source, stored.templates),
            instructions=stored.instructions,
            server_info=bytes(stored.server_info),
            capabilities=bytes(stored.capabilities),
            protocol_version=stored.protocol_version,
        )

    def save(self, source: str, key: str, snapshot: Snapshot) -> bool:
        stored = _StoredSnapshot(
            format=_FORMAT,
            tools=_stored_list(snapshot.tools),
            prompts=_stored_list(snapshot.prompts),
            resources=_stored_list(snapshot.resources),
            templates=_stored_list(snapshot.templates),
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
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise
        files = list(self._folder.glob(f"*{path.suffix}")) if is_new else []
        if len(files) > _MOST_FILES:
            files.sort(key=lambda file: file.stat().st_mtime_ns)
            for file in files[: len(files) - _MOST_FILES * 9 // 10]:
                file.unlink(missing_ok=True)


def _items(source: str, stored: _StoredList) -> tuple[ItemDefinition, ...]:
    return tuple(ItemDefinition(source, key, bytes(raw)) for key, raw in stored)


def _stored_list(items: tuple[ToolDefinition, ...] | tuple[ItemDefinition, ...]) -> _StoredList:
    return [(item.key, msgspec.Raw(item.definition)) for item in items]


# -- changes ----------------------------------------------------------------------------------------------------------
# Models do what descriptions say, so it is logged when a server changes them: since its last run, during this one, or
# for a single client, where nobody else would see it.

REPORT_INTERVAL_S: Final = 10.0
"""Changes of one source are logged at most this often."""
_MOST_NAMED: Final = 10
_MAX_REMEMBERED: Final = 50_000
"""Definitions remembered for one source, including those that are no longer listed."""
_MAX_VARIANTS: Final = 4
"""Changes logged for one definition in clients' own processes: some servers describe a tool to each client anew."""
_MAX_HIDDEN_WARNINGS: Final = 10
"""Warnings about hidden characters in clients' own processes that are kept for one source."""
_FOR_A_CLIENT: Final = "in a client's own process"
_HINT: Final = "review them with `trunkline tools --json`"
_NOUNS: Final[dict[ListName, str]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "resource template",
}
_INSTRUCTIONS: Final = "its instructions"

DefinitionLabel = str
"""How a definition is named in messages, such as `` tool `add` ``; unique within a source."""


class _SourceHistory:
    """What one source has offered. `changed` are those that changed in this run, `unreported` those not logged."""

    def __init__(self) -> None:
        self.definitions: dict[DefinitionLabel, bytes] = {}
        self.listed: dict[ListName, frozenset[DefinitionLabel]] = {}
        self.changed: dict[DefinitionLabel, None] = {}
        self.unreported: dict[DefinitionLabel, None] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.variants: dict[DefinitionLabel, set[bytes]] = {}
        """Digests of what clients' own processes offered instead: each is logged once, for however many clients."""
        self.hidden: dict[str, None] = {}
        """Warnings about hidden characters in what those offered."""


class DefinitionChanges:
    """Compares what sources publish with what they offered before, and logs the differences."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._sources: dict[str, _SourceHistory] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, source: str, before: Snapshot | None) -> None:
        """Start to track a source, or another one of its name; `before` is what it offered when it last ran."""
        self.forget(source)
        history = self._sources[source] = _SourceHistory()
        if before is not None:
            _remember(history, before)

    def published(self, source: str, snapshot: Snapshot) -> None:
        history = self._sources.setdefault(source, _SourceHistory())
        is_first = not history.definitions
        listed, changed = _remember(history, snapshot)
        if not is_first:
            parts = [f"{verb} {first_of(labels, _MOST_NAMED)}" for verb, labels in listed.items() if labels]
            message = f"{source} changed its lists: {'; '.join(parts)}"
            if parts:
                self._events.note("info", "definitions", message, source=source)
        self._changed(source, history, changed)

    def published_for_client(self, source: str, snapshot: Snapshot, known_warnings: Collection[str]) -> None:
        """Compare what a client's own process of this source offers with what all clients are offered. Only changed
        definitions are logged, not added and removed ones."""
        history = self._sources.setdefault(source, _SourceHistory())
        self._changed(source, history, [f"{label} {_FOR_A_CLIENT}" for label in _new_variants(history, snapshot)])
        for warning in snapshot.warnings:
            message = f"{warning}, {_FOR_A_CLIENT}"
            is_new = warning.startswith(f"{HIDDEN_CHARACTERS}:") and warning not in known_warnings
            if is_new and message not in history.hidden and len(history.hidden) < _MAX_HIDDEN_WARNINGS:
                history.hidden[message] = None
                self._events.note("warning", "source", message, source=source)

    def _changed(self, source: str, history: _SourceHistory, changed: list[DefinitionLabel]) -> None:
        if changed:
            history.changed.update(dict.fromkeys(changed))
            history.unreported.update(dict.fromkeys(changed))
            if history.timer is None:
                self._report_changed(source, history)

    def warnings(self, source: str) -> tuple[str, ...]:
        """Warnings for the status of a source."""
        history = self._sources.get(source)
        if history is None:
            return ()
        changed = f"{DEFINITION_CHANGED}: definitions changed: {first_of(history.changed, _MOST_NAMED)}; {_HINT}"
        return (*((changed,) if history.changed else ()), *history.hidden)

    def forget(self, source: str) -> None:
        """Stop tracking a source. Logs what was held back: the next run will not find it changed."""
        history = self._sources.pop(source, None)
        if history is not None and history.timer is not None:
            history.timer.cancel()
            if history.unreported:
                self._log_changed(source, history)

    def close(self) -> None:
        for source in list(self._sources):
            self.forget(source)

    def _log_changed(self, source: str, history: _SourceHistory) -> None:
        message = f"Definitions of {source} changed: {first_of(history.unreported, _MOST_NAMED)}"
        code = DEFINITION_CHANGED.id
        self._events.note("warning", "definitions", message, source=source, code=code, hint=_HINT)
        history.unreported = {}

    def _report_changed(self, source: str, history: _SourceHistory) -> None:
        history.timer = None
        if history.unreported:
            self._log_changed(source, history)
            history.timer = self._loop.call_later(REPORT_INTERVAL_S, self._report_changed, source, history)


def _remember(
    history: _SourceHistory, snapshot: Snapshot
) -> tuple[dict[str, list[DefinitionLabel]], list[DefinitionLabel]]:
    """Store a snapshot; returns what was added and removed, and what changed. An empty list is ignored, because it may
    not have been fetched yet."""
    listed: dict[str, list[DefinitionLabel]] = {"added": [], "removed": []}
    changed: list[DefinitionLabel] = []
    if len(history.definitions) > _MAX_REMEMBERED:
        history.definitions.clear()
    for name in LISTS:
        definitions = dict(_labelled(snapshot, name))
        if not definitions:
            continue
        changed += [label for label, raw in definitions.items() if _differs(history.definitions.get(label), raw)]
        labels = frozenset(definitions)
        before = history.listed.get(name, labels)
        listed["added"] += [label for label in definitions if label not in before]
        listed["removed"] += sorted(before - labels)
        history.listed[name] = labels
        history.definitions.update(definitions)
    for label, text in _instructions(snapshot):
        changed += [label] if history.definitions.get(label, text) != text else []
        history.definitions[label] = text
    return listed, changed


def _new_variants(history: _SourceHistory, snapshot: Snapshot) -> list[DefinitionLabel]:
    """Definitions that differ from what all clients are offered, and from what any client was offered before. A
    definition that only single clients are offered is compared with the first of them."""
    found: list[DefinitionLabel] = []
    offered = [pair for name in LISTS for pair in _labelled(snapshot, name)]
    for label, definition in (*offered, *_instructions(snapshot)):
        known = history.definitions.get(label)
        if known is not None and not _differs(known, definition):
            continue
        variants = history.variants.get(label)
        if variants is None:
            if known is None and len(history.variants) >= _MAX_REMEMBERED:
                continue
            variants = history.variants[label] = set()
        if len(variants) >= _MAX_VARIANTS or (digest := _digest(definition)) in variants:
            continue
        if known is not None or variants:
            found.append(label)
        variants.add(digest)
    return found


def _digest(definition: bytes) -> bytes:
    with suppress(msgspec.MsgspecError, RecursionError, TypeError):  # then compare it as bytes
        definition = msgspec.json.encode(_canonical(definition), order="deterministic")
    return blake2b(definition, digest_size=16).digest()


def _instructions(snapshot: Snapshot) -> Iterator[tuple[DefinitionLabel, bytes]]:
    if snapshot.instructions:
        yield _INSTRUCTIONS, snapshot.instructions.encode("utf-8", "surrogatepass")


def _labelled(snapshot: Snapshot, name: ListName) -> Iterator[tuple[DefinitionLabel, bytes]]:
    for item in getattr(snapshot, name):
        yield f"{_NOUNS[name]} `{reveal(item.key)}`", item.definition


def _differs(before: bytes | None, now: bytes) -> bool:
    return before is not None and before != now and _canonical(before) != _canonical(now)


def _canonical(definition: bytes) -> object:
    """Decode a definition, so that the order of members and the escaping of strings do not matter."""
    try:
        return msgspec.json.decode(definition)
    except (msgspec.MsgspecError, RecursionError):
        return definition
