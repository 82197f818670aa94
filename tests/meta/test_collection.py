"""Every worker collects the same tests: no name depends on the clock, on a process or on the order of a set.

A part of the files is looked at, another with every seed; `make test-all` looks at all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pairs import IN_FULL
from tests.support.waiting import at_most

ROOT = Path(__file__).parents[2]
PARTS = 1 if IN_FULL else 8
SEED = int(os.environ.get("TEST_SEED", "0"))


@pytest.mark.slow
def test_another_process_collects_the_same_tests_at_another_time(request: pytest.FixtureRequest) -> None:
    files = sorted({item.path.relative_to(ROOT).as_posix() for item in request.session.items})
    looked_at = files[SEED % PARTS :: PARTS] or files
    collected = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *looked_at,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(SEED % 1000 + 1)},
        capture_output=True,
        text=True,
        timeout=at_most(100),
        check=True,
    )
    expected = {item.nodeid for item in request.session.items if item.nodeid.partition("::")[0] in looked_at}
    assert expected <= set(collected.stdout.splitlines())
