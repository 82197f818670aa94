"""tests/conftest.py: a leak fails the test that leaked, and in CI a skip is a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import at_most

ROOT = Path(__file__).parents[2]

LEAKS = """
import asyncio, os, subprocess, threading, time
import tests.conftest
tests.support.left_behind.PATIENCE_S = 0.5

def test_process():
    global p
    p = subprocess.Popen(["sleep", "30"])

def test_orphan():
    subprocess.run(["sh", "-c", "setsid sleep 30 & exit 0"])

def test_file():
    os.open("/dev/null", os.O_RDONLY)

def test_thread():
    threading.Thread(target=time.sleep, args=(2,)).start()

async def test_task():
    global t
    t = asyncio.get_running_loop().create_task(asyncio.sleep(30))

async def test_unseen_task():
    task = asyncio.get_running_loop().create_task(asyncio.sleep("no number"))
    await asyncio.sleep(0.01)

async def test_unseen_callback():
    asyncio.get_running_loop().call_soon(int, "no number")
    await asyncio.sleep(0.01)

def test_tidy():
    subprocess.run(["true"])
"""
SKIPS = """
import pytest

@pytest.mark.skip(reason="why not")
def test_skipped():
    pass

@pytest.mark.optional
@pytest.mark.skip(reason="not here")
def test_optional():
    pass

@pytest.mark.xfail
def test_expected():
    assert False
"""
SKIPPED_MODULE = "import pytest\npytest.skip('why not at all', allow_module_level=True)\n"


def run_pytest(folder: Path, *, ci: bool = False, **sources: str) -> tuple[dict[str, set[str]], str]:
    """The outcomes of each test, which may be of its call and of what came after it, and all that was said."""
    for name, source in sources.items():
        (folder / f"test_{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-rA"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CI": "true" if ci else "", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [*command, "-W", "ignore", "--continue-on-collection-errors", "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=at_most(60),
    )
    outcomes: dict[str, set[str]] = {}
    for outcome, name in re.findall(r"^([A-Z]+) test_\w+\.py(?:::(\w+))?", ended.stdout, re.MULTILINE):
        outcomes.setdefault(name, set()).add(outcome)
    return outcomes, ended.stdout


def test_a_leak_fails_the_test_that_leaked_and_no_other(tmp_path: Path) -> None:
    outcomes, said = run_pytest(tmp_path, leaks=LEAKS)
    leaky = {name for name, found in outcomes.items() if "ERROR" in found}
    left = {"test_process", "test_orphan", "test_file", "test_thread", "test_task"}
    assert leaky == left | {"test_unseen_task", "test_unseen_callback"}, said
    assert outcomes["test_tidy"] == {"PASSED"}
    faults = re.findall(r"^E +tests\.\S+LeftBehind: (left behind|tasks without an owner)", said, re.MULTILINE)
    assert sorted(faults) == ["left behind"] * 4 + ["tasks without an owner"], said
    assert len(re.findall(r"^E +AssertionError: errors that only asyncio saw: ", said, re.MULTILINE)) == 2, said


def test_a_skip_is_a_failure_in_ci_only(tmp_path: Path) -> None:
    outcomes, said = run_pytest(tmp_path, skips=SKIPS, module=SKIPPED_MODULE)
    assert outcomes == {"test_expected": {"XFAIL"}}, said
    assert "3 skipped" in said, said


def test_in_ci_all_may_be_skipped_that_is_optional_and_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    outcomes, said = run_pytest(tmp_path, ci=True, skips=SKIPS, module=SKIPPED_MODULE)
    assert outcomes == {"test_skipped": {"ERROR"}, "": {"ERROR"}, "test_expected": {"XFAIL"}}, said
    assert said.count("skipped, which counts as a failure when CI=true") >= 2, said
    assert "why not at all" in said
    assert "1 skipped" in said, said
