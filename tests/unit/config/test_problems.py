"""Showing problems to people and programs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.support.config_files import KINDS, load_json, load_text

from trunkline.config.files import ConfigFile
from trunkline.config.load import LoadedConfig, load_config
from trunkline.config.problems import render, render_json, summarize
from trunkline.core.errors import LISTEN_FAILED, Problem

GOLDEN = Path(__file__).parent / "golden"


def load_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> LoadedConfig:
    monkeypatch.chdir(GOLDEN)
    return load_config(ConfigFile.named(Path(name)), environ={"HOME": "/home/me"}, kinds=KINDS)


def check_golden(name: str, shown: str) -> None:
    """Compare with the file kept; `UPDATE_GOLDEN=1` writes it anew, to be read before it is committed."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()


@pytest.mark.parametrize("file", ["mistakes.yaml", "clients.json", "syntax.yaml", "hostile.yaml"])
def test_what_people_see(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_golden(file, monkeypatch)
    check_golden(f"{file}.txt", render(loaded.problems, loaded.text) + "\n" + summarize(loaded.problems) + "\n")


def test_what_programs_see(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_golden("mistakes.yaml", monkeypatch)
    check_golden("mistakes.yaml.json", render_json(loaded.problems) + "\n")
    assert {tuple(item) for item in json.loads(render_json(loaded.problems))} == {
        ("code", "severity", "message", "hint", "where", "file", "line", "column", "endLine", "endColumn")
    }


def test_carets_stand_below_the_place_whatever_the_width() -> None:
    for text in ('\t\t"日本": 1', '{"a": [1], "é日x": 2}', '{"gatewayy": {}}'):
        loaded = load_json(text if text.startswith("{") else f"{{{text}}}")
        for problem, block in zip(loaded.problems, render(loaded.problems, loaded.text).split("\n\n"), strict=True):
            line, carets = block.split("\n")[1:3]
            assert problem.span is not None
            shown = line.split(" | ", 1)[1]
            assert problem.span.column - 1 < len(shown)
            assert len(carets.split(" | ", 1)[1].expandtabs()) <= len(shown.expandtabs()) * 2


def test_a_very_long_line_is_shown_in_part() -> None:
    loaded = load_json('{"x": "' + "y" * 100_000 + '", "unknown": 1}')
    shown = render(loaded.problems, loaded.text)
    assert max(len(line) for line in shown.splitlines()) < 200
    assert '"unknown"' in shown


def test_nothing_in_a_file_can_drive_the_terminal() -> None:
    loaded = load_json('{"\\u001b[2J\\u009b31m\\u202e": 1, "a\u202eb": 2}')
    shown = render(loaded.problems, loaded.text) + render_json(loaded.problems)
    assert len(loaded.problems) == 2
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown) is None


def test_a_problem_without_a_place_is_one_line_and_its_hint() -> None:
    problem = Problem(code=LISTEN_FAILED, message="The port is taken", where="127.0.0.1:80", hint="choose another")
    assert render([problem], "") == "127.0.0.1:80: error TL114: The port is taken\n  hint: choose another\n"
    assert json.loads(render_json([problem]))[0]["line"] is None


def test_the_summary_counts() -> None:
    assert summarize([]) == ""
    assert summarize(load_text("a: 1\nb: 2\nmcpServers: {'x y': {command: z}}").problems) == "2 errors, 1 warning"
