"""Tells which client a configuration file belongs to, by its name and its content.

`formats` reads the files of clients. It is not imported for Trunkline's own files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trunkline.config.tree import ListNode, Scalar, Table

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


def is_client_file_name(path: Path) -> bool:
    """Whether this is the name of a client's file, in which all other keys are the client's."""
    return path.name in _BY_NAME or path.suffix.lower() == ".toml"


def dialect_of(path: Path, root: Table) -> str | None:
    """The dialect of a file, by its name and content; None for Trunkline's own files."""
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
    """Whether a server has a command that is a list, or is called `local` or `remote`, as only OpenCode's are."""
    for server in (entry.value for entry in servers.entries if isinstance(entry.value, Table)):
        kind = server.get("type")
        if isinstance(server.get("command"), ListNode) or (
            isinstance(kind, Scalar) and kind.text in ("local", "remote")
        ):
            return True
    return False
