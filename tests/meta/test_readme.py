"""The README's examples do what it says they do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TRUNKLINE = Path(sys.executable).with_name("trunkline")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def check(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "trunkline.yaml").write_text(text)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TRACKER_TOKEN": "x"}
    return subprocess.run(
        [TRUNKLINE, "check"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^    make (\w+)", README, re.MULTILINE) == ["run", "test"]
    assert re.search(r"^run:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_the_example_configuration_is_fine(tmp_path: Path) -> None:
    (example,) = blocks("yaml")
    result = check(tmp_path, example)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_example_mistake_is_reported_as_shown(tmp_path: Path) -> None:
    shown = next(block for block in blocks("console") if "comand" in block)
    expected = shown.removeprefix("$ trunkline check\n").strip()
    result = check(tmp_path, "mcpServers:\n  files:\n    comand: npx\n    command: npx\n")
    assert result.returncode == 2
    assert result.stderr.strip() == expected


def test_the_example_for_clients_and_the_log_line_are_json() -> None:
    client, line = (json.loads(block) for block in blocks("json"))
    assert client["mcpServers"]["trunkline"]["args"][0] == "stdio"
    assert {"ts", "level", "event", "source", "tool", "outcome", "ms", "session", "client"} <= line.keys()
