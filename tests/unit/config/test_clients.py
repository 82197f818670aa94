"""`mcpServers` as clients write it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.config_files import codes, found, load_json, load_text, settings_of

from trunkline.sources.sections import McpHttpSection, McpStdioSection


def entry(text: str) -> str:
    return f"mcpServers: {{a: {{{text}}}}}"


def test_a_clients_own_file_loads_as_it_is(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "server", 5], "env": {"DEBUG": True, "N": 1}, "cwd": "work"},
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Tenant": "a"}, "timeout": 30000},
        "old": {"type": "sse", "url": "https://example.com/sse", "disabled": True},
    }
    loaded = load_json(json.dumps({"mcpServers": servers}, indent="\t"), folder=tmp_path)
    assert codes(loaded) == []
    sources = settings_of(loaded).sources
    assert sources["files"] == McpStdioSection(
        prefix="files",
        command="npx",
        args=("-y", "server", "5"),
        env={"DEBUG": "true", "N": "1"},
        cwd=tmp_path / "work",
    )
    assert sources["web"] == McpHttpSection(
        prefix="web", url="https://example.com/mcp", headers={"X-Tenant": "a"}, timeout=30.0
    )
    assert sources["old"] == McpHttpSection(prefix="old", url="https://example.com/sse", transport="sse", enabled=False)


def test_the_spellings_of_other_clients() -> None:
    for text, transport in (
        ("httpUrl: 'http://x'", "auto"),
        ("serverUrl: 'http://x'", "auto"),
        ("url: 'http://x', type: streamable-http", "streamable"),
        ("url: 'http://x', type: streamableHttp", "streamable"),
        ("url: 'http://x', transport: sse", "sse"),
        ("url: 'http://x', transportType: http", "auto"),
    ):
        loaded = load_text(entry(text))
        assert codes(loaded) == []
        assert settings_of(loaded).sources["a"] == McpHttpSection(prefix="a", url="http://x", transport=transport)


def test_a_clients_choice_of_tools_is_kept() -> None:
    loaded = load_text(entry("command: x, includeTools: [a, b], excludeTools: [b]"))
    assert codes(loaded) == []
    tools = settings_of(loaded).sources["a"].tools
    assert (tools.allow, tools.deny) == (("a", "b"), ("b",))
    assert settings_of(load_text(entry("command: x, tools: ['*']"))).sources["a"].tools.allow == ("*",)


def test_servers_can_be_switched_off_in_both_ways() -> None:
    for text, enabled in (("disabled: true", False), ("enabled: false", False), ("disabled: false", True)):
        assert settings_of(load_text(entry(f"command: x, {text}"))).sources["a"].enabled is enabled


def test_a_server_that_is_switched_off_does_not_need_its_variables() -> None:
    loaded = load_text(entry("command: x, disabled: true, env: {A: '${NOWHERE}'}"))
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL110", "warning")]
    assert loaded.settings is not None


def test_what_only_clients_know_is_a_warning() -> None:
    loaded = load_text(entry("command: x, autoApprove: [a], alwaysAllow: [], trust: true, icon: z, initTimeout: 5"))
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL120", "warning")] * 5
    assert loaded.settings is not None


def test_a_typo_is_an_error() -> None:
    for typo, meant in (("comand", "command"), ("evn", "env"), ("arg", "args"), ("Timeout", "timeout")):
        problem = next(p for p in load_text(entry(f"command: x, {typo}: y")).problems if p.code.id == "TL102")
        assert problem.hint == f"did you mean `{meant}`?"


def test_our_own_keys_belong_under_sources() -> None:
    (problem,) = load_text(entry("command: x, prefix: z")).problems
    assert problem.code.id == "TL102"
    assert "`sources`" in problem.hint


def test_a_timeout_that_looks_like_seconds_is_warned_about() -> None:
    loaded = load_text(entry("command: x, timeout: 60"))
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL104", "warning")]
    assert settings_of(loaded).sources["a"].timeout == 0.06
    assert loaded.problems[0].hint == "write 60000 for 60 seconds"


def test_keys_that_exclude_each_other() -> None:
    assert found(load_text("mcpServers:\n  a: {command: x, url: 'http://x'}\n")) == [("TL113", 2, 19)]
    assert codes(load_text(entry("url: 'http://x', httpUrl: 'http://y'"))) == ["TL113"]
    assert codes(load_text(entry("command: x, type: http"))) == ["TL113"]
    assert codes(load_text(entry("url: 'http://x', type: stdio"))) == ["TL113"]


def test_a_server_without_command_and_url_is_refused() -> None:
    assert found(load_text("mcpServers:\n  a: {args: [x]}\n")) == [("TL105", 2, 3)]


def test_keys_of_the_other_sort_are_ignored_with_a_warning() -> None:
    assert codes(load_text(entry("url: 'http://x', env: {}"))) == ["TL120"]
    assert codes(load_text(entry("command: x, headers: {}"))) == ["TL120"]


def test_our_own_entry_is_skipped() -> None:
    loaded = load_text(
        "mcpServers:\n  gw: {command: trunkline, args: [stdio], env: {A: '${NOWHERE}'}}\n  b: {command: x}\n"
    )
    assert found(loaded) == [("TL122", 2, 3)]
    assert list(settings_of(loaded).sources) == ["b"]
    loaded = load_text("gateway: {listen: '127.0.0.1:99'}\nmcpServers: {gw: {url: 'http://localhost:99/mcp'}}")
    assert codes(loaded) == ["TL122"]


def test_a_skipped_entry_leaves_its_name_free() -> None:
    text = "mcpServers: {gw: {command: trunkline}}\nsources: {gw: {kind: mcp_stdio, command: x}}"
    assert codes(load_text(text)) == ["TL122"]


def test_names_are_made_to_fit_and_stay_apart() -> None:
    text = """
mcpServers:
  "a b": {command: x}
  "a.b": {command: x}
  "日本": {command: x}
  trunkline: {command: x}
sources:
  a_b: {kind: mcp_stdio, command: x}
"""
    loaded = load_text(text)
    assert codes(loaded) == ["TL123"] * 4
    assert list(settings_of(loaded).sources) == ["a_b_2", "a_b_3", "server", "trunkline_2", "a_b"]
    assert settings_of(loaded).sources["a_b_2"].prefix == "a_b_2"


def test_every_problem_of_an_entry_is_reported() -> None:
    loaded = load_text(entry("command: 5, args: x, disabled: 1, timeout: x, type: tcp"))
    assert codes(loaded) == ["TL103", "TL103", "TL103", "TL103", "TL104"]


def test_entries_of_the_wrong_shape_are_refused() -> None:
    assert codes(load_text("mcpServers: []")) == ["TL103"]
    assert codes(load_text("mcpServers: {a: npx}")) == ["TL103"]
    assert codes(load_text("mcpServers:")) == []


def test_a_key_of_ours_that_only_programs_have_is_not_taken_for_a_clients() -> None:
    for key in ("limits: {memory_mb: 5}", "inherit_env: all", "kind: mcp_stdio"):
        assert codes(load_text(entry(f"command: x, {key}"))) == ["TL102"], key
