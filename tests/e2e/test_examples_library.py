"""The library examples do what their pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.docs_pages import ROOT
from tests.support.waiting import at_most

from trunkline import Gateway, Progress

EXAMPLES = ROOT / "examples" / "library"
TESTED = {"embedded.py", "mcp_server.py"}


def test_every_example_is_tried_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TESTED


async def test_the_dice_can_be_rolled_and_the_timer_counts_down(tmp_path: Path) -> None:
    command = {"command": sys.executable, "args": [str(EXAMPLES / "mcp_server.py")]}
    progress: list[Progress] = []
    async with Gateway({"gateway": {"state_dir": tmp_path}, "mcpServers": {"dice": command}}) as gateway:
        rolled = await gateway.call("dice_roll", {"sides": 2, "times": 10})
        assert set(rolled.structured["rolled"]) <= {1, 2}
        assert rolled.structured["sum"] == sum(rolled.structured["rolled"])
        assert (await gateway.call("dice_roll", {"sides": 1})).text == "A die has at least two sides"
        assert (await gateway.call("dice_count_down", {"seconds": 1}, on_progress=progress.append)).text == "Time is up"
    assert progress == [Progress(0, 1, "1 left")]


@pytest.mark.parametrize("with_file", [False, True])
def test_a_program_with_a_gateway_inside_finds_and_rolls_the_dice(tmp_path: Path, with_file: bool) -> None:
    config = tmp_path / "trunkline.yaml"
    config.write_text(
        f"mcpServers: {{dice: {{command: '{sys.executable}', args: ['{EXAMPLES / 'mcp_server.py'}']}}}}\n"
    )
    command = [sys.executable, str(EXAMPLES / "embedded.py"), *([str(config)] if with_file else [])]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=at_most(60))
    assert (done.returncode, done.stderr) == (0, "")
    ready, found, *_, rolled = done.stdout.splitlines()
    assert ready == "dice is ready, with 2 tools"
    assert found == "dice_roll: Roll dice."
    assert rolled.startswith("{'rolled': [")
