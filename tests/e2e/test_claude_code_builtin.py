"""Claude Code at work with the built-in tools in place of its own; only its model is scripted."""

from __future__ import annotations

import base64
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


async def errand(root: Path, folder: Path, *turns: Turn) -> ScriptedModel:
    source = {"kind": "builtin", "root": str(root), "tools": {"allow": ["*", "Bash"]}}
    with Gateway(folder, {"local": source}) as gateway:
        entry = {"type": "http", "url": f"http://127.0.0.1:{gateway.port}/mcp"}
        async with ScriptedModel(in_order(*turns, says("All done."))) as model:
            finished = await run_claude(model, {"trunkline": entry}, folder / "claude")
    assert (finished.status, finished.said) == (0, "All done."), finished.errors
    return model


async def test_it_finds_reads_changes_and_runs_a_program_by_the_arguments_it_knows(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    program = root / "src" / "main.py"
    program.write_text(PROGRAM)
    change = {"file_path": str(program), "old_string": "    return 1\n", "new_string": "    return 2\n"}
    whole = {**change, "old_string": "def other():\n    return 1\n", "new_string": "def other():\n    return 2\n"}
    model = await errand(
        root,
        tmp_path,
        calls(ours("Glob", pattern="**/*.py", path=str(root)), ours("Grep", pattern="return", **{"-n": True})),
        calls(ours("Read", file_path=str(program)), ours("Read", file_path=str(root / "src" / "mian.py"))),
        calls(ours("Edit", **change)),
        calls(ours("Edit", **whole)),
        calls(ours("Bash", command="grep -c 'return 2' src/main.py; exit 3", description="Count")),
    )
    assert model.result(0, 0).text == "src/main.py"
    assert model.result(0, 1).text == "src/main.py"
    assert model.result(1, 0).text.startswith("     1\tdef one():\n     2\t    return 1\n")
    assert (model.result(1, 1).is_error, "did you mean" in model.result(1, 1).text) == (True, True)
    assert (model.result(2, 0).is_error, "occurs 2 times" in model.result(2, 0).text) == (True, True)
    assert "     6\t    return 2" in model.result(3, 0).text
    assert (model.result(4, 0).is_error, model.result(4, 0).text) == (True, "Exit code 3\n1")
    assert program.read_text() == PROGRAM.replace("other():\n    return 1", "other():\n    return 2")


async def test_the_largest_results_arrive_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "plain").write_text("needle in a line of some words\n" * 5_000)
    (root / "wide").write_text(("needle " + "😀" * 50 + "\n") * 5_000)
    (root / "dot.png").write_bytes(PNG)
    model = await errand(
        root,
        tmp_path,
        calls(ours("Read", file_path="plain"), ours("Read", file_path="wide"), ours("Read", file_path="dot.png")),
        calls(
            ours("Grep", pattern="needle", output_mode="content", path="wide", head_limit=0),
            ours("Bash", command="cat wide"),
            ours("Bash", command="cat plain"),
        ),
    )
    for turn, place in ((0, 0), (0, 1), (1, 0)):
        assert "Continue with offset=" in model.result(turn, place).text.rpartition("\n")[2]
    for place in (1, 2):
        assert "left out" in model.result(1, place).text
        assert model.result(1, place).text.rpartition("\n")[2].startswith("needle")
    assert [block["type"] for block in model.result(0, 2).content] == ["image"]
