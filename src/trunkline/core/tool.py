"""What a source offers, as data: tools, prompts, resources, and the snapshot that holds all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

ListName = Literal["tools", "prompts", "resources", "templates"]
LISTS: Final[tuple[ListName, ...]] = ("tools", "prompts", "resources", "templates")


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One tool as its server defines it.

    `definition` is the server's JSON object, byte for byte except for hidden characters, which are made visible before
    it enters the catalog. `aliases` are other names that callers may use, such as the one an app registered.
    """

    source: str
    name: str
    definition: bytes
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What requests name it by, as for an `ItemDefinition`."""
        return self.name

    @property
    def address(self) -> str:
        return f"{self.source}.{self.name}"


@dataclass(frozen=True, slots=True)
class ItemDefinition:
    """A prompt, a resource or a resource template as its server defines it.

    `key` is what requests name it by: a prompt's name, a resource's URI, a template's URI template.
    """

    source: str
    key: str
    definition: bytes


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long a list may be cached and whether it may be shared, as its server said at `since` (monotonic)."""

    ttl_ms: int = 0
    public: bool = False
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a source offers at one moment. Sources publish whole snapshots; the catalog only replaces them."""

    tools: tuple[ToolDefinition, ...] = ()
    prompts: tuple[ItemDefinition, ...] = ()
    resources: tuple[ItemDefinition, ...] = ()
    templates: tuple[ItemDefinition, ...] = ()
    instructions: str = ""
    server_info: bytes = b"{}"
    capabilities: bytes = b"{}"
    protocol_version: str = ""
    warnings: tuple[str, ...] = field(default=())
    freshness: Mapping[ListName, Freshness] = field(default_factory=dict[ListName, Freshness], compare=False)
