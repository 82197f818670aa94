"""Whole files as clients write them, loaded to exactly the sources they describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.client_files import SAMPLES, load_named, load_sample, shown
from tests.support.config_files import KINDS, codes, settings_of, unready

from trunkline.config.dialects.formats import project_of
from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.config.sources import ToolSelection, UnreadySource
from trunkline.sources.sections import McpHttpSection, McpStdioSection


def test_claude_codes_project_file_with_eight_servers() -> None:
    loaded = load_sample(
        "claude_code/.mcp.json", GITHUB_TOKEN="gh", WIKI_URL="https://wiki.example.com", CACHE_DIR="/c"
    )
    project = SAMPLES / "claude_code"
    assert dict(settings_of(loaded).sources) == {
        "filesystem": McpStdioSection(
            prefix="filesystem",
            command="npx",
            args=("-y", "@modelcontextprotocol/server-filesystem", "."),
            cwd=project,
        ),
        "github": McpHttpSection(
            prefix="github", url="https://api.githubcopilot.com/mcp/", headers={"Authorization": "Bearer gh"}
        ),
        "postgres": McpStdioSection(
            prefix="postgres",
            command="uvx",
            args=("postgres-mcp", "--access-mode=restricted"),
            env={"DATABASE_URI": "postgresql://localhost:5432/shop"},
            timeout=120.0,
            cwd=project,
        ),
        "playwright": McpStdioSection(
            prefix="playwright", command="npx", args=("@playwright/mcp@latest", "--headless"), cwd=project
        ),
        "sentry": McpHttpSection(prefix="sentry", url="https://mcp.sentry.dev/mcp"),
        "linear": McpHttpSection(prefix="linear", url="https://mcp.linear.app/sse", transport="sse"),
        "project-tools": McpStdioSection(
            prefix="project-tools",
            command=str(project / "tools/server.py"),
            args=("--verbose",),
            env={"CACHE_DIR": "/c", "PYTHONUNBUFFERED": "1"},
            cwd=project,
        ),
        "Company_Wiki": McpHttpSection(
            prefix="Company_Wiki", url="https://wiki.example.com/mcp", transport="streamable"
        ),
    }
    assert shown(loaded) == [
        "32:7 warning TL120: `oauth` is for the client and is ignored here",
        "48:7 warning TL120: `alwaysLoad` is for the client and is ignored here",
        "50:5 warning TL122: `trunkline` is Trunkline itself and is skipped",
        "54:5 warning TL123: `Company Wiki` cannot be the name of a source; it is called `Company_Wiki` here",
    ]


def test_claude_desktop() -> None:
    loaded = load_sample("claude_desktop/claude_desktop_config.json")
    assert dict(settings_of(loaded).sources) == {
        "filesystem": McpStdioSection(
            prefix="filesystem",
            command="npx",
            args=("-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop", "/Users/me/Downloads"),
        ),
        "brave-search": McpStdioSection(
            prefix="brave-search",
            command="docker",
            args=("run", "-i", "--rm", "-e", "BRAVE_API_KEY", "mcp/brave-search"),
            env={"BRAVE_API_KEY": "BSA-not-a-real-key"},
        ),
        "notes": McpStdioSection(
            prefix="notes",
            command="/Users/me/.local/bin/uv",
            args=("--directory", "/Users/me/notes-server", "run", "server.py"),
        ),
    }
    assert codes(loaded) == ["TL121", "TL122"]
    assert "BSA-not-a-real-key" not in f"{loaded.problems}{loaded.text}"


def test_claude_codes_file_of_the_user() -> None:
    loaded = load_sample("claude_home/.claude.json")
    assert dict(settings_of(loaded).sources) == {
        "context7": McpStdioSection(prefix="context7", command="npx", args=("-y", "@upstash/context7-mcp")),
        "notion": McpHttpSection(prefix="notion", url="https://mcp.notion.com/mcp"),
    }
    assert shown(loaded) == ["18:3 warning TL120: Servers that belong only to one project are not read"]


def test_cursor() -> None:
    loaded = load_sample("cursor/.cursor/mcp.json", SHOP_TOKEN="s", TEAM="blue", ISSUES_TOKEN="i")
    project = SAMPLES / "cursor"
    assert dict(settings_of(loaded).sources) == {
        "shop-db": McpStdioSection(
            prefix="shop-db",
            command="python",
            args=(f"{project}/tools/db_server.py", "--name", "cursor"),
            env={
                "DB_HOST": "localhost",
                "DB_PASSWORD": "not a real password",
                "EMPTY": "",
                "LOG_LEVEL": "debug",
                "API_TOKEN": "s",
            },
            cwd=project,
        ),
        "figma": McpHttpSection(prefix="figma", url="http://127.0.0.1:3845/mcp"),
        "issues": McpHttpSection(
            prefix="issues",
            url="https://mcp.example.com/blue/mcp",
            headers={"Authorization": "Bearer i", "X-Home": "/home/me"},
        ),
    }
    assert codes(loaded) == ["TL120"]


def test_windsurf() -> None:
    loaded = load_sample("windsurf/mcp_config.json", GITHUB_TOKEN="gh", SEARCH_TOKEN="s")
    assert dict(settings_of(loaded).sources) == {
        "github": McpStdioSection(
            prefix="github",
            command="docker",
            args=("run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"),
            env={"GITHUB_PERSONAL_ACCESS_TOKEN": "gh"},
            tools=ToolSelection(deny=("delete_file", "fork_repository")),
        ),
        "search": McpHttpSection(
            prefix="search", url="https://search.example.com/mcp", headers={"API_KEY": "Bearer s"}
        ),
        "figma": McpHttpSection(prefix="figma", url="https://figma.example.com/sse", enabled=False),
    }
    assert codes(loaded) == []


def test_vs_code() -> None:
    loaded = load_sample("vscode/.vscode/mcp.json", INPUT_PERPLEXITY_KEY="pk", GITHUB_TOKEN="gh")
    project = SAMPLES / "vscode"
    assert dict(settings_of(loaded).sources) == {
        "playwright": McpStdioSection(
            prefix="playwright", command="npx", args=("-y", "@microsoft/mcp-server-playwright"), cwd=project
        ),
        "perplexity": McpStdioSection(
            prefix="perplexity",
            command="npx",
            args=("-y", "server-perplexity-ask", "--region", "eu"),
            env={"PERPLEXITY_API_KEY": "pk", "RETRIES": "3"},
            cwd=project,
        ),
        "project": McpStdioSection(
            prefix="project",
            command=str(project / "src/node_modules/.bin/project-mcp"),
            args=("--root", f"{project}/src", "--log", f"{project}/log"),
            env={"PROJECT_TOKEN": "not-a-real-token"},
            cwd=project / "src",
        ),
        "github": McpHttpSection(
            prefix="github", url="https://api.githubcopilot.com/mcp/", headers={"Authorization": "Bearer gh"}
        ),
        "legacy": McpHttpSection(prefix="legacy", url="http://localhost:3001/sse", transport="sse"),
    }
    assert shown(loaded) == ["41:7 warning TL120: `dev` is for the client and is ignored here"]


def test_the_settings_of_vs_code() -> None:
    loaded = load_sample("vscode_settings/settings.json")
    assert dict(settings_of(loaded).sources) == {
        "time": McpStdioSection(
            prefix="time", command="python", args=("-m", "mcp_server_time", "--local-timezone=Europe/Berlin")
        )
    }
    assert codes(loaded) == []


def test_codex() -> None:
    loaded = load_sample("codex/config.toml", FIGMA_OAUTH_TOKEN="fig", FIGMA_TEAM="blue")
    assert dict(settings_of(loaded).sources) == {
        "context7": McpStdioSection(
            prefix="context7",
            command="npx",
            args=("-y", "@upstash/context7-mcp"),
            inherit_env=("HTTPS_PROXY", "CONTEXT7_API_KEY"),
            start_timeout=20.5,
        ),
        "docs": McpStdioSection(
            prefix="docs",
            command="docs-mcp",
            cwd=Path("/home/me/docs"),
            start_timeout=15.0,
            timeout=90.0,
            tools=ToolSelection(allow=("search", "fetch"), deny=("fetch",)),
            env={"DOCS_ROOT": "/home/me/docs", "PATTERN": r"^\d+ ${literal}$", "LONG": "two\nlines"},
        ),
        "figma": McpHttpSection(
            prefix="figma",
            url="https://mcp.figma.com/mcp",
            headers={"X-Figma-Region": "us-east-1", "Authorization": "Bearer fig", "X-Team": "blue"},
        ),
        "old_server": McpStdioSection(
            prefix="old_server", command="old-mcp", args=("--flag", r"C:\no escapes"), enabled=False
        ),
    }
    assert shown(loaded) == [
        "27:1 warning TL120: `required` is for the client and is ignored here",
        "28:1 warning TL120: `default_tools_approval_mode` is for the client and is ignored here",
        "37:19 warning TL120: `tools` is for the client and is ignored here",
        "46:14 warning TL123: `old server` cannot be the name of a source; it is called `old_server` here",
        "54:14 warning TL122: `trunkline` is Trunkline itself and is skipped",
    ]


def test_gemini() -> None:
    variables = {"DB_CONNECTION_STRING": "db", "EXTERNAL_API_KEY": "key", "PWD": "/here", "REMOTE_TOKEN": "r"}
    loaded = load_sample("gemini/.gemini/settings.json", **variables)
    project = SAMPLES / "gemini"
    assert dict(settings_of(loaded).sources) == {
        "pythonTools": McpStdioSection(
            prefix="pythonTools",
            command="python",
            args=("-m", "my_mcp_server", "--port", "8080", "--price", "$5"),
            cwd=project / "mcp-servers/python",
            env={"DATABASE_URL": "db", "API_KEY": "key"},
            timeout=15.0,
        ),
        "dockerized": McpStdioSection(
            prefix="dockerized",
            command="docker",
            args=("run", "-i", "--rm", "-v", "/here:/workspace", "my-mcp-server:latest"),
            tools=ToolSelection(allow=("safe_tool", "file_reader"), deny=("file_reader",)),
            cwd=project,
        ),
        "remote": McpHttpSection(
            prefix="remote",
            url="https://tools.example.com/mcp",
            headers={"Authorization": "Bearer r"},
            timeout=5.0,
        ),
        "events": McpHttpSection(prefix="events", url="https://tools.example.com/sse", transport="sse"),
        "experimental": UnreadySource(
            prefix="experimental",
            enabled=False,
            of_kind="mcp_stdio",
            obstacles=("Environment variable `NOT_SET_ANYWHERE` is not set",),
        ),
    }
    assert codes(loaded) == ["TL120", "TL110"]


def test_opencode() -> None:
    loaded = load_sample("opencode/opencode.jsonc", EVERYTHING_KEY="e", CONTEXT7_API_KEY="c")
    assert dict(settings_of(loaded).sources) == {
        "everything": McpStdioSection(
            prefix="everything",
            command="npx",
            args=("-y", "@modelcontextprotocol/server-everything"),
            env={"MY_ENV_VAR": "my_env_var_value", "API_KEY": "e", "TEMPLATE": "${not a reference}"},
            timeout=10.0,
            cwd=SAMPLES / "opencode",
        ),
        "tracker": McpHttpSection(
            prefix="tracker",
            url="https://tracker.example.com/mcp",
            headers={"Authorization": "Bearer not-a-real-token"},
        ),
        "context7": McpHttpSection(
            prefix="context7",
            url="https://mcp.context7.com/mcp",
            headers={"CONTEXT7_API_KEY": "c"},
            enabled=False,
        ),
    }
    assert shown(loaded) == [
        "25:7 warning TL120: `oauth` is for the client and is ignored here",
        "33:5 warning TL120: `jira` is defined in another file and is not read",
        "34:5 warning TL122: `gateway` is Trunkline itself and is skipped",
    ]


def test_the_second_version_of_opencode() -> None:
    loaded = load_sample("opencode_v2/opencode.json")
    project = SAMPLES / "opencode_v2"
    assert dict(settings_of(loaded).sources) == {
        "everything": McpStdioSection(
            prefix="everything",
            command="npx",
            args=("-y", "@modelcontextprotocol/server-everything"),
            env={"LOG_LEVEL": "info"},
            cwd=project / "tools",
            start_timeout=30.0,
            timeout=20.0,
        ),
        "tracker": McpHttpSection(prefix="tracker", url="https://tracker.example.com/mcp", timeout=5.0, enabled=False),
    }
    assert codes(loaded) == []


def test_a_project_is_where_its_file_says(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for path, project in (
        ("home/shop/.mcp.json", "home/shop"),
        ("home/shop/.vscode/mcp.json", "home/shop"),
        ("home/shop/.cursor/mcp.json", "home/shop"),
        ("home/shop/.gemini/settings.json", "home/shop"),
        ("home/shop/.codex/config.toml", "home/shop"),
        ("home/shop/opencode.json", "home/shop"),
        ("home/.cursor/mcp.json", None),
        ("home/.codex/config.toml", None),
        ("home/.claude.json", None),
        ("home/.config/opencode/opencode.json", None),
        ("home/.config/Code/User/mcp.json", None),
        ("home/Claude/claude_desktop_config.json", None),
    ):
        assert project_of(tmp_path / path, home) == (tmp_path / project if project else None), path


def test_other_keys_at_the_top_are_the_clients_business() -> None:
    text = '{"mcpServers": {}, "gatewayy": 1, "sources": [], "gateway": 5, "whatever": {"a": [1]}}'
    assert codes(load_named(".mcp.json", text)) == []
    assert codes(load_named("claude_desktop_config.json", text)) == []


def test_settings_of_ours_that_nobody_reads_in_a_clients_file_are_worth_a_word() -> None:
    text = '{"gateway": {"token": "${X:-t}"}, "sources": [], "mcpServers": {"a": {"command": "b"}}}'
    loaded = load_named(".mcp.json", text)
    assert shown(loaded) == ["1:2 warning TL102: `gateway` has no effect in a client's file"]
    assert list(settings_of(loaded).sources) == ["a"]
    toml = load_named("trunkline.toml", '[gateway]\nlisten = "127.0.0.1:1"\n[mcp_servers.a]\ncommand = "b"\n')
    assert shown(toml) == [
        "1:2 error TL102: `gateway` has no effect in a client's file, and TOML files are read as Codex's"
    ]


def test_a_file_of_no_known_name_may_be_ours_too() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}}, "inputs": []}'
    assert codes(load_named("servers.json", text)) == []
    assert shown(load_named("servers.json", '{"mcpServers": {}, "gatway": {}}')) == [
        "1:20 error TL102: Unknown key `gatway`"
    ]
    assert codes(
        load_named("servers.json", '{"mcpServers": {}, "gateway": {"listen": "127.0.0.1:1"}, "inputs": []}')
    ) == ["TL102"]
    assert codes(load_named("trunkline.json", text)) == ["TL102"]


def test_a_file_without_servers_is_worth_a_word() -> None:
    for name, text, group in (
        (".mcp.json", '{"github": {"command": "x"}}', "mcpServers"),
        ("config.toml", 'model = "x"', "mcp_servers"),
        ("settings.json", "{}", "mcpServers"),
        ("opencode.json", "{}", "mcp"),
        (".claude.json", '{"projects": {}}', "mcpServers"),
    ):
        loaded = load_named(name, text)
        assert shown(loaded) == ["1:1 warning TL105: The file has no MCP servers"]
        assert loaded.problems[0].hint == f"they belong under `{group}`"
        assert settings_of(loaded).sources == {}


def test_a_file_of_the_wrong_shape_is_refused() -> None:
    for name in (".mcp.json", "mcp.json", "settings.json", "opencode.json", ".claude.json"):
        assert codes(load_named(name, "[]")) == ["TL103"]
        assert codes(load_named(name, "")) == ["TL105"]
    assert codes(load_named(".mcp.json", '{"mcpServers": []}')) == ["TL103"]
    assert codes(load_named(".claude.json", '{"mcpServers": 5, "projects": [1]}')) == ["TL103"]


def test_claude_codes_file_may_be_large(tmp_path: Path) -> None:
    history = '{"display": "\\u00e9\\"x", "pastedContents": {"1": [null, true, 1e3]}},' * 16_000
    text = f'{{"projects": {{"/p": {{"history": [{history[:-1]}]}}}},\n"mcpServers": {{"a": {{"comand": "x"}}}}}}'
    assert len(text) > 1_100_000
    path = tmp_path / ".claude.json"
    path.write_text(text)
    assert shown(load_config(ConfigFile.named(path), environ={}, kinds=KINDS)) == [
        "2:16 error TL105: Missing key `command` or `url`",
        "2:22 error TL102: Unknown key `comand`",
    ]
    path.write_text(text[:-50])
    assert codes(load_config(ConfigFile.named(path), environ={}, kinds=KINDS)) == ["TL101"]


@pytest.mark.law
def test_what_is_passed_over_is_not_shown_either() -> None:
    loaded = load_named(".claude.json", '{"a": {"token": "hunter2"}, "mcpServers": {"b": {}}, "c": ["hunter3"]}')
    assert codes(loaded) == ["TL105"]
    assert "hunter" not in loaded.text
    assert '"mcpServers": {"b": {}}' in loaded.text


def test_deep_nesting_in_what_is_passed_over_is_refused_with_its_place() -> None:
    text = '{"mcpServers": {}, "state": ' + "[" * 100_000
    assert codes(load_named(".claude.json", text)) == ["TL109"]


_LACKING = {
    ".mcp.json": ("mcpServers", ("${NOWHERE}", "${env:NOWHERE}", "${file:/none}")),
    ".vscode/mcp.json": ("servers", ("${env:NOWHERE}", "${input:nowhere}", "${command:pick}", "${file:/none}")),
    ".gemini/settings.json": ("mcpServers", ("$NOWHERE", "${NOWHERE}")),
    "opencode.json": ("mcp", ("{env:NOWHERE}", "{file:/none}")),
    "trunkline.json": ("mcpServers", ("${NOWHERE}",)),
}


@pytest.mark.parametrize("name", _LACKING)
def test_no_server_that_lacks_something_keeps_the_others_out_or_vanishes(name: str) -> None:
    group, references = _LACKING[name]
    of_opencode = name == "opencode.json"
    good = {"command": ["x"]} if of_opencode else {"command": "x"}
    env = "environment" if of_opencode else "env"
    for reference in references:
        servers = {
            "command": {"command": [reference] if of_opencode else reference},
            "url": {"url": reference},
            "part": {"url": f"http://{reference}:80/"},
            "header": {"url": "http://x/", "headers": {"A": reference}},
            "variable": {**good, env: {"A": reference}},
            "folder": {**good, "cwd": reference},
            "type": {**good, "type": reference},
            "timeout": {**good, "timeout": reference},
            "enabled": {**good, "enabled": reference},
        }
        loaded = load_named(name, json.dumps({group: {**servers, "good": good}}))
        assert settings_of(loaded).sources.keys() == {*servers, "good"}, reference
        assert unready(loaded).keys() == servers.keys(), reference
        assert {problem.severity for problem in loaded.problems} == {"warning"}, reference
