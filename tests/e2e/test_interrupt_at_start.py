"""Ctrl+C while a command starts: exit status 130, no traceback, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.commands import environment
from tests.support.pairs import IN_FULL
from tests.support.waiting import at_most, wait_until

pytestmark = pytest.mark.slow

STRUCK = """
import json, os, signal, sys, threading

how, number = sys.argv[1], float(sys.argv[2])
sys.argv = ["trunkline", *sys.argv[3:]]
imports = 0

def strike():
    os.kill(os.getpid(), signal.SIGINT)

def look(event, args):
    global imports
    if event != "import" or (imports == 0 and args[0] != "trunkline.runtime.processes"):
        return
    imports += 1
    if how == "imports" and imports == number:
        strike()
    elif how == "seconds" and imports == 1:
        timer = threading.Timer(number, strike)
        timer.daemon = True
        timer.start()

sys.addaudithook(look)
from trunkline.cli import main
main()
"""
"""The command, struck as soon as it has imported so much, or so long after it began to."""
COMMANDS = {
    "run": ["run", "flow.yaml"],
    "agent": ["agent", "claude", "--", "-p", "hi"],
    "up": ["up", "-c", "gateway.json"],
    "stdio": ["stdio", "-c", "gateway.json"],
    "call": ["call", "Read", "path=flow.yaml", "-c", "gateway.json"],
    "validate": ["validate", "flow.yaml"],
}
ENDS_BY_ITSELF = ("call", "validate")
MOMENTS = [("imports", float(number)) for number in (range(1, 400, 20) if IN_FULL else (1, 60, 200))]
MOMENTS += [("seconds", hundredths / 100) for hundredths in (range(2, 102, 4) if IN_FULL else (20, 60))]


def write_files(folder: Path) -> None:
    """A workflow that goes on for ever, a gateway, and an agent that never says what it is."""
    slow = {"type": "step", "command": "sleep 1000"}
    (folder / "flow.yaml").write_text(json.dumps({"name": "x", "states": {"initial": "slow", "slow": slow}}))
    gateway = {"listen": "127.0.0.1:0", "state_dir": str(folder / "state")}
    sources = {"files": {"kind": "builtin", "root": ".", "tools": {"allow": ["Read", "Bash"]}}}
    (folder / "gateway.json").write_text(json.dumps({"gateway": gateway, "sources": sources}))
    (folder / "claude").write_text("#!/bin/sh\nsleep 1000\n")
    (folder / "claude").chmod(0o755)


@pytest.mark.parametrize(("how", "number"), MOMENTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_interrupted_while_it_starts_ends_without_a_traceback(
    tmp_path: Path, command: str, how: str, number: float
) -> None:
    write_files(tmp_path)
    mark = new_mark()
    environ = environment(tmp_path, **{MARK: mark, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    held, holding = os.pipe()  # whoever reads from it waits
    with subprocess.Popen(
        [sys.executable, "-c", STRUCK, how, str(number), *COMMANDS[command]],
        cwd=tmp_path,
        env=environ,
        stdin=held,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=at_most(30))
        finally:
            process.kill()
            os.close(held)
            os.close(holding)
    assert "Traceback" not in errors
    assert "Exception" not in errors
    # one that had just ended dies of it, which is 130 to a shell
    fine = {130, 0, -signal.SIGINT} if command in ENDS_BY_ITSELF else {130}
    assert process.returncode in fine, errors
    wait_until(lambda: survivors(mark) == [], "nothing is left", 20)
