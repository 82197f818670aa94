from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.servers import ago, show_servers
from trunkline.cli.terminal import shown_width


def status(name: str, state: str = "ready", **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "mcp_stdio", "state": state, "tools": 3, "restarts": 0, "origin": "file", **more}


def test_every_server_is_a_row_and_the_sum_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("git", protocolVersion="2025-11-25"), status("db", "down", reason="refused", restarts=2)])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["SERVER", "STATE", "TOOLS", "SINCE", "RESTARTS", "PROTOCOL", "REASON"]
    assert lines[1].split() == ["git", "ready", "3", "0", "2025-11-25"]
    assert lines[2].split() == ["db", "down", "3", "2", "refused"]
    assert err.endswith("\n2 servers: 1 ready, 1 down\n")


def test_what_is_not_well_is_told_in_full_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "it ended " * 50
    tail = "loading\nno such database\n"
    show_servers([status("git"), status("db", "down", reason=reason, hint="start it", stderrTail=tail)])
    err = capsys.readouterr().err
    assert f"\ndb\n  down: {reason.strip()}\n  its last output on stderr: no such database\n  hint: start it\n" in err
    assert "\ngit\n" not in err


def test_last_words_are_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("db", "down", reason="it said: no licence", stderrTail="no licence")])
    assert capsys.readouterr().err.count("no licence") == 1


def test_a_server_that_is_starting_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("a", "starting"), status("b", "starting", lastError="it ended with status 3")])
    out, err = capsys.readouterr()
    assert "it has not answered yet" in out
    assert "it ended with status 3" in out
    assert "start_timeout" in err
    assert err.endswith("2 servers: 2 starting\n")


def test_one_server_is_not_many(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("git")])
    assert capsys.readouterr().err == "\n1 server: 1 ready\n"


def test_what_a_ready_server_leaves_to_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("local", reason="no sandbox", hint="install one")])
    out, err = capsys.readouterr()
    assert "no sandbox" in out
    assert err == "\nlocal\n  hint: install one\n\n1 server: 1 ready\n"


def test_a_ready_server_is_not_excused_for_its_past(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("git", lastError="it was lost", reason="x", stderrTail="z")])
    out, err = capsys.readouterr()
    assert "lost" not in out
    assert err == "\n1 server: 1 ready\n"


def test_collisions_and_warnings_are_told_of_any_server(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("git", collisions=["`git.log` wants `x`"], warnings=["a tool has no name"])])
    err = capsys.readouterr().err
    assert "  `git.log` wants `x`\n  a tool has no name\n  hint: call these tools by their address" in err


def test_servers_that_came_over_the_api_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("git"), status("extra", origin="api")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[2] == "FROM"
    assert "the file" in lines[1]
    assert "the API" in lines[2]


def test_prompts_and_resources_have_a_column_when_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([status("git"), status("wiki", prompts=2, resources=1, resourceTemplates=4)])
    head, git, wiki = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[:6] == ["SERVER", "STATE", "TOOLS", "PROMPTS", "RESOURCES", "SINCE"]
    assert (git[2:5], wiki[2:5]) == (["3", "0", "0"], ["3", "2", "5"])


def test_without_servers_the_way_to_the_first_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_servers([])
    assert capsys.readouterr() == ("", "no servers: add one with `trunkline add`\n")


def test_on_a_terminal_lines_fit_and_states_have_their_colour(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "connection refused " * 20
    shown = screen(monkeypatch, "stdout", columns=80)
    show_servers([status("git"), status("db", "down", reason=reason)])
    assert max(map(shown_width, shown.text.splitlines())) <= 80
    assert re.search(r"\x1b\[31mdown", shown.getvalue())
    assert reason.strip() not in shown.text
    assert reason.strip() in capsys.readouterr().err


def test_hostile_words_are_made_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stderr")
    evil = "\x1b]0;gotcha\x07\x9b2J"
    fields = {"reason": evil, "hint": evil, "stderrTail": evil, "collisions": [evil], "warnings": [evil]}
    show_servers([status(evil, evil, since=evil, protocolVersion=evil, **fields)])
    assert "\x1b]" not in shown.getvalue()
    assert all(ch == "\n" or ch.isprintable() for ch in shown.text)


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7300, "2h"), (200_000, "2d"), (-50, "0s")]
)
def test_how_long_ago_is_one_number(seconds: int, told: str) -> None:
    then = datetime.now(UTC) - timedelta(seconds=seconds)
    assert ago(then.isoformat().replace("+00:00", "Z")) == told


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-01T00:00:00"])
def test_what_is_no_time_is_no_time(since: str) -> None:
    assert ago(since) == ""
