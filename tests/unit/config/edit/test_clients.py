"""Adding and removing in the files of MCP clients, each in its own words."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from tests.support.editing import SERVER, added, config, removed

from trunkline.config.edit.new_server import NewServer
from trunkline.config.edit.servers import add_server
from trunkline.core.errors import GatewayError
from trunkline.sources.sections import McpHttpSection, McpStdioSection

ENVIRON = {"HOME": "/home/me", "KEY": "k"}
LOCAL = NewServer(name="new", command=("npx", "-y", "a"), env={"KEY": "${KEY}", "B": "1"}, cwd="/srv", enabled=False)
REMOTE = NewServer(name="web", url="https://x.example/mcp", headers={"Authorization": "Bearer ${KEY}", "X-A": "${KEY}"})
OLD = NewServer(name="old", url="https://x.example/sse", transport="sse")

CLAUDE = '{\n  "mcpServers": {\n    "a": {\n      "command": "cat"\n    }\n  }\n}\n'
VSCODE = (
    '{\n\t"inputs": [],\n\t"servers": {\n\t\t"a": {\n\t\t\t"type": "stdio",\n\t\t\t"command": "cat"\n\t\t}\n\t}\n}\n'
)
VSCODE_SETTINGS = '{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "cat"}}}}'
SCHEMA = '"$schema": "https://opencode.ai/config.json"'
OPENCODE = f'{{\n  {SCHEMA},\n  "mcp": {{\n    "a": {{"type": "local", "command": ["cat"]}}\n  }}\n}}'
OPENCODE_2 = f'{{{SCHEMA}, "mcp": {{"timeout": {{}}, "servers": {{"a": {{"type": "local", "command": ["cat"]}}}}}}}}'
GEMINI = '{\n  "theme": "dark",\n  "mcpServers": {\n    "a": {\n      "command": "cat"\n    }\n  }\n}'

FILES = {
    "Claude Code": (".mcp.json", CLAUDE, ("mcpServers",)),
    "Claude Desktop": ("claude_desktop_config.json", CLAUDE, ("mcpServers",)),
    "Cursor": ("mcp.json", CLAUDE, ("mcpServers",)),
    "VS Code": ("mcp.json", VSCODE, ("servers",)),
    "VS Code's settings": ("settings.json", VSCODE_SETTINGS, ("mcp", "servers")),
    "OpenCode": ("opencode.json", OPENCODE, ("mcp",)),
    "OpenCode 2": ("opencode.json", OPENCODE_2, ("mcp", "servers")),
    "Gemini": ("settings.json", GEMINI, ("mcpServers",)),
}


def entry(text: str, path: tuple[str, ...], name: str) -> Any:
    value = json.loads(text)
    for key in (*path, name):
        value = value[key]
    return value


@pytest.mark.parametrize("client", FILES)
def test_a_server_is_added_where_the_client_has_them_and_can_be_taken_back(client: str) -> None:
    name, text, path = FILES[client]
    for server in (LOCAL, REMOTE, OLD):
        edited = add_server(config(text, name, ENVIRON), server)
        assert entry(edited.text, path, server.name)
        assert edited.place == ".".join(path)
        assert edited.problems == ()
        assert removed(edited.text, server.name, name=name) == text
        assert edited.settings is not None
        section = edited.settings.sources[server.name]
        if isinstance(section, McpHttpSection):
            assert section.url == server.url
            assert section.headers == ({"Authorization": "Bearer k", "X-A": "k"} if server is REMOTE else {})
        else:
            assert isinstance(section, McpStdioSection)
            assert (section.command, section.args) == ("npx", ("-y", "a"))
            assert section.env == {"KEY": "k", "B": "1"}
            assert (str(section.cwd), section.enabled) == ("/srv", False)


def test_claude_code_wants_to_know_that_a_url_is_http() -> None:
    assert entry(added(CLAUDE, REMOTE, name=".mcp.json"), ("mcpServers",), "web")["type"] == "http"
    assert entry(added(CLAUDE, OLD, name=".mcp.json"), ("mcpServers",), "old")["type"] == "sse"


def test_vs_code_wants_a_type_and_its_own_references() -> None:
    edited = add_server(config(VSCODE, "mcp.json", ENVIRON), LOCAL).text
    assert entry(edited, ("servers",), "new") == {
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "a"],
        "env": {"KEY": "${env:KEY}", "B": "1"},
        "cwd": "/srv",
        "disabled": True,
    }
    assert edited.startswith(VSCODE[:60])


def test_opencode_has_words_of_its_own() -> None:
    edited = add_server(config(OPENCODE, "opencode.json", ENVIRON), LOCAL).text
    assert entry(edited, ("mcp",), "new") == {
        "type": "local",
        "command": ["npx", "-y", "a"],
        "cwd": "/srv",
        "environment": {"KEY": "{env:KEY}", "B": "1"},
        "enabled": False,
    }
    edited = add_server(config(OPENCODE, "opencode.json", ENVIRON), REMOTE).text
    assert entry(edited, ("mcp",), "web")["headers"] == {"Authorization": "Bearer {env:KEY}", "X-A": "{env:KEY}"}


def test_gemini_tells_the_transports_apart_by_the_key() -> None:
    assert "httpUrl" in entry(added(GEMINI, REMOTE, name="settings.json"), ("mcpServers",), "web")
    assert entry(added(GEMINI, OLD, name="settings.json"), ("mcpServers",), "old") == {"url": OLD.url}


def test_the_first_server_of_a_client_goes_where_the_client_looks_for_it() -> None:
    assert list(json.loads(added("{}", name="opencode.json"))) == ["mcp"]
    assert list(json.loads(added("{}", name=".mcp.json"))) == ["mcpServers"]


# Codex -----------------------------------------------------------------------------------------------------------

CODEX = """\
model = "gpt-5"  # the one

