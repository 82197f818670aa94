from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from tests.support.commands import Done, trunkline
from tests.support.gateway import Gateway
from tests.support.in_process import trunkline_here
from tests.support.ports import free_port
from tests.support.trust import trust

from trunkline.cli.connect import CLIENTS, Endpoint, screen_lines

NAMES = list(CLIENTS)


def connect(*args: str, cwd: Path) -> Done:
    return trunkline_here("connect", *args, cwd=cwd)


def as_json(*args: str, cwd: Path) -> dict[str, Any]:
    done = connect(*args, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# What is shown --------------------------------------------------------------------------------------------------------


def plain(columns: int | None) -> list[str]:
    lines = screen_lines(Endpoint("http://h:1/mcp", needs_token=False, program="/trunkline"), columns)
    return [click.unstyle(line) for line in lines]


@pytest.mark.parametrize("columns", [None, 200])
def test_lines_are_aligned_and_a_snippet_stands_under_its_file(columns: int | None) -> None:
    lines = plain(columns)
    assert lines[0] == "  Claude Code     claude mcp add -s user -t http trunkline http://h:1/mcp"
    assert lines[5:7] == [
        "  Cursor          in ~/.cursor/mcp.json:",
        '                  {"mcpServers":{"trunkline":{"url":"http://h:1/mcp"}}}',
    ]
    assert len(lines) == len(NAMES) + 2


def test_on_a_narrow_screen_lines_stand_below_their_titles() -> None:
    lines = plain(80)
    assert lines[:2] == ["  Claude Code", "    claude mcp add -s user -t http trunkline http://h:1/mcp"]
    assert lines[10:13] == [
        "  Cursor",
        "    in ~/.cursor/mcp.json:",
        '    {"mcpServers":{"trunkline":{"url":"http://h:1/mcp"}}}',
    ]


def test_a_token_is_explained_once() -> None:
    lines = screen_lines(Endpoint("http://h:1/mcp", needs_token=True, program="/trunkline"))
    assert "export it" in lines[-1]


def test_without_a_client_all_are_shown_on_stdout(tmp_path: Path) -> None:
    done = trunkline("connect", "--url", f"http://127.0.0.1:{free_port()}", cwd=tmp_path)
    assert done.returncode == 0
    assert "Claude Desktop" in done.stdout
    assert "\033[" not in done.stdout


def test_for_one_client_stdout_is_exactly_what_to_run(tmp_path: Path) -> None:
    done = connect("codex", "--url", "http://127.0.0.1:9/mcp", cwd=tmp_path)
    assert done.stdout == "codex mcp add trunkline --url http://127.0.0.1:9/mcp\n"


def test_for_one_client_stdout_is_exactly_what_to_paste(tmp_path: Path) -> None:
    done = connect("cursor", "--url", "http://127.0.0.1:9/mcp", cwd=tmp_path)
    assert json.loads(done.stdout) == {"mcpServers": {"trunkline": {"url": "http://127.0.0.1:9/mcp"}}}
    assert "~/.cursor/mcp.json" in done.stderr


def test_as_json_every_client_is_there(tmp_path: Path) -> None:
    shown = as_json("--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert (shown["url"], shown["token"]) == ("http://127.0.0.1:9/mcp", False)
    assert [client["client"] for client in shown["clients"]] == NAMES


# Which gateway --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["foo", "ftp://h/mcp", "http://", "http://h:port", "http://h/a b", "http://h/\n"])
def test_what_is_no_url_is_a_mistake_in_use(tmp_path: Path, url: str) -> None:
    done = connect("--url", url, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "TL104" in done.stderr


def test_an_unknown_client_is_answered_with_those_there_are(tmp_path: Path) -> None:
    done = connect("emacs", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "claude-code" in done.stderr


def test_without_a_file_or_a_running_gateway_it_is_the_usual_address(tmp_path: Path) -> None:
    assert as_json(cwd=tmp_path)["url"] == "http://127.0.0.1:4747/mcp"


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:9", "http://127.0.0.1:9/mcp"),
        ("0.0.0.0:9", "http://127.0.0.1:9/mcp"),
        ("'[::]:9'", "http://[::1]:9/mcp"),
    ],
)
def test_a_configured_gateway_need_not_run(tmp_path: Path, listen: str, url: str) -> None:
    (tmp_path / "trunkline.yaml").write_text(f"gateway: {{listen: {listen}, token: not-for-eyes, state_dir: state}}\n")
    trust(tmp_path, {"HOME": str(tmp_path)})
    done = connect(cwd=tmp_path)
    assert "trunkline up" in done.stderr
    assert "not-for-eyes" not in done.stdout
    assert as_json(cwd=tmp_path) | {"clients": []} == {"url": url, "token": True, "clients": []}


def test_an_unknown_port_cannot_be_connected_to(tmp_path: Path) -> None:
    (tmp_path / "trunkline.yaml").write_text("gateway: {listen: '127.0.0.1:0', state_dir: state}\n")
    trust(tmp_path, {"HOME": str(tmp_path)})
    done = connect(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--url" in done.stderr


@pytest.mark.parametrize("token", ["", "open-sesame"])
def test_a_running_gateway_is_asked_whether_it_wants_a_token(tmp_path: Path, token: str) -> None:
    with Gateway(tmp_path, token=token) as gateway:
        by_url = connect("codex", "--url", f"http://127.0.0.1:{gateway.port}", cwd=tmp_path)
        by_file = connect("codex", "-c", str(gateway.config), cwd=tmp_path)
    assert by_url.stderr == ""
    assert by_url.stdout == by_file.stdout
    assert ("--bearer-token-env-var TRUNKLINE_TOKEN" in by_url.stdout) == bool(token)
