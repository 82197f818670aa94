from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.budget import show_budget
from trunkline.cli.terminal import shown_width

WHY = "the whole list is over `context_tokens` (4,000), and a search costs 3,000 at most"


def budget(shown: str = "search", chosen: str = "search") -> dict[str, Any]:
    return {
        "servers": [{"name": "git", "tools": 30, "tokens": 9000}, {"name": "trunkline", "tools": 5, "tokens": 1000}],
        "tools": [
            {"tool_id": "git_log", "server": "git", "tokens": 9000},
            {"tool_id": "trunkline.list_tools", "server": "trunkline", "tokens": 1000},
        ],
        "modes": {
            "all": {"tokens": 10_000},
            "search": {"tokens": 300, "dialogue": 3000},
            "auto": {"chosen": chosen, "why": WHY},
        },
        "disclosure": "auto" if shown == chosen else shown,
        "shown": shown,
        "context_tokens": 4000,
    }


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_servers_then_modes_then_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    show_budget(budget(), None, by_tool=False)
    out, err = capsys.readouterr()
    assert rows(out) == [
        ["SERVER", "TOOLS", "TOKENS", "SHARE"],
        ["git", "30", "9,000", "90", "%"],
        ["trunkline", "(its", "own)", "5", "1,000", "10", "%"],
        [],
        ["MODE", "FIRST", "LIST", "SAVING", "WITH", "A", "SEARCH", "SAVING"],
        ["all", "10,000", "10,000"],
        ["search", "300", "97", "%", "up", "to", "3,000", "70", "%"],
        ["auto", "300", "97", "%", "up", "to", "3,000", "70", "%"],
        [],
        ["`auto`", "is", "`search`", "here:", *WHY.split()],
        ["`gateway.disclosure`", "is", "`auto`:", "clients", "see", "`search`"],
    ]
    assert err == ""


def test_each_tool_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    show_budget(budget(), None, by_tool=True)
    assert rows(capsys.readouterr().out)[:3] == [
        ["TOOL", "SERVER", "TOKENS", "SHARE"],
        ["git_log", "git", "9,000", "90", "%"],
        ["trunkline.list_tools", "trunkline", "1,000", "10", "%"],
    ]


def test_one_server_is_shown_by_tool(capsys: pytest.CaptureFixture[str]) -> None:
    show_budget(budget(), "git", by_tool=False)
    shown = rows(capsys.readouterr().out)
    assert shown[1] == ["git_log", "git", "9,000", "90", "%"]
    assert shown[2] == []


def test_a_saving_that_is_not_made_is_hinted_at(capsys: pytest.CaptureFixture[str]) -> None:
    show_budget(budget(shown="all"), None, by_tool=False)
    out, err = capsys.readouterr()
    assert "`gateway.disclosure` is `all`: clients see `all`" in out
    assert "hint: remove `gateway.disclosure`" in err


def test_a_search_that_costs_more_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    dear = budget(shown="all", chosen="all")
    dear["modes"]["search"]["dialogue"] = 12_000
    show_budget(dear, None, by_tool=False)
    out, err = capsys.readouterr()
    assert ["search", "300", "97", "%", "up", "to", "12,000", "-20", "%"] in rows(out)
    assert ["auto", "10,000", "10,000"] in rows(out)
    assert err == ""


def test_no_tools_cost_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_budget({**budget(), "tools": [], "servers": []}, None, by_tool=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert "no tools: `trunkline servers`" in err


def test_hostile_names_are_made_harmless_and_lines_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;gotcha\x07\x9b2J"
    found = budget()
    found["servers"][0]["name"] = evil
    shown = screen(monkeypatch, "stdout", columns=60)
    show_budget(found, None, by_tool=False)
    assert all(ch == "\n" or ch.isprintable() for ch in shown.text)
    assert max(map(shown_width, shown.text.split("`auto` is")[0].splitlines())) <= 60
