"""Claude Code at work with the built-in tools in place of its own; only its model is scripted."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.claude_code import run_claude
from tests.support.gateway import Gateway
from tests.support.scripted_model import ScriptedModel, Turn, Use, calls, in_order, says

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(120)]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
PROGRAM = "def one():\n    return 1\n\n\ndef other():\n    return 1\n"


def ours(tool: str, **arguments: Any) -> Use:
    return Use(f"mcp__trunkline__{tool}", arguments)


@dataclass(frozen=True)
class Errand:
    """A run that is over: what its model saw, and the folder that it worked in."""

    model: ScriptedModel
    root: Path


@pytest.fixture(scope="module")
def errand(tmp_path_factory: pytest.TempPathFactory) -> Errand:
    folder = tmp_path_factory.mktemp("errand")
    root = folder / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text(PROGRAM)
    (root / "plain").write_text("needle in a line of some words\n" * 5_000)
    (root / "wide").write_text(("needle " + "😀" * 50 + "\n") * 5_000)
    (root / "dot.png").write_bytes(PNG)
    source = {"kind": "builtin", "root": str(root), "tools": {"allow": ["*", "Bash"]}}
    with Gateway(folder, {"local": source}) as gateway:
        return Errand(asyncio.run(run(gateway, folder / "claude", turns(root))), root)


async def run(gateway: Gateway, folder: Path, turns: list[Turn]) -> ScriptedModel:
    entry = {"type": "http", "url": f"http://127.0.0.1:{gateway.port}/mcp"}
    async with ScriptedModel(in_order(*turns, says("All done."))) as model:
        finished = await run_claude(model, {"trunkline": entry}, folder)
    assert (finished.status, finished.said) == (0, "All done."), finished.errors
    return model


def turns(root: Path) -> list[Turn]:
    program = root / "src" / "main.py"
    change = {"file_path": str(program), "old_string": "    return 1\n", "new_string": "    return 2\n"}
    whole = {**change, "old_string": "def other():\n    return 1\n", "new_string": "def other():\n    return 2\n"}
    return [
        calls(ours("Glob", pattern="**/*.py", path=str(root)), ours("Grep", pattern="return", **{"-n": True})),
        calls(ours("Read", file_path=str(program)), ours("Read", file_path=str(root / "src" / "mian.py"))),
        calls(ours("Edit", **change)),
        calls(ours("Edit", **whole)),
        calls(ours("Bash", command="grep -c 'return 2' src/main.py; exit 3", description="Count")),
        calls(ours("Read", file_path="plain"), ours("Read", file_path="wide"), ours("Read", file_path="dot.png")),
        calls(
            ours("Grep", pattern="needle", output_mode="content", path="wide", head_limit=0),
            ours("Bash", command="cat wide"),
            ours("Bash", command="cat plain"),
        ),
    ]


def test_it_finds_reads_changes_and_runs_a_program_by_the_arguments_it_knows(errand: Errand) -> None:
    model = errand.model
    assert model.result(0, 0).text == "src/main.py"
    assert model.result(0, 1).text == "src/main.py"
    assert model.result(1, 0).text.startswith("     1\tdef one():\n     2\t    return 1\n")
    assert (model.result(1, 1).is_error, "did you mean" in model.result(1, 1).text) == (True, True)
    assert (model.result(2, 0).is_error, "occurs 2 times" in model.result(2, 0).text) == (True, True)
    assert "     6\t    return 2" in model.result(3, 0).text
    assert (model.result(4, 0).is_error, model.result(4, 0).text) == (True, "Exit code 3\n1")
    changed = PROGRAM.replace("other():\n    return 1", "other():\n    return 2")
    assert (errand.root / "src" / "main.py").read_text() == changed


def test_the_largest_results_arrive_whole(errand: Errand) -> None:
    model = errand.model
    for turn, place in ((5, 0), (5, 1), (6, 0)):
        assert "Continue with offset=" in model.result(turn, place).text.rpartition("\n")[2]
    for place in (1, 2):
        assert "left out" in model.result(6, place).text
        assert model.result(6, place).text.rpartition("\n")[2].startswith("needle")
    assert [block["type"] for block in model.result(5, 2).content] == ["image"]
