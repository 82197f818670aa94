"""Finding Trunkline among a client's servers."""

from __future__ import annotations

from tests.support.config_files import node_of, reader_for

from trunkline.config.own_entry import is_own_entry
from trunkline.config.tree import Table
from trunkline.core.bind_address import BindAddress

USUAL = BindAddress("127.0.0.1", 4747)


def is_own(text: str, listen: BindAddress = USUAL) -> bool:
    node = node_of(f"{{{text}}}")
    assert isinstance(node, Table)
    return is_own_entry(node, reader_for({"BIN": "/opt/bin"}), listen)


def test_commands_that_start_this_program() -> None:
    for text in (
        "command: trunkline, args: [stdio]",
        "command: /usr/local/bin/trunkline",
        "command: '${BIN}/trunkline'",
        "command: trunkline.exe",
        "command: python3.12, args: [-X, dev, -m, trunkline, stdio]",
        "command: uvx, args: [trunkline, stdio]",
        "command: uv, args: [run, trunkline]",
        "command: uvx, args: ['trunkline@latest', stdio]",
        "command: uvx, args: [--from, 'trunkline==1.2', trunkline, stdio]",
        "command: pipx, args: [run, 'trunkline[x]', stdio]",
        "command: docker, args: [run, -i, --rm, 'ghcr.io/someone/trunkline:latest', stdio]",
        "command: /usr/bin/env, args: [A=1, trunkline, stdio]",
        "command: bash, args: [-lc, 'exec trunkline stdio']",
        "command: cmd, args: [/c, 'trunkline.exe']",
        "command: [trunkline, stdio]",
        "command: [uvx, trunkline, stdio]",
    ):
        assert is_own(text), text


def test_urls_that_reach_this_program() -> None:
    for text in (
        "url: 'http://127.0.0.1:4747/mcp'",
        "httpUrl: 'http://localhost:4747'",
        "serverUrl: 'http://[::1]:4747/'",
        "command: npx, args: [-y, 'mcp-remote@latest', 'http://localhost:4747/mcp']",
        "command: mcp-proxy, args: ['http://127.0.0.1:4747/sse']",
        "command: [npx, -y, mcp-remote, 'http://127.0.0.1:4747/mcp']",
    ):
        assert is_own(text), text
    assert is_own("url: 'http://localhost/mcp'", BindAddress("0.0.0.0", 80))


def test_other_servers_are_left_alone() -> None:
    for text in (
        "command: npx, args: [trunkline]",
        "command: python, args: [trunkline, -m]",
        "command: trunkline-tools",
        "url: 'http://127.0.0.1:4748/mcp'",
        "url: 'http://example.com:4747/mcp'",
        "url: nonsense",
        "command: uvx, args: [--with, trunkline, other-server]",
        "command: uvx, args: [trunkline-tools]",
        "command: npx, args: [mcp-remote, 'https://example.com/mcp']",
        "command: some-agent, args: ['http://127.0.0.1:4747/mcp']",
        "command: docker, args: [run, -e, TRUNKLINE_TOKEN, 'someone/other:trunkline']",
        "command: bash, args: [-c, 'echo trunkline']",
        "command: env, args: [A=trunkline]",
        "command: []",
        "",
    ):
        assert not is_own(text), text
