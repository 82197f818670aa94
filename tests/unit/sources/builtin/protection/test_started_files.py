"""Which files of a server are protected: what it runs, and not what it works with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.config_files import load_text

from trunkline.sources.builtin.protection.protected_paths import started_files

CASES = {
    "python3 server.py data.db": ["server.py"],
    "python3 -m server --db data.db": ["server.py"],
    "npx -y tsx server.py data.db": ["server.py"],
    "env TOKEN=1 python3 server.py data.db": ["server.py"],
    "poetry run python server.py data.db": ["server.py"],
    "uv run server --db data.db": [],
    "uv run --directory . server.py data.db": ["server.py"],
    "bash tool data.db": ["tool"],
    "node --import ./hook.mjs tool data.db": ["hook.mjs"],
    "node --import=./hook.mjs tool data.db": ["hook.mjs", "tool"],
    "deno run main.ts data.db": ["main.ts"],
    "./tool data.db": ["tool"],
    "cat data.db": [],
}


@pytest.mark.parametrize("line", CASES)
def test_programs_and_scripts_are_and_data_is_not(tmp_path: Path, line: str) -> None:
    for name in ("server.py", "data.db", "tool", "hook.mjs", "main.ts"):
        (tmp_path / name).write_text("x")
    command, *args = line.split()
    text = f"mcpServers: {{s: {{command: {command}, args: {args}, cwd: {tmp_path}}}}}"
    settings = load_text(text, folder=tmp_path).settings
    assert settings is not None
    assert sorted(set(started_files(settings))) == [str(tmp_path / name) for name in CASES[line]]
