"""The `sandbox` key, for everything that can run in a sandbox, and the `protect` key, for files kept from agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trunkline.config.reader import ConfigReader
from trunkline.config.section import Section, key, read_section, section_schema
from trunkline.config.sources import NOTHING
from trunkline.config.tree import Node, Scalar, Table
from trunkline.config.value_types import Choice, EnvironmentVariables, JsonSchema, ListOf, MapOf, Text, ValueType
from trunkline.core.errors import BAD_VALUE

MODES: Final = ("off", "auto", "required")
NETWORKS: Final = ("on", "loopback", "off")
ACCESS: Final = ("rw", "ro")
"""Each from the most permissive to the strictest."""
SCRATCH_PREFIX: Final = "trunkline-bash-"
"""Prefix of the private folders of commands in a sandbox."""
KERNEL_FOLDERS: Final = ("/proc", "/dev", "/sys")
"""Folders that a sandbox has of its own."""
_MODE: Final = Choice("auto", "required", "off")
_ACCESS: Final = Choice("ro", "rw")


class FolderAccess(ValueType[Mapping[Path, str]]):
    """Folders, each with `ro` or `rw`; relative paths start at the file's folder."""

    def read(self, node: Node, reader: ConfigReader) -> Mapping[Path, str]:
        if not isinstance(node, Table):
            raise reader.wrong_type(node, "folders, each with `ro` or `rw`", "write `{FOLDER: ro}`")
        given = MapOf(_ACCESS).read(node, reader)
        found: dict[Path, str] = {}
        for entry in node.entries:
            path = reader.path(reader.text(entry.key))
            if path == Path("/") or any(path.is_relative_to(folder) for folder in KERNEL_FOLDERS):
                raise reader.error(BAD_VALUE, entry.key, f"`{entry.key.text}` cannot be made visible in a sandbox")
            found[path] = given[entry.key.text]
        return found

    def schema(self) -> JsonSchema:
        return MapOf(_ACCESS).schema()


class SandboxSettings(Section):
    """Whether commands run in a sandbox, and what they find in it."""

    mode: str = key(
        _MODE,
        default="auto",
        doc="Use a sandbox if bubblewrap works, refuse to run without one, or never use one",
    )
    network: str = key(
        Choice("off", "loopback", "on"),
        default="loopback",
        doc="No network, a private loopback, or this machine's network including the gateway's ports",
    )
    folders: Mapping[Path, str] = key(
        FolderAccess(),
        default=NOTHING,
        doc="Additional folders that are visible, each read-only (`ro`) or writable (`rw`)",
    )
    env: Mapping[str, str] = key(
        EnvironmentVariables(),
        default=NOTHING,
        doc="Environment variables of the commands, with or without a sandbox",
        secret=True,
    )


class SandboxValue(ValueType[SandboxSettings]):
    """The mode as one word, or the whole section."""

    def read(self, node: Node, reader: ConfigReader) -> SandboxSettings:
        if isinstance(node, Table):
            return read_section(SandboxSettings, node, reader)
        if isinstance(node, Scalar) and node.kind == "boolean":
            raise reader.wrong_type(node, "`auto`, `required` or `off`")
        return SandboxSettings(mode=_MODE.read(node, reader))

    def schema(self) -> JsonSchema:
        return {"anyOf": [*_MODE.schema()["anyOf"], section_schema(SandboxSettings) | {"type": "object"}]}

    def example(self, value: SandboxSettings) -> Any:
        return value.mode


def strictest_sandbox(configured: Iterable[SandboxSettings]) -> SandboxSettings:
    """The one sandbox that is as strict as all of the configured ones."""
    first, *others = [*configured] or [SandboxSettings()]
    for other in others:
        shared = first.folders.keys() & other.folders.keys()
        first = SandboxSettings(
            mode=max(first.mode, other.mode, key=MODES.index),
            network=max(first.network, other.network, key=NETWORKS.index),
            folders={path: max(first.folders[path], other.folders[path], key=ACCESS.index) for path in shared},
            env=dict(first.env.items() & other.env.items()),
        )
    return first


_OFF: Final = "off"


@dataclass(frozen=True, slots=True)
class ProtectSettings:
    """Whether files are protected, and patterns of further paths that are."""

    on: bool = True
    more: tuple[str, ...] = ()


def _check_pattern(pattern: str) -> str | None:
    names = pattern.strip("/").split("/")
    if "\0" in pattern or any(name in ("", ".", "..") for name in names):
        return "A protected path must not contain `.` or `..`"
    if "**" in names:
        return "A protected path needs no `**`: it matches at any depth"
    return None


class ProtectValue(ValueType[ProtectSettings]):
    """A list of paths that are protected as well, or the word `off`."""

    _patterns: Final = ListOf(Text(may_be_empty=False, check=_check_pattern))
    _word: Final = Choice(_OFF)

    def read(self, node: Node, reader: ConfigReader) -> ProtectSettings:
        if isinstance(node, Scalar):
            if node.kind == "boolean":
                raise reader.wrong_type(node, "a list of paths or the word `off`")
            self._word.read(node, reader)
            return ProtectSettings(on=False)
        return ProtectSettings(more=tuple(self._patterns.read(node, reader)))

    def schema(self) -> JsonSchema:
        return {"anyOf": [self._patterns.schema(), {"const": _OFF}]}

    def example(self, value: ProtectSettings) -> Any:
        return list(value.more) if value.on else _OFF


def merge_protection(configured: Iterable[ProtectSettings]) -> ProtectSettings:
    """The one protection that covers all of the configured ones."""
    found = [*configured] or [ProtectSettings()]
    more = dict.fromkeys(pattern for settings in found for pattern in settings.more)
    return ProtectSettings(on=any(settings.on for settings in found), more=tuple(more))
