"""What a source offers, as data: one tool, and the whole snapshot of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

ListName = Literal["tools", "prompts", "resources", "templates"]
LISTS: Final[tuple[ListName, ...]] = ("tools", "prompts", "resources", "templates")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as its server defined it. `definition` is the server's own JSON object, byte for byte, but for hidden
    characters, which are made visible before it enters the catalog.

    `also` are other spellings that callers may use, such as the name under which an app registered it.
    """

    source: str
    name: str
    definition: bytes
    also: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.source}.{self.name}"


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt, a resource or a template of resources as its server defined it, byte for byte.

    `key` is what requests name it by: a prompt's name, a resource's URI, a template's URI template.
    """

    source: str
    key: str
    definition: bytes


@dataclass(frozen=True, slots=True)
class Freshness:
    """What a server said of how long a list holds and for whom, and when (monotonic) it said so."""

    ttl_ms: int = 0
    public: bool = False
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a source offers at one moment. Sources push whole snapshots; the catalog only ever replaces."""

    tools: tuple[Tool, ...] = ()
    prompts: tuple[Item, ...] = ()
    resources: tuple[Item, ...] = ()
    templates: tuple[Item, ...] = ()
    instructions: str = ""
    server_info: bytes = b"{}"
    capabilities: bytes = b"{}"
    protocol_version: str = ""
    warnings: tuple[str, ...] = field(default=())
    freshness: Mapping[ListName, Freshness] = field(default_factory=dict[ListName, Freshness], compare=False)
