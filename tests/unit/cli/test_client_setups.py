"""The lines themselves. That the clients understand them is tested with the clients, end to end."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from trunkline.cli.connect import CLIENTS, ClientSetup, Endpoint, program_name, program_path

URL = "http://127.0.0.1:4747/mcp"
OPEN = Endpoint(URL, needs_token=False, program="/opt/trunk line/bin/trunkline")
GUARDED = Endpoint(URL, needs_token=True, program="/opt/trunk line/bin/trunkline")


def test_every_client_has_a_line_or_a_file() -> None:
    for setup in CLIENTS.values():
        step = setup(OPEN)
        assert bool(step.run) != bool(step.file)
        assert URL in step.text
        assert "\n" not in step.text


@pytest.mark.law
@pytest.mark.parametrize("client", CLIENTS)
def test_a_token_is_only_ever_named(client: str) -> None:
    assert "TRUNKLINE_TOKEN" not in CLIENTS[client](OPEN).text
    assert "TRUNKLINE_TOKEN" in CLIENTS[client](GUARDED).text


@pytest.mark.parametrize("client", ["claude-code", "gemini", "opencode", "vscode"])
def test_the_shell_leaves_the_name_of_the_token_alone(client: str) -> None:
    """In single quotes: the client's file gets the variable's name, not its value."""
    (argument,) = [word for word in CLIENTS[client](GUARDED).run.split("'") if "TRUNKLINE_TOKEN" in word]
    assert "Bearer" in argument


def test_a_strange_address_is_quoted() -> None:
    strange = Endpoint("http://127.0.0.1:1/mcp?a=1&b='$(date)'", needs_token=False, program="/trunkline")
    for setup in CLIENTS.values():
        step = setup(strange)
        words = shlex.split(step.run) if step.run else [json.dumps(step.paste)]
        assert any(strange.url in word for word in words)


def test_vs_code_is_told_name_and_type() -> None:
    program, option, text = shlex.split(CLIENTS["vscode"](GUARDED).run)
    assert (program, option) == ("code", "--add-mcp")
    assert json.loads(text) == {
        "name": "trunkline",
        "type": "http",
        "url": URL,
        "headers": {"Authorization": "Bearer ${env:TRUNKLINE_TOKEN}"},
    }


def test_cursor_gets_a_server_with_a_url() -> None:
    step = CLIENTS["cursor"](GUARDED)
    assert step.file == "~/.cursor/mcp.json"
    headers = {"Authorization": "Bearer ${env:TRUNKLINE_TOKEN}"}
    assert step.paste == {"mcpServers": {"trunkline": {"url": URL, "headers": headers}}}


def test_claude_desktop_starts_our_program() -> None:
    step = CLIENTS["claude-desktop"](OPEN)
    server = {"command": "/opt/trunk line/bin/trunkline", "args": ["stdio", "--url", URL]}
    assert step.paste == {"mcpServers": {"trunkline": server}}
    assert step.note == ""
    guarded = CLIENTS["claude-desktop"](GUARDED)
    assert guarded.paste == {"mcpServers": {"trunkline": {**server, "env": {"TRUNKLINE_TOKEN": "$TRUNKLINE_TOKEN"}}}}
    assert "token itself" in guarded.note


@pytest.mark.parametrize(
    ("platform", "folder"), [("linux", "~/.config/"), ("darwin", "~/Library/Application Support/")]
)
def test_claude_desktop_s_file_is_where_the_system_has_it(
    monkeypatch: pytest.MonkeyPatch, platform: str, folder: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert CLIENTS["claude-desktop"](OPEN).file == f"{folder}Claude/claude_desktop_config.json"


def test_as_json_it_is_a_line_or_a_file_with_what_goes_into_it() -> None:
    assert ClientSetup("A", run="x").as_json() == {"title": "A", "run": "x"}
    pasted = ClientSetup("A", file="f", paste={"k": 1}, note="n").as_json()
    assert pasted == {"title": "A", "file": "f", "paste": {"k": 1}, "note": "n"}


def test_our_program_is_named_as_it_was_called_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real" / "trunkline"
    real.parent.mkdir()
    real.touch()
    link = tmp_path / "trunkline"
    link.symlink_to(real)
    assert program_path(str(link)) == str(link)
    monkeypatch.chdir(tmp_path)
    assert program_path("trunkline") == str(link)


def test_called_otherwise_it_is_the_one_beside_the_interpreter() -> None:
    assert program_path("pytest") == str(Path(sys.executable).with_name("trunkline").absolute())


def test_the_path_is_spared_where_the_name_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(folder))
    assert program_name() == "trunkline"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_name() == str(folder.absolute() / "trunkline")
