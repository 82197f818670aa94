"""What servers offered last time, on disk, so that a first `tools/list` need not wait for them to start.

Keyed by a hash of the source's configuration: a changed command line is another server, whose list is not that of the
one before. What a source of this name said last is found all the same, however it was configured then: with a new token
or another version it is still worth knowing what it describes otherwise.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from trunkline.core.tool import Item, Snapshot, Tool
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


class Definitions:
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
