"""`mcpServers` of Gemini CLI's settings, where `mcp` says which of them are used."""

from __future__ import annotations

from functools import partial
from typing import Final

from trunkline.config.client_entry import Spelling
from trunkline.config.dialects import ClientFile, ClientServers
from trunkline.config.references import ShellReferences, rewrite_given
from trunkline.config.tree import Entry, Items, Node, Scalar, Table

_GROUP: Final = "mcpServers"
_REFERENCE: Final = "$NAME"


def find_servers(file: ClientFile) -> ClientServers:
    file.reader.reference = _REFERENCE
    references = ShellReferences(file.reader)
    servers = file.root.get(_GROUP)
    if isinstance(servers, Table):
        servers = _with_choice(servers, file.root.get("mcp"))
    spelling = Spelling(adapt=partial(rewrite_given, rewrite=references), start_folder=file.project)
    return ClientServers(_GROUP, servers, spelling)


def _with_choice(servers: Table, choice: Node | None) -> Table:
    """The servers, of which those that `mcp` leaves out are switched off."""
    if not isinstance(choice, Table):
        return servers
    allowed, excluded = _names(choice.get("allowed")), _names(choice.get("excluded")) or set()

    def is_used(name: str) -> bool:
        return name not in excluded and (allowed is None or name in allowed)

    entries = [entry if is_used(entry.key.text) else _switched_off(entry) for entry in servers.entries]
    return Table(servers.span, entries)


def _names(node: Node | None) -> set[str] | None:
    return {item.text for item in node.items if isinstance(item, Scalar)} if isinstance(node, Items) else None


def _switched_off(entry: Entry) -> Entry:
    if not isinstance(entry.value, Table):
        return entry
    others = [inner for inner in entry.value.entries if inner.key.text not in ("disabled", "enabled")]
    switch = Entry(Scalar(entry.key.span, "text", "disabled"), Scalar(entry.key.span, "boolean", "true"))
    return Entry(entry.key, Table(entry.value.span, [*others, switch]))
