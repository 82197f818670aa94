from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.screen import screen

from trunkline.cli.terminal import shown_width
from trunkline.cli.tools import fitting, show_tools
from trunkline.core.tool import Tool


def tool(name: str, description: Any = "", **schema: Any) -> Tool:
    definition = {"name": name, "description": description, "inputSchema": {"type": "object", **schema}}
    return Tool("", name, json.dumps(definition).encode())


TOOLS = [
    tool("git_log", "Show commits.\nMore words.", properties={"path": {}, "limit": {}}, required=["path"]),
    tool("fs_read", "Read a file"),
    Tool("", "odd", b'{"name":"odd","description":5,"inputSchema":[1],"n":1.10}'),
]


def test_every_tool_is_a_row_with_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_tools(TOOLS, "", as_json=False) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["TOOL", "TAKES", "WHAT", "IT", "DOES"]
    assert lines[1].split() == ["git_log", "path", "[limit]", "Show", "commits."]
    assert lines[2].split() == ["fs_read", "Read", "a", "file"]
    assert lines[3] == "odd"
    assert err == "\n3 tools\n"


@pytest.mark.parametrize(
    "schema", [{"properties": []}, {"properties": {"a": 1}, "required": 5}, {"properties": {"a": {}}, "required": [1]}]
)
def test_schemas_of_any_shape_are_shown(capsys: pytest.CaptureFixture[str], schema: dict[str, Any]) -> None:
    assert show_tools([tool("x", "does", **schema)], "", as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["x", "does"]


def test_the_title_stands_in_for_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    show_tools([Tool("", "x", b'{"name":"x","title":"A title"}')], "", as_json=False)
    assert "A title" in capsys.readouterr().out


def test_words_find_the_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    many = [tool("mail_send", "Send something"), tool("notes_add", "Add a note to send later"), tool("x", "else")]
    assert [found.name for found in fitting(many, "send")] == ["mail_send", "notes_add"]
    assert show_tools(many, "send", as_json=False) == 0
    assert capsys.readouterr().err == "\n2 of 3 tools\n"


def test_nothing_that_fits_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_tools(TOOLS, "zebra", as_json=False) == 1
    assert show_tools([], "", as_json=False) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no tool fits `zebra`" in err
    assert "trunkline servers" in err


def test_as_json_definitions_are_as_clients_see_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_tools(TOOLS, "", as_json=True) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [found["name"] for found in json.loads(out)["tools"]] == ["git_log", "fs_read", "odd"]
    assert '"n": 1.10' in out
    assert show_tools(TOOLS, "zebra", as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {"tools": []}


def test_on_a_terminal_lines_fit_and_names_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(monkeypatch, "stdout", columns=70)
    takes = {f"argument_{number}": {} for number in range(30)}
    show_tools([tool("a_rather_long_name_of_a_tool", "what it does " * 30, properties=takes)], "", as_json=False)
    assert max(map(shown_width, shown.text.splitlines())) <= 70
    assert "a_rather_long_name_of_a_tool" in shown.text


def test_hostile_definitions_are_made_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;gotcha\x07\x9b2J"
    for as_json in (False, True):
        shown = screen(monkeypatch, "stdout")
        show_tools([tool(evil, evil, properties={evil: {}})], "", as_json=as_json)
        assert all(ch == "\n" or ch.isprintable() for ch in shown.text)
