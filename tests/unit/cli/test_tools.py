from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.client.gateway_client import Match, MatchedWord, MatchReasons
from trunkline.cli.terminal import shown_width
from trunkline.cli.tools import show_found, show_tools
from trunkline.core.tool import ToolDefinition


def tool(name: str, description: Any = "", **schema: Any) -> ToolDefinition:
    definition = {"name": name, "description": description, "inputSchema": {"type": "object", **schema}}
    return ToolDefinition("", name, json.dumps(definition).encode())


TOOLS = [
    tool("git_log", "Show commits.\nMore words.", properties={"path": {}, "limit": {}}, required=["path"]),
    tool("fs_read", "Read a file"),
    ToolDefinition("", "odd", b'{"name":"odd","description":5,"inputSchema":[1],"n":1.10}'),
]


def test_every_tool_is_a_row_with_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_tools(TOOLS, as_json=False) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["TOOL", "ARGUMENTS", "DESCRIPTION"]
    assert lines[1].split() == ["git_log", "path", "[limit]", "Show", "commits."]
    assert lines[2].split() == ["fs_read", "Read", "a", "file"]
    assert lines[3] == "odd"
    assert err == "\n3 tools\n"


@pytest.mark.parametrize(
    "schema", [{"properties": []}, {"properties": {"a": 1}, "required": 5}, {"properties": {"a": {}}, "required": [1]}]
)
def test_schemas_of_any_shape_are_shown(capsys: pytest.CaptureFixture[str], schema: dict[str, Any]) -> None:
    assert show_tools([tool("x", "does", **schema)], as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["x", "does"]


def test_the_title_stands_in_for_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    show_tools([ToolDefinition("", "x", b'{"name":"x","title":"A title"}')], as_json=False)
    assert "A title" in capsys.readouterr().out


def test_what_was_found_is_shown_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Match(TOOLS[1], MatchReasons()), Match(TOOLS[0], MatchReasons())]
    assert show_found(found, 3, "read it", explain=False, as_json=False) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["TOOL", "fs_read", "git_log"]
    assert err == "\n2 of 3 tools\n"


def test_reasons_name_words_fields_and_nearness(capsys: pytest.CaptureFixture[str]) -> None:
    words = [MatchedWord("read", "name", 0.75), MatchedWord("file", "description", 0.25)]
    found = [Match(TOOLS[1], MatchReasons(words, 0.618, 2.1)), Match(TOOLS[0], MatchReasons([], None, 0.1))]
    assert show_found(found, 3, "read a file", explain=True, as_json=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        "fs_read  Read a file",
        "  words: `read` in its name (75 %), `file` in its description (25 %)",
        "  meaning: 0.62 similar (1 is identical)",
        "",
        "git_log  Show commits.",
        "  words: none in common",
        "  meaning: not compared",
    ]


def test_reasons_as_json_stand_beside_the_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Match(TOOLS[2], MatchReasons([MatchedWord("odd", "name", 1.0)], 0.5, 2.0))]
    assert show_found(found, 3, "odd", explain=True, as_json=True) == 0
    out = capsys.readouterr().out
    assert '"n": 1.10' in out
    assert json.loads(out)["why"] == {
        "odd": {"words": [{"word": "odd", "field": "name", "share": 1.0}], "cosine": 0.5, "score": 2.0}
    }


def test_nothing_that_fits_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_found([], 3, "zebra", explain=False, as_json=False) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no tool matches `zebra`" in err
    assert "trunkline servers" in err
    assert show_tools([], as_json=False) == 1
    assert show_found([], 0, "zebra", explain=True, as_json=False) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("no tools: `trunkline servers` shows") == 2


def test_as_json_definitions_are_as_clients_see_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_tools(TOOLS, as_json=True) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [found["name"] for found in json.loads(out)["tools"]] == ["git_log", "fs_read", "odd"]
    assert '"n": 1.10' in out
    assert show_found([], 3, "zebra", explain=False, as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {"tools": []}


def test_on_a_terminal_lines_fit_and_names_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stdout", columns=70)
    takes = {f"argument_{number}": {} for number in range(30)}
    show_tools([tool("a_rather_long_name_of_a_tool", "what it does " * 30, properties=takes)], as_json=False)
    assert max(map(shown_width, shown.text.splitlines())) <= 70
    assert "a_rather_long_name_of_a_tool" in shown.text


def test_hostile_definitions_are_made_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;gotcha\x07\x9b2J"
    for as_json in (False, True):
        shown = screen(monkeypatch, "stdout")
        show_tools([tool(evil, evil, properties={evil: {}})], as_json=as_json)
        assert all(ch == "\n" or ch.isprintable() for ch in shown.text)
    for as_json in (False, True):
        shown = screen(monkeypatch, "stdout")
        found = [Match(tool(evil, evil), MatchReasons([MatchedWord(evil, evil, 1.0)]))]
        show_found(found, 1, "x", explain=True, as_json=as_json)
        assert all(ch == "\n" or ch.isprintable() for ch in shown.text)
