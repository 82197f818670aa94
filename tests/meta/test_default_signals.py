"""Programs that tests start get the default signal handlers, however the suite was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import at_most, wait_until

ROOT = Path(__file__).parents[2]
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP)
BLOCKED = (signal.SIGINT, signal.SIGCHLD)
SAMPLE = f"""
import signal, subprocess, sys

LOOK = '''
import signal
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
for number in {[int(number) for number in IGNORED]}:
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler), number
'''

def test_what_is_started_here():
    subprocess.run([sys.executable, "-I", "-S", "-c", LOOK], check=True)
"""


def start_badly() -> None:
    """As `nohup`, and the background jobs of a shell, and careless parents do."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)


@pytest.mark.parametrize("how", [[], ["-n", "1"]], ids=["alone", "in a worker"])
def test_ignored_and_blocked_signals_are_not_passed_on(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", str(tmp_path), *how],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        preexec_fn=start_badly,
        capture_output=True,
        text=True,
        timeout=at_most(60),
    )
    assert ended.returncode == 0, ended.stdout


WAITS = """
import pathlib, time

def test_it_waits():
    folder = pathlib.Path(__file__).parent
    (folder / "begun").touch()
    while not (folder / "go on").exists():
        time.sleep(0.01)
"""


def test_a_run_that_was_started_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_sample.py").write_text(WAITS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_"))}
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "tools.run_tests", f"--rootdir={tmp_path}"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT), "WORKERS": "1"},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until((tmp_path / "begun").exists, "a test runs", 60)
        os.killpg(process.pid, signal.SIGHUP)
        (tmp_path / "go on").touch()
        assert process.wait(at_most(60)) == 0
    finally:
        process.kill()
        process.wait()
