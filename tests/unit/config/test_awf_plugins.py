"""`.awf/plugins.yaml` beside the configuration file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.trust import trust

from trunkline.config.files import ConfigFile
from trunkline.config.load import LoadedConfig, load_config
from trunkline.config.problems import render
from trunkline.config.sources import UnreadySource
from trunkline.core.errors import GatewayError
from trunkline.sources import section_kinds
from trunkline.sources.plugin import PluginSection


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".awf").mkdir()
    return tmp_path


def load(home: Path, plugins: str | None, ours: str = "", environ: Mapping[str, str] | None = None) -> LoadedConfig:
    (home / "trunkline.yaml").write_text(ours)
    given = {"HOME": str(home / "user"), **(environ or {})}
    if plugins is not None:
        (home / ".awf" / "plugins.yaml").write_text(plugins)
        with contextlib.suppress(GatewayError):  # what cannot be read cannot be trusted
            trust(home / ".awf" / "plugins.yaml", given)
    return load_config(ConfigFile.named(home / "trunkline.yaml"), environ=given, kinds=section_kinds())


def sources(loaded: LoadedConfig) -> Mapping[str, Any]:
    assert loaded.settings is not None, [str(problem) for problem in loaded.problems]
    return loaded.settings.sources


def problems(loaded: LoadedConfig) -> list[tuple[str, str, int]]:
    """Code, severity and line of each problem."""
    return [(p.code.id, p.severity, p.span.line if p.span else 0) for p in loaded.problems]


def test_plugins_in_a_group_become_sources(home: Path) -> None:
    loaded = load(
        home,
        """\
plugins:
  kubernetes: {command: ./awf-plugin-kubernetes, args: [-v, 1], config: {context: "${CONTEXT}", retries: 3}}
  plain: {command: on-the-path}
""",
        environ={"CONTEXT": "prod"},
    )
    found = sources(loaded)
    assert list(found) == ["kubernetes", "plain"]
    kubernetes = found["kubernetes"]
    assert isinstance(kubernetes, PluginSection)
    assert kubernetes.command == str(home / ".awf" / "awf-plugin-kubernetes")
    assert (kubernetes.args, kubernetes.prefix) == (("-v", "1"), "kubernetes")
    assert kubernetes.config == {"context": "prod", "retries": 3}
    assert found["plain"].command == "on-the-path"
    assert loaded.problems == ()


def test_programs_start_beside_their_file_wherever_its_user_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`server.py` was trusted there; another one of that name was not."""
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    found = sources(
        load(
            home,
            """\
plugins:
  grpc: {command: python3, args: [server.py]}
  mcp: {type: mcp, command: python3, args: [server.py]}
  said: {type: mcp, command: python3, cwd: ..}
  web: {type: mcp, url: "https://x.example/mcp"}
""",
        )
    )
    assert (found["grpc"].cwd, found["mcp"].cwd) == (home, home)
    assert found["said"].cwd == home / ".awf" / ".."


def test_plugins_in_a_list_become_sources(home: Path) -> None:
    found = sources(load(home, "plugins:\n- {name: one, path: /opt/one, config: {a: [1, {b: null}]}}\n"))
    assert found["one"].command == "/opt/one"
    assert found["one"].config == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("folder", "program"), [("echo", "awf-plugin-echo"), ("awf-plugin-echo", "awf-plugin-echo"), ("echo", "other")]
)
def test_a_folder_with_a_manifest_and_a_program_is_a_path(home: Path, folder: str, program: str) -> None:
    place = home / ".awf" / "plugins" / folder
    place.mkdir(parents=True)
    (place / "plugin.yaml").write_text("name: echo\nversion: 1.0.0\n")
    (place / program).write_text("")
    (place / program).chmod(0o755)
    found = sources(load(home, f"plugins: [{{name: echo, path: plugins/{folder}}}]"))
    assert found["echo"].command == str(place / program)


def test_a_folder_without_a_plugin_is_down_until_there_is_one_and_others_are_not(home: Path) -> None:
    (home / ".awf" / "empty").mkdir()
    loaded = load(home, "plugins:\n- {name: empty, path: empty}\n- {name: fine, path: /opt/fine}\n")
    found = sources(loaded)
    assert isinstance(found["empty"], UnreadySource)
    assert "plugin.yaml" in found["empty"].obstacles[0]
    assert isinstance(found["fine"], PluginSection)
    assert problems(loaded) == [("TL104", "warning", 2)]


def test_a_source_of_our_own_file_wins_with_a_note(home: Path) -> None:
    ours = "sources: {tool: {kind: plugin, command: ./ours}}"
    loaded = load(home, "plugins:\n  tool: {command: ./theirs}\n  more: {command: ./more}\n", ours)
    assert sources(loaded)["tool"].command == str(home / "ours")
    assert list(sources(loaded)) == ["tool", "more"]
    assert problems(loaded) == [("TL106", "warning", 2)]
    assert loaded.problems[0].file == str(home / ".awf" / "plugins.yaml")


