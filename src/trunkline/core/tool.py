"""What a source offers, as data: one tool, and the whole snapshot of a source."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as its server defined it. `definition` is the server's own JSON object, byte for byte."""

    source: str
    name: str
    definition: bytes

    @property
    def address(self) -> str:
        return f"{self.source}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a source offers at one moment. Sources push whole snapshots; the catalog only ever replaces.

    The other lists hold the servers' own JSON objects, as `definition` does for tools.
    """

    tools: tuple[Tool, ...] = ()
    prompts: tuple[bytes, ...] = ()
    resources: tuple[bytes, ...] = ()
    templates: tuple[bytes, ...] = ()
    instructions: str = ""
    server_info: bytes = b"{}"
    capabilities: bytes = b"{}"
    protocol_version: str = ""
    warnings: tuple[str, ...] = field(default=())
