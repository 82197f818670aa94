"""A whole run without any data but our own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pairs import IN_FULL
from tests.support.waiting import at_most

ROOT = Path(__file__).parents[4]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.discovery", "--quick", "--folder", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=at_most(110), check=False)


@pytest.mark.slow
def test_a_quick_run_measures_everything_on_the_own_set(tmp_path):
    """The searches at least: costs and contexts start many programs, and are for `make test-all`."""
    ran = run(tmp_path, *([] if IN_FULL else ["--parts", "quality", "--queries", "5"]))
    assert ran.returncode == 0, ran.stderr
    written = (tmp_path / "RESULTS.md").read_text()
    for part in ("## Bars", "## Quality", "## Cost", "## Context", "## Method") if IN_FULL else ("## Quality",):
        assert part in written
    record = json.loads((tmp_path / "last.json").read_text())
    assert {row["method"] for row in record["quality"]} == {"plain", "fastmcp", "lexical", "full"}
    if IN_FULL:
        assert record["costs"]["meaning"]["encoded"] == record["costs"]["meaning"]["tools"]
        assert record["costs"]["meaning_again"]["encoded"] == 0
        assert all(row["found"] > 0 for row in record["context"])
        assert all(row["told"] == row["searched"] for row in record["context"])


@pytest.mark.slow
def test_a_folder_without_sets_is_refused(tmp_path):
    ran = run(tmp_path / "work", "--data", str(tmp_path))
    assert ran.returncode == 1
    assert "README.md" in ran.stderr
