"""Loading a workflow file reports all of its problems at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.workflow_files import codes

from trunkline.agents.workflow.load import load_workflow
from trunkline.config.problems import render, render_json, summarize

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, shown: str) -> None:
    """Compare with the file kept; `UPDATE_GOLDEN=1` writes it anew, to be read before it is committed."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()


def test_what_people_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    loaded = load_workflow(Path("mistakes.yaml"), environ={})
    check_golden("mistakes.yaml.txt", f"{render(loaded.problems, loaded.text)}\n{summarize(loaded.problems)}\n")


def test_programs_are_told_the_step_of_each_problem() -> None:
    loaded = load_workflow(GOLDEN / "mistakes.yaml", environ={})
    steps = [item.get("step") for item in json.loads(render_json(loaded.problems))]
    assert list(dict.fromkeys(steps)) == [None, "start", "fix", "tell", "all", "done"]


@pytest.mark.parametrize("content", [None, b"\xff", b"name: '" + b"x" * 2**20])
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "w.yaml"
    if content is not None:
        path.write_bytes(content)
    loaded = load_workflow(path, environ={})
    assert codes(loaded) in (["TL100"], ["TL101"], ["TL108"], ["TL109"])
    assert loaded.workflow is None


@pytest.mark.law
def test_secrets_are_hidden_where_the_file_cannot_be_parsed() -> None:
    from trunkline.agents.workflow.load import load_workflow_text

    loaded = load_workflow_text("a: [\napi_key: hunter2hunter2\n", Path("w.yaml"), environ={})
    assert "hunter2" not in loaded.text
