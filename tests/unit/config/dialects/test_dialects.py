"""Detection of the client that a file belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.config_files import node_of

from trunkline.config.dialects import dialect_of
from trunkline.config.tree import Table

OPENCODE = "mcp: {a: {type: local, command: [x]}}"


@pytest.mark.parametrize(
    ("name", "text", "dialect"),
    [
        (".mcp.json", "mcpServers: {}", "mcp_servers"),
        (".mcp.json", "{}", "mcp_servers"),
        (".mcp.json", "gateway: {}", "mcp_servers"),
        ("mcp.json", "mcpServers: {}", "mcp_servers"),
        ("mcp.json", "servers: {}", "vscode"),
        ("mcp.json", "servers: 5", "mcp_servers"),
        ("any.json", "servers: {a: {command: x}}", "vscode"),
        ("any.json", "mcpServers: {}", "mcp_servers"),
        ("any.jsonc", "mcpServers: {}", "mcp_servers"),
        ("any.json", OPENCODE, "opencode"),
        ("any.json", "mcp: {servers: {a: {type: remote, url: x}}}", "opencode"),
        ("any.json", "mcp: {servers: {a: {command: x}}}", "vscode"),
        ("any.json", "$schema: 'https://opencode.ai/config.json'", "opencode"),
        ("settings.json", "mcp: {servers: {a: {command: x}}}", "vscode"),
        ("settings.json", "{mcp: {allowed: [a]}, mcpServers: {}}", "gemini"),
        ("settings.json", "mcp: {allowed: [a]}", "gemini"),
        ("opencode.json", "mcpServers: {}", "opencode"),
        ("config.toml", "{}", "codex"),
        ("trunkline.json", "mcpServers: {}", None),
        ("trunkline.yaml", "mcpServers: {}", None),
        ("any.yaml", "servers: {}", None),
        ("any.json", "{mcpServers: {}, gateway: {}}", None),
        ("any.json", "{servers: {}, sources: {}}", None),
        ("any.json", "mcp: 5", None),
        ("any.json", "{}", None),
    ],
)
def test_a_file_is_known_by_its_name_and_what_it_holds(name: str, text: str, dialect: str | None) -> None:
    root = node_of(text)
    assert isinstance(root, Table)
    assert dialect_of(Path("/somewhere", name), root) == dialect
