"""The ways in which clients write their MCP servers: one module each, and how to tell whose file one is.

A dialect finds the servers in the tree of the file and says how their keys are spelled; `clients` does the rest. No
module is imported for a file of another client, and none for a file of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from trunkline.config.clients import ClientFormat
from trunkline.config.reader import ConfigReader
from trunkline.config.tree import Items, Node, Scalar, Table


class ClientFile(NamedTuple):
    """`project` is the folder of the project whose servers the file describes; None for a user's own file."""

    root: Table
    path: Path
    project: Path | None
    reader: ConfigReader


class ClientServers(NamedTuple):
    """`node` is None where the file has no servers, which would stand under `group`."""

    group: str
    node: Node | None
    client_format: ClientFormat


ReadServers = Callable[[ClientFile], ClientServers]

DIALECTS: Final[dict[str, str]] = {
    "mcp_servers": "trunkline.config.dialects.formats:mcp_servers",
    "vscode": "trunkline.config.dialects.formats:vscode_servers",
    "codex": "trunkline.config.dialects.formats:codex_servers",
    "gemini": "trunkline.config.dialects.formats:gemini_servers",
    "opencode": "trunkline.config.dialects.formats:opencode_servers",
}

_BY_NAME: Final = {
    ".mcp.json": "mcp_servers",
    ".claude.json": "mcp_servers",
    "claude_desktop_config.json": "mcp_servers",
    "mcp_config.json": "mcp_servers",
    "mcp.json": "mcp_servers",
    "settings.json": "gemini",
    "opencode.json": "opencode",
    "opencode.jsonc": "opencode",
}
OUR_STEM: Final = "trunkline"
OUR_KEYS: Final = ("gateway", "sources")


def load_dialect(name: str) -> ReadServers:
    """What reads a dialect, importing its module now. The name must be one of the table."""
    module, _, attribute = DIALECTS[name].partition(":")
    return getattr(import_module(module), attribute)


def is_client_file_name(path: Path) -> bool:
    """Whether a client has files of this name, so that all of it is the client's business."""
    return path.name in _BY_NAME or path.suffix.lower() == ".toml"


def dialect_of(path: Path, root: Table) -> str | None:
    """Whose file this is by its name and what it holds; None for one of our own."""
    suffix = path.suffix.lower()
    if suffix == ".toml":
        return "codex"
    if path.stem == OUR_STEM or suffix not in (".json", ".jsonc"):
        return None
    by_name = _BY_NAME.get(path.name)
    if by_name is None and any(root.get(key) is not None for key in OUR_KEYS):
        return None
    return _by_content(root, by_name) or by_name


def _by_content(root: Table, by_name: str | None) -> str | None:
    schema = root.get("$schema")
    if by_name == "opencode" or (isinstance(schema, Scalar) and "opencode.ai" in schema.text):
        return "opencode"
    if root.get("mcpServers") is not None:
        return "gemini" if by_name == "gemini" else "mcp_servers"
    if isinstance(root.get("servers"), Table):
        return "vscode"
    group = root.get("mcp")
    if not isinstance(group, Table):
        return None
    servers = group.get("servers")
    if _is_opencode(group) or (isinstance(servers, Table) and _is_opencode(servers)):
        return "opencode"
    return "vscode" if isinstance(servers, Table) else None


def _is_opencode(servers: Table) -> bool:
    """OpenCode alone writes a command as a list, and calls servers `local` and `remote`."""
    return any(isinstance(entry.value, Table) and _is_opencode_server(entry.value) for entry in servers.entries)


def _is_opencode_server(server: Table) -> bool:
    kind = server.get("type")
    return isinstance(server.get("command"), Items) or (isinstance(kind, Scalar) and kind.text in ("local", "remote"))
