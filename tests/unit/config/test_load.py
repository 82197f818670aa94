"""Finding and loading the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.config_files import KINDS, codes, found, load_json, load_text, settings_of
from tests.support.waiting import at_most

from trunkline.config.files import ConfigFile, find_config, plugins_at
from trunkline.config.load import load_config


def test_the_file_is_looked_up_in_order(tmp_path: Path) -> None:
    cwd, home = tmp_path / "cwd", tmp_path / "home"
    (home / ".config/trunkline").mkdir(parents=True)
    cwd.mkdir()
    assert find_config(None, cwd, home) is None
    expected = ConfigFile(home / ".config/trunkline/trunkline.yaml", "own")
    expected.path.write_text("")
    assert find_config(None, cwd, home) == expected
    for name in ("trunkline.json", "trunkline.yml", "trunkline.yaml"):
        (cwd / name).write_text("")
        assert find_config(None, cwd, home) == ConfigFile(cwd / name, "found")
    assert find_config(Path("asked-for.yaml"), cwd, home) == ConfigFile.named(Path("asked-for.yaml"))


def test_the_users_own_file_is_their_own_from_whichever_folder_it_is_reached(tmp_path: Path) -> None:
    own = tmp_path / ".config" / "trunkline"
    own.mkdir(parents=True)
    (own / "trunkline.yaml").write_text("")
    (tmp_path / "link").symlink_to(own)
    for cwd in (own, tmp_path / "link", tmp_path):
        file = find_config(None, cwd, tmp_path)
        assert file is not None
        assert (file.origin, plugins_at(file.path.absolute().parent, tmp_path).origin) == ("own", "own")


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, Path("a\0b")):
        loaded = load_config(ConfigFile.named(path), environ={}, kinds=KINDS)
        assert codes(loaded) == ["TL100"]
        assert loaded.settings is None


def test_a_file_that_is_too_large_is_refused() -> None:
    assert codes(load_text("#" * 1_048_577)) == ["TL108"]
    assert codes(load_text("#" * 1_048_576)) == []


def test_a_file_that_is_not_utf_8_is_refused_with_the_place() -> None:
    assert found(load_text(b"a: 1\nb: \xff\n")) == [("TL101", 2, 4)]
    assert codes(load_text("a: 1".encode("utf-16"))) == ["TL101"]


def test_a_byte_order_mark_is_no_problem() -> None:
    assert codes(load_text(b"\xef\xbb\xbfgateway: {}\n")) == []
    assert codes(load_json(b'\xef\xbb\xbf{"gateway": {}}')) == []


def test_an_empty_file_is_a_gateway_without_sources() -> None:
    for loaded in (load_text(""), load_json(""), load_text("gateway:\nsources:\nmcpServers:\n")):
        assert codes(loaded) == []
        assert settings_of(loaded).sources == {}


def test_a_schema_may_be_named_for_editors() -> None:
    assert codes(load_json('{"$schema": "./trunkline.schema.json"}')) == []


def test_unknown_keys_at_the_top_get_a_suggestion() -> None:
    for written, meant in (("mcpservers", "mcpServers"), ("mcp_servers", "mcpServers"), ("servers", "mcpServers")):
        (problem,) = load_text(f"{written}: {{}}").problems
        assert (problem.code.id, problem.hint) == ("TL102", f"did you mean `{meant}`?")


def test_something_else_than_keys_is_refused() -> None:
    for text in ("[]", "text", "5"):
        assert codes(load_text(text)) == ["TL103"]


def test_problems_of_all_parts_are_reported_together() -> None:
    text = "gateway: {max_name: 1}\nmcpServers: {a: {}}\nsources: {b: {}}\nmore: {}\n"
    assert codes(load_text(text)) == ["TL104", "TL105", "TL105", "TL102"]


def test_problems_come_in_the_order_of_the_file_and_quote_little_of_it() -> None:
    lines = ['{"mcpServers": {"a b": {"command": "x"}},', f'"{"x" * 10_000}": 1,', '"gateway": {"max_name": 1}}']
    loaded = load_json("\n".join(lines))
    assert [line for _, line, _ in found(loaded)] == [1, 2, 3]
    assert max(len(problem.message) for problem in loaded.problems) < 400


def test_a_warning_does_not_keep_the_settings_back() -> None:
    loaded = load_text("mcpServers: {'a b': {command: x}}")
    assert codes(loaded) == ["TL123"]
    assert loaded.settings is not None


def test_environment_references_work_in_text_everywhere_but_not_in_keys() -> None:
    text = "mcpServers: {a: {command: '${C}', args: ['${A:-x}', '$${A}'], env: {'${K}': '${C}'}}}"
    section = settings_of(load_text(text, environ={"C": "run"})).sources["a"]
    assert (section.command, section.args, section.env) == ("run", ("x", "${A}"), {"${K}": "run"})  # type: ignore[attr-defined]


def test_an_unset_variable_is_reported_with_its_place() -> None:
    assert found(load_text("mcpServers:\n  a:\n    command: ${NOPE}\n")) == [("TL110", 3, 14)]


def test_values_used_through_an_alias_are_reported_once() -> None:
    text = "mcpServers:\n  a: {command: x, env: &e {A: [1]}}\n  b: {command: x, env: *e}\n"
    assert found(load_text(text)) == [("TL103", 2, 31)]


@pytest.mark.law
def test_no_problem_shows_a_value_from_the_environment() -> None:
    text = """
gateway: {listen: "${S}", disclosure: "${S}", max_name: "${S}", log: {level: "${S}"}}
sources:
  a: {kind: "${S}"}
  b: {kind: mcp_http, url: "${S}", transport: "${S}", headers: {A: "${S}"}, sessions: "${S}", prefix: "${S}!"}
  c: {kind: mcp_stdio, command: "${S} x", cwd: "${S}", inherit_env: "${S}"}
"""
    loaded = load_text(text, environ={"S": "hunter2\n"})
    assert len(loaded.problems) >= 10
    assert "hunter2" not in str(loaded)


LOOK = """
import sys
from pathlib import Path
from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config
from trunkline.sources.sections import McpStdioSection
known = set()
for path in sys.argv[1:]:
    assert load_config(ConfigFile.named(Path(path)), environ={}, kinds={"mcp_stdio": lambda: McpStdioSection}).settings
    print(*set(sys.modules) - known)
    known |= set(sys.modules)
"""


def test_loading_imports_only_what_the_file_needs(tmp_path: Path) -> None:
    """Start-up is paid at every agent session. One process reads them in turn, and each shows what it brought along."""
    files = {
        "trunkline.json": "{}",
        ".mcp.json": '{"mcpServers": {"a": {"command": "x"}}}',
        "config.toml": "[mcp_servers]",
        "trunkline.yaml": "gateway: {}",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-c", LOOK, *(str(tmp_path / name) for name in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=at_most(60))
    loaded = dict(zip(files, map(str.split, done.stdout.splitlines()), strict=True))
    heavy = {"asyncio", "ssl", "socket", "difflib", "json", "pydantic", "msgspec", "yaml", "tomllib"}
    assert {name: heavy & set(modules) for name, modules in loaded.items()} == {
        "trunkline.json": set(),
        ".mcp.json": set(),
        "config.toml": {"tomllib"},
        "trunkline.yaml": {"yaml"},
    }
