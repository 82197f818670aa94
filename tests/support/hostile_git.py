"""A hostile repository: its git configuration and its relative folders in PATH name programs to run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from tests.support.waiting import at_most

BIN = Path("bin")
"""The folder with its programs, as it would stand in a careless PATH."""
_PROGRAMS = ("git", "grep", "lsb_release", "node", "ps", "rg", "sh")


def plant_repository(project: Path, mark: Callable[[str], str]) -> None:
    """Make the project one. `mark` gives, for a name, the shell command that leaves a mark of that name."""
    (project / BIN).mkdir()
    for name in (*_PROGRAMS, "monitor", "filter"):
        program = project / BIN / name
        program.write_text(f"#!/bin/sh\n{mark(name)}\n")
        program.chmod(0o755)
    stored = project / "stored"
    stored.write_text("1")
    for words in (["init", "--quiet"], ["add", "stored"]):
        subprocess.run(["git", *words], cwd=project, check=True, timeout=at_most(30))
    os.utime(stored, (1, 1))  # so that git has to look at what it holds, and runs the filter for that
    (project / ".git/info/attributes").write_text("* filter=planted diff=planted\n")
    with (project / ".git/config").open("a") as config:
        config.write(_CONFIG.replace("BIN", str(project / BIN)))


_CONFIG = dedent(
    """\
    [core]
        fsmonitor = BIN/monitor
        pager = BIN/filter
        sshCommand = BIN/filter
    [filter "planted"]
        clean = BIN/filter
        smudge = BIN/filter
    [diff]
        external = BIN/filter
    """
)
