"""Every worker collects the same tests: no name depends on the clock, on a process or on the order of a set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import at_most

ROOT = Path(__file__).parents[2]


def test_another_process_collects_the_same_tests_at_another_time(request: pytest.FixtureRequest) -> None:
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        timeout=at_most(100),
        check=True,
    )
    assert {item.nodeid for item in request.session.items} <= set(collected.stdout.splitlines())
