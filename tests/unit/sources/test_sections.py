"""The sections of the MCP kinds."""

from __future__ import annotations

from pathlib import Path

from tests.support.config_files import codes, load_text, settings_of

from trunkline.runtime.supervisor_client import Limits
from trunkline.sources.sections import McpHttpSection, McpStdioSection, limits_of


def stdio(text: str) -> str:
    return f"sources: {{a: {{kind: mcp_stdio, {text}}}}}"


def http(text: str) -> str:
    return f"sources: {{a: {{kind: mcp_http, {text}}}}}"


def test_a_command_with_a_slash_is_a_path_from_the_files_folder(tmp_path: Path) -> None:
    for command, resolved in (
        ("npx", "npx"),
        ("./server", str(tmp_path / "server")),
        ("bin/my server", str(tmp_path / "bin/my server")),
        ("~/bin/server", "/home/me/bin/server"),
        ("/usr/bin/env", "/usr/bin/env"),
    ):
        loaded = load_text(stdio(f"command: {command}"), folder=tmp_path)
        section = settings_of(loaded).sources["a"]
        assert isinstance(section, McpStdioSection)
        assert section.command == resolved


def test_a_command_is_one_program() -> None:
    for command in ("npx -y server", "node ./server.js", "' '", "''", '"a\\0b"'):
        assert codes(load_text(stdio(f"command: {command}"))) == ["TL104"], command


def test_arguments_and_variables_are_taken_as_written(tmp_path: Path) -> None:
    text = stdio("command: x, args: [-p, 8080, true, 1.50, ''], env: {A: 1, B: false, C: ''}, cwd: sub")
    section = settings_of(load_text(text, folder=tmp_path)).sources["a"]
    assert isinstance(section, McpStdioSection)
    assert section.args == ("-p", "8080", "true", "1.50", "")
    assert section.env == {"A": "1", "B": "false", "C": ""}
    assert section.cwd == tmp_path / "sub"


def test_inherited_variables_are_named_or_all() -> None:
    for written, read in (("[A, B]", ("A", "B")), ("all", "all"), ("[]", ())):
        section = settings_of(load_text(stdio(f"command: x, inherit_env: {written}"))).sources["a"]
        assert isinstance(section, McpStdioSection)
        assert section.inherit_env == read
    assert codes(load_text(stdio("command: x, inherit_env: some"))) == ["TL104"]
    assert codes(load_text(stdio("command: x, inherit_env: true"))) == ["TL103"]


def test_limits_are_whole_numbers_and_none_unless_they_are_given() -> None:
    for written, limits in (
        ("{}", None),
        ("{memory_mb: 512}", Limits(memory_bytes=512 << 20)),
        ("{memory_mb: 512, processes: 20}", Limits(memory_bytes=512 << 20, processes=20)),
    ):
        section = settings_of(load_text(stdio(f"command: x, limits: {written}"))).sources["a"]
        assert isinstance(section, McpStdioSection)
        assert limits_of(section.limits) == limits
    assert codes(load_text(stdio("command: x, limits: {memory_mb: 0}"))) == ["TL104"]
    assert codes(load_text(stdio("command: x, limits: {processes: 1.5}"))) == ["TL103"]
    assert codes(load_text(stdio("command: x, limits: {memory: 5}"))) == ["TL102"]


def test_wrong_values_of_a_command_are_refused() -> None:
    for text in ("args: x", "args: [[x]]", "args: [~]", "env: {A: }", "env: {A: [x]}", "cwd: 5"):
        assert codes(load_text(stdio(f"command: x, {text}"))) == ["TL103"], text
    assert codes(load_text(stdio("command: x, env: {'A=B': x}"))) == ["TL104"]
    assert codes(load_text(stdio("command: x, env: {'': x}"))) == ["TL104"]


def test_urls() -> None:
    for url in ("http://x", "https://example.com:8443/mcp?a=b", "http://[::1]:80/", "HTTP://127.0.0.1"):
        section = settings_of(load_text(http(f"url: '{url}'"))).sources["a"]
        assert isinstance(section, McpHttpSection)
        assert section.url == url
    for url in (
        "ftp://x",
        "x",
        "/mcp",
        "http://",
        "http:///mcp",
        "http://me@x/",
        "http://x:0/",
        "http://x:99999/",
        "http://x y/",
        "http://x/a b",
        "http://x/#a",
        "http://x\\y",
        "http://é.example/",
        "",
    ):
        assert "TL104" in codes(load_text(http(f"url: '{url}'"))), url


def test_headers_cannot_break_the_request() -> None:
    for header in (
        "'A B': x",
        "'': x",
        "Host: x",
        "Content-Length: 5",
        'A: "x\\r\\nB: y"',
        'A: "x\\n"',
        "A: 日",
        '"A\\n": x',
    ):
        assert codes(load_text(http(f"url: 'http://x', headers: {{{header}}}"))) == ["TL104"], header
    section = settings_of(load_text(http("url: 'http://x', headers: {X-N: 5, X-T: true}"))).sources["a"]
    assert isinstance(section, McpHttpSection)
    assert section.headers == {"X-N": "5", "X-T": "true"}


def test_transports() -> None:
    for transport in ("auto", "streamable", "sse"):
        assert codes(load_text(http(f"url: 'http://x', transport: {transport}"))) == []
    assert codes(load_text(http("url: 'http://x', transport: stdio"))) == ["TL104"]
