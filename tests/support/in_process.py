"""Runs `trunkline` commands within the test process, for their output and exit status."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from click.testing import CliRunner
from tests.support.commands import Done, environment

from trunkline.cli.main import main


def trunkline_here(*args: str, cwd: Path, stdin: str | bytes = b"", env: dict[str, str] | None = None) -> Done:
    """As `commands.trunkline` runs it, with a home of its own and pipes, at a fraction of the cost.

    A crash is raised. There are no colours to look for: nothing here knows a terminal from a pipe.
    """
    # uvloop keeps a pipe for signals as long as the process lives
    whole = environment(cwd, TRUNKLINE_LOOP="asyncio", **(env or {}))
    runner = CliRunner(catch_exceptions=False, env={**dict.fromkeys(os.environ), **whole})
    with contextlib.chdir(cwd):
        done = runner.invoke(main, args, input=stdin, prog_name="trunkline")
    return subprocess.CompletedProcess(["trunkline", *args], done.exit_code, done.stdout, done.stderr)