def test_names_are_made_to_fit(home: Path) -> None:
    loaded = load(
        home, "plugins: {my plugin: {command: a}, trunkline: {command: b}}", "mcpServers: {my_plugin: {command: x}}"
    )
    assert list(sources(loaded)) == ["my_plugin", "my_plugin_2", "trunkline_2"]
    assert [problem.code.id for problem in loaded.problems] == ["TL123", "TL123"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plugins: 7\n", [("TL103", "error", 1)]),
        ("- 1\n", [("TL103", "error", 1)]),
        ("plugins:\n  a: 1\n", [("TL103", "error", 2)]),
        ("plugins:\n  a: {}\n", [("TL105", "error", 2)]),
        ("plugins:\n  a: {command: x, path: z}\n", [("TL113", "error", 2)]),
        ("plugins:\n  a:\n    comand: x\n", [("TL105", "error", 2), ("TL102", "error", 3)]),
        ("plugins:\n- {path: x}\n", [("TL105", "error", 2)]),
        ("plugins:\n- {name: a, path: x}\n- {name: a, path: z}\n", [("TL106", "error", 3)]),
        ("plugins: {a: {command: x, source: github}}\n", [("TL120", "warning", 1)]),
        ("version: 1\nplugins: {}\n", [("TL120", "warning", 1)]),
        ("nothing: here\n", [("TL120", "warning", 1), ("TL105", "warning", 1)]),
        ("plugins: {a: {command: '${NOT_SET}'}}\n", [("TL110", "warning", 1)]),
        ("plugins: {a: {command: x, config: {big: 1e999}}}\n", [("TL104", "error", 1)]),
        ("plugins: [\n", [("TL101", "error", 2)]),
        ("plugins:\n", []),
        ("", []),
    ],
)
def test_problems_have_their_place_in_that_file(home: Path, text: str, expected: list[tuple[str, str, int]]) -> None:
    loaded = load(home, text)
    assert sorted(problems(loaded)) == sorted(expected)
    assert (loaded.settings is None) == any(severity == "error" for _, severity, _ in expected)
    assert all(problem.where.startswith(str(home / ".awf" / "plugins.yaml") + ":") for problem in loaded.problems)


def test_problems_of_both_files_are_shown_with_their_own_lines(home: Path) -> None:
    loaded = load(home, "plugins:\n  bad: {comand: theirs}\n", "sources:\n  worse: {kind: plugin, comand: ours}\n")
    shown = render(loaded.problems, loaded.text, loaded.others)
    assert "worse: {kind: plugin, comand: ours}" in shown
    assert "bad: {comand: theirs}" in shown
    assert loaded.settings is None


@pytest.mark.law
def test_secrets_in_that_file_are_not_shown(home: Path) -> None:
    loaded = load(home, "plugins: {a: {comand: x, env: {API_TOKEN: ghp_0123456789abcdefghijklmnopqrstuvwxyz}}}\n")
    assert "ghp_0123456789" not in render(loaded.problems, loaded.text, loaded.others)


def test_it_is_not_missed_where_it_is_not_there_and_nothing_else_is_read(home: Path) -> None:
    (home / ".awf" / "plugins.json").write_text("{")
    (home / ".awf" / "config.yaml").write_text("{")
    assert sources(load(home, None)) == {}
    (home / ".awf" / "plugins.json").unlink()
    (home / ".awf" / "config.yaml").unlink()
    (home / ".awf").rmdir()
    (home / ".awf").write_text("a file")
    assert sources(load(home, None)) == {}


def test_one_that_cannot_be_read_is_an_error(home: Path) -> None:
    (home / ".awf" / "plugins.yaml").mkdir()
    loaded = load(home, None)
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [("TL100", "error")]


def test_the_file_of_a_client_has_no_plugins_beside_it(home: Path) -> None:
    (home / ".awf" / "plugins.yaml").write_text("plugins: {a: {command: x}}")
    (home / ".mcp.json").write_text(json.dumps({"mcpServers": {"b": {"command": "y"}}}))
    loaded = load_config(ConfigFile.named(home / ".mcp.json"), environ={}, kinds=section_kinds())
    assert list(sources(loaded)) == ["b"]


@pytest.mark.law
def test_secrets_in_a_plugins_settings_are_known(home: Path) -> None:
    loaded = load(
        home,
        "plugins: {a: {command: x, config: {login: {token: hidden-one}, list: ['${REF}', plain-one]}}}",
        environ={"REF": "referred-1"},
    )
    assert loaded.settings is not None
    assert loaded.settings.secrets({}) == {"hidden-one", "referred-1"}


def test_mcp_servers_become_sources(home: Path) -> None:
    loaded = load(
        home,
        """\
plugins:
  local: {type: mcp, command: ./server, args: [-v], env: {A: "${TOKEN}"}, cwd: data}
  remote: {type: mcp, url: "https://mcp.example/mcp", headers: {Authorization: "Bearer ${TOKEN}"}, enabled: false}
  plain: {type: grpc, command: plugin}
""",
        environ={"TOKEN": "t"},
    )
    assert [problem for problem in loaded.problems if problem.severity == "error"] == []
    found = sources(loaded)
    local, remote = found["local"], found["remote"]
    assert (local.kind, local.args, local.env) == ("mcp_stdio", ("-v",), {"A": "t"})
    assert (local.command, local.cwd) == (str(home / ".awf" / "server"), home / ".awf" / "data")
    assert (remote.kind, remote.url, remote.enabled) == ("mcp_http", "https://mcp.example/mcp", False)
    assert remote.headers == {"Authorization": "Bearer t"}
    assert isinstance(found["plain"], PluginSection)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("{type: mcp}", "TL105"),
        ("{type: mcp, command: x, url: 'http://h/'}", "TL113"),
        ("{type: mcpp, command: x}", "TL104"),
        ("{type: mcp, url: 'http://h/', header: {}}", "TL102"),
        ("{type: mcp, url: nowhere}", "TL104"),
    ],
)
def test_mistakes_about_mcp_servers_are_told(home: Path, entry: str, code: str) -> None:
    loaded = load(home, f"plugins:\n  a: {entry}\n")
    assert [(problem.code.id, problem.severity) for problem in loaded.problems] == [(code, "error")]
