from __future__ import annotations

import pytest
from tests.support.fake_terminal import screen

from trunkline.cli.explain import show_why


def test_a_tool_that_is_there_is_told_with_its_address(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [{"what": "Clients see it as `git_log`"}]
    show_why("log", {"found": True, "address": "git.log", "server": "git", "findings": findings})
    out = capsys.readouterr().out
    assert out == "`log` is `git.log`, a tool of server `git`\n- Clients see it as `git_log`\n"


def test_a_tool_that_is_not_is_told_with_the_reasons_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [{"what": "Server `git` is down", "hint": "start it"}, {"what": "second"}]
    show_why("git_lgo", {"found": False, "findings": findings, "similar": ["git_log", "git_add"]})
    assert capsys.readouterr().out.splitlines() == [
        "`git_lgo` cannot be called",
        "- Server `git` is down",
        "  hint: start it",
        "- second",
        "similar tools: git_log, git_add",
    ]


def test_hostile_words_are_made_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;gotcha\x07\x9b2J"
    shown = screen(monkeypatch, "stdout")
    findings = [{"what": evil, "hint": evil}]
    show_why(evil, {"found": True, "address": evil, "server": evil, "findings": findings, "similar": [evil]})
    show_why(evil, {"found": False, "findings": findings})
    assert all(ch == "\n" or ch.isprintable() for ch in shown.text)