[mcp_servers.a]
command = "cat"
args = [
  "[x]",
]

[mcp_servers.a.env]
A = "1"

# about b
[mcp_servers."b"]
url = "https://b.example/mcp"

[tui]
theme = "dark"
"""


def test_codex_gets_a_table_at_the_end() -> None:
    assert added(CODEX, SERVER, name="config.toml") == (
        CODEX + '\n[mcp_servers.new]\ncommand = "npx"\nargs = ["-y", "@a/b"]\n'
    )


def test_codex_names_variables_by_keys_of_their_own() -> None:
    edited = add_server(config(CODEX, "config.toml", ENVIRON), LOCAL)
    assert tomllib.loads(edited.text)["mcp_servers"]["new"] == {
        "command": "npx",
        "args": ["-y", "a"],
        "env": {"B": "1"},
        "cwd": "/srv",
        "env_vars": ["KEY"],
        "enabled": False,
    }
    edited = add_server(config(CODEX, "config.toml", ENVIRON), REMOTE)
    assert tomllib.loads(edited.text)["mcp_servers"]["web"] == {
        "url": "https://x.example/mcp",
        "bearer_token_env_var": "KEY",
        "env_http_headers": {"X-A": "KEY"},
    }
    assert edited.settings is not None
    section = edited.settings.sources["web"]
    assert isinstance(section, McpHttpSection)
    assert section.headers == {"Authorization": "Bearer k", "X-A": "k"}


def test_what_codex_cannot_say_is_refused() -> None:
    for server in (
        NewServer(name="x", command=("cat", "${KEY}")),
        NewServer(name="x", command=("cat",), env={"A": "${KEY}"}),
        NewServer(name="x", url="http://x/", headers={"A": "b${KEY}"}),
    ):
        with pytest.raises(GatewayError, match=r"TL115.*Codex"):
            added(CODEX, server, name="config.toml")


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("VS Code", "${KEY:-default}"),
        ("VS Code", "$${KEY}"),
        ("Claude Code", "$${KEY}"),
        ("OpenCode", "${KEY:-default}"),
        ("OpenCode", "{env:KEY}"),
        ("OpenCode", "{file:/etc/hostname}"),
        ("Gemini", "echo $HOME"),
    ],
)
def test_what_the_client_would_read_differently_is_not_written(client: str, text: str) -> None:
    name, before, _ = FILES[client]
    for server in (
        NewServer(name="new", command=("sh", "-c", text)),
        NewServer(name="new", command=("sh",), env={"A": text}),
        NewServer(name="new", url="https://x.example/mcp", headers={"X-A": text}),
    ):
        with pytest.raises(GatewayError) as refused:
            add_server(config(before, name, ENVIRON), server)
        assert "reads `$` or braces in it differently" in refused.value.problem.message


def test_the_clients_own_references_may_be_written() -> None:
    server = NewServer(name="new", command=("node", "${workspaceFolder}/x.js"), env={"A": "${KEY}-$"})
    for client in ("Claude Code", "Cursor", "VS Code"):
        name, before, path = FILES[client]
        edited = add_server(config(before, name, ENVIRON), server)
        assert entry(edited.text, path, "new")["args"] == ["${workspaceFolder}/x.js"]


def test_a_table_goes_with_the_tables_inside_it() -> None:
    gone = CODEX[CODEX.index("[mcp_servers.a]") : CODEX.index("# about b")]
    assert removed(CODEX, "a", name="config.toml") == CODEX.replace(gone, "")
    gone = '[mcp_servers."b"]\nurl = "https://b.example/mcp"\n\n'
    assert removed(CODEX, "b", name="config.toml") == CODEX.replace(gone, "")


def test_a_replaced_table_stays_where_it_is() -> None:
    text = added(CODEX, NewServer(name="a", url="http://x/mcp"), name="config.toml", force=True)
    assert text == CODEX.replace(
        CODEX[CODEX.index("[mcp_servers.a]") : CODEX.index("# about b")],
        '[mcp_servers.a]\nurl = "http://x/mcp"\n\n',
    )


@pytest.mark.parametrize(
    "text", ["", 'model = "x"', 'model = "x"\n', "# nothing\n\n", '[mcp_servers.z]\ncommand = "cat"\r\n']
)
def test_a_table_can_be_taken_back(text: str) -> None:
    after = added(text, SERVER, name="config.toml")
    back = removed(after, "new", name="config.toml")
    assert tomllib.loads(back).get("mcp_servers", {}) == tomllib.loads(text).get("mcp_servers", {})
    assert back.strip() == text.strip()


def test_a_line_of_a_text_is_no_header() -> None:
    text = '[tui]\nnote = """\n[mcp_servers.a]\n"""\n\n[mcp_servers.b]\ncommand = "cat"\n'
    after = added(text, NewServer(name="a", command=("tac",)), name="config.toml")
    assert after == text + '\n[mcp_servers.a]\ncommand = "tac"\n'
    assert removed(after, "a", name="config.toml") == text + "\n"


def test_servers_without_a_header_of_their_own_are_left_alone() -> None:
    text = '[mcp_servers]\na = { command = "cat" }\n'
    with pytest.raises(GatewayError, match="TL115"):
        removed(text, "a", name="config.toml")
    for force in (False, True):
        with pytest.raises(GatewayError, match="TL115"):
            added(text, NewServer(name="a", command=("tac",)), name="config.toml", force=force)
    assert added(text, SERVER, name="config.toml").startswith(text)
