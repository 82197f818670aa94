"""`trunkline explain`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from trunkline.cli.main import main
from trunkline.core.errors import CODES
from trunkline.core.explanations import explanations


def test_every_code_is_explained_with_its_numbers() -> None:
    known = explanations()
    for name, code in CODES.items():
        result = CliRunner().invoke(main, ["explain", name])
        assert (result.exit_code, result.stderr) == (0, ""), name
        words = " ".join(result.stdout.split())
        assert words.startswith(f"{name}: {code.title} ")
        assert known[name].meaning in words
        for phrase in (*known[name].causes, *known[name].remedies):
            assert f"- {phrase}" in words
        assert words.endswith(f"JSON-RPC {code.jsonrpc}, HTTP {code.http}, exit status {code.exit}")


def test_a_code_may_be_written_in_several_ways() -> None:
    for written in ("TL305", "tl305", "305", " Tl305:"):
        assert CliRunner().invoke(main, ["explain", written]).stdout.startswith("TL305: "), written


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("TL306x", "`TL306`"),
        ("TL35", "`TL305`"),
        ("call timed", "`TL305` (call timed out)"),
        ("nonsense", "`trunkline explain` lists all codes"),
    ],
)
def test_an_unknown_code_ends_with_2_and_near_ones(written: str, hint: str) -> None:
    result = CliRunner().invoke(main, ["explain", written])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: Unknown code `{written}`\nhint: " in result.stderr
    assert hint in result.stderr


def test_a_code_and_a_tool_at_once_are_refused() -> None:
    result = CliRunner().invoke(main, ["explain", "TL305", "--tool", "x"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Give a CODE or `--tool`, not both" in result.stderr


def test_without_a_code_all_are_listed() -> None:
    lines = CliRunner().invoke(main, ["explain"]).stdout.splitlines()
    assert lines == [f"{code.id}  {code.title}" for code in CODES.values()]


def test_programs_get_json() -> None:
    one = json.loads(CliRunner().invoke(main, ["explain", "305", "--json"]).stdout)
    assert list(one) == ["code", "title", "meaning", "causes", "remedies", "jsonrpc", "http", "exit"]
    assert one["code"] == "TL305"
    assert one["remedies"]
    assert len(json.loads(CliRunner().invoke(main, ["explain", "--json"]).stdout)) == len(CODES)
