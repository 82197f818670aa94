"""CI runs failed tests again: a small project with one test of each kind, run as the suite is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import at_most

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]

SETTINGS = """
[pytest]
timeout_method = thread
markers =
    law: never run twice
    optional: may be skipped
"""
BEGINNING = """
import os, pathlib, subprocess, time
import pytest, tests.support.left_behind
tests.support.left_behind.PATIENCE_S = 0.2

def is_first_time(name):
    mark = pathlib.Path(__file__).with_name(name + ".ran")
    times = int(mark.read_text()) if mark.exists() else 0
    mark.write_text(str(times + 1))
    return times == 0

def test_fine():
    pass
"""
SHAKY = "def test_shaky{0}():\n    assert not is_first_time('shaky{0}'), 'the first {0} time'\n"
BAD = "def test_bad():\n    is_first_time('bad')\n    assert False, 'as always'\n"
LAW = "@pytest.mark.law\ndef test_law():\n    assert not is_first_time('law')\n"
LEAK = "def test_leak():\n    if is_first_time('leak'):\n        subprocess.Popen(['sleep', '30'])\n"
CRASH = "{0}def test_crash():\n    if is_first_time('crash'):\n        os._exit(1)\n"
MODULE_LEAK = """
@pytest.fixture(scope="module")
def lasting():
    if is_first_time("leak"):
        subprocess.Popen(["sleep", "30"])

def test_with_it(lasting):
    pass
"""
CHANGE = "def test_change():\n    if is_first_time('change'):\n        os.environ['CHANGED'] = 'yes'\n"
LEAK_AND_MORE = """
@pytest.fixture
def breaking():
    yield
    assert False, 'at the end'

def test_leak_and_more(breaking):
    if is_first_time('leak'):
        subprocess.Popen(['sleep', '30'])
"""
SHARED = """
@pytest.fixture(scope="module")
def shared():
    harm = []
    yield harm
    assert not harm, 'harmed'

{0}def test_that_harms(shared):
    if {1}:
        shared.append(1)

def test_last(shared):
    is_first_time('last')
"""
GIVES_UP = """
def test_gives_up():
    if is_first_time('up'):
        assert False
    {}
"""
CRASHES = "".join(f"def test_crash{number}():\n    os._exit(1)\n" for number in range(8))
HANG = "@pytest.mark.timeout(4)\ndef test_hang():\n    while is_first_time('hang'):\n        time.sleep(600)\n"
DRAWS = """
import hypothesis, hypothesis.strategies
drawn = []

@hypothesis.given(hypothesis.strategies.integers())
def test_draws(number):
    drawn.append(number)
    pathlib.Path(__file__).with_name("drawn").write_text(repr(drawn))
"""
SKIPPED = "@pytest.mark.skip(reason='why not')\ndef test_skipped():\n    pass\n"
UNREADABLE = "import no_such_module\n"


def run_tests(folder: Path, *parts: str, ci: bool = True, seed: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(BEGINNING + "\n".join(parts))
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "pytest.ini").write_text(SETTINGS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_"))}
    environment |= {"CI": "true" if ci else "", "PYTHONPATH": str(ROOT), "WORKERS": "1", "TEST_SEED": seed}
    return subprocess.run(
        [sys.executable, "-m", "tools.run_tests", f"--rootdir={folder}", "test_sample.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=at_most(90),
    )


def times(folder: Path, name: str) -> int:
    return int((folder / f"{name}.ran").read_text())


def last_lines(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return ended.stdout.splitlines()[-2:]


def test_what_passes_the_second_time_is_shaky_and_told_with_its_traceback_and_seed(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, SHAKY.format(1), seed="1234")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert times(tmp_path, "shaky1") == 2
    report = ended.stdout.partition("== shaky")[2]
    assert "test_sample.py::test_shaky1" in report
    assert "the first 1 time" in report
    assert "TEST_SEED=1234" in report
    assert last_lines(ended)[0].startswith("shaky: 1, minutes: ")
    assert last_lines(ended)[1] == "1 passed, 0 failed, 0 skipped"


def test_what_hangs_is_told_with_where_it_hangs(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, HANG)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "in test_hang\n" in ended.stdout.partition("== shaky")[2]


def test_in_ci_too_the_seed_says_what_is_drawn(tmp_path: Path) -> None:
    drawn: list[str] = []
    for seed in ("1", "1", "2"):
        assert run_tests(tmp_path, DRAWS, seed=seed).returncode == 0
        drawn.append((tmp_path / "drawn").read_text())
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_fails_twice_is_red(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, BAD, SHAKY.format(1), CRASH.format(""))
    assert ended.returncode == 1
    assert times(tmp_path, "bad") == 2
    assert last_lines(ended)[0].startswith("shaky: 2, ")
    assert last_lines(ended)[1] == "1 passed, 1 failed, 0 skipped"


def test_more_than_three_shaky_tests_are_red(tmp_path: Path) -> None:
    assert run_tests(tmp_path, *[SHAKY.format(number) for number in range(3)]).returncode == 0
    for mark in tmp_path.glob("*.ran"):
        mark.unlink()
    ended = run_tests(tmp_path, *[SHAKY.format(number) for number in range(4)])
    assert ended.returncode == 1
    assert last_lines(ended)[0].startswith("shaky: 4, ")
    assert "red: more than 3 are shaky\n" in ended.stdout


@pytest.mark.parametrize(
    ("name", "source"),
    [("law", LAW), ("leak", LEAK), ("leak", MODULE_LEAK), ("leak", LEAK_AND_MORE), ("change", CHANGE)],
    ids=["a law", "a leak", "a leak of a module", "a leak and something else", "a change"],
)
def test_a_law_and_something_left_behind_are_never_run_twice(tmp_path: Path, name: str, source: str) -> None:
    ended = run_tests(tmp_path, SHAKY.format(1), source)
    assert ended.returncode == 1
    assert times(tmp_path, name) == 1
    assert times(tmp_path, "shaky1") == 2


def test_a_law_that_took_its_worker_down_is_red_whatever_it_does_the_second_time(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, CRASH.format("@pytest.mark.law\n"))
    assert ended.returncode == 1
    assert last_lines(ended)[1] == "1 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize(
    ("source", "status", "looks"),
    [
        (SHARED.format("", "True"), 1, 2),
        (SHARED.format("", "is_first_time('harms')"), 0, 2),
        (SHARED.format("@pytest.mark.law\n", "is_first_time('harms')"), 1, 1),
    ],
    ids=["every time", "once", "by a law"],
)
def test_what_a_file_shares_is_looked_at_again_with_the_whole_file(
    tmp_path: Path, source: str, status: int, looks: int
) -> None:
    ended = run_tests(tmp_path, source)
    assert ended.returncode == status, ended.stdout
    assert times(tmp_path, "last") == looks
    assert last_lines(ended)[0].startswith(f"shaky: {1 - status}, ")


@pytest.mark.parametrize("end", ["pytest.exit('enough', 1)", "os.kill(os.getppid(), 2); time.sleep(30)"])
def test_a_second_look_that_was_not_finished_says_nothing(tmp_path: Path, end: str) -> None:
    ended = run_tests(tmp_path, GIVES_UP.format(end))
    assert ended.returncode == 1
    assert last_lines(ended)[1] == "1 passed, 1 failed, 0 skipped"


def test_what_never_ran_is_red_and_named(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, CRASHES, SHAKY.format(1))
    assert ended.returncode == 1
    assert "test_sample.py::test_shaky1" in ended.stdout.partition("\nnot run to the end:")[2]
    assert "2 passed" not in last_lines(ended)[1]


def test_by_hand_one_failure_is_red(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, SHAKY.format(1), SKIPPED, ci=False)
    assert ended.returncode == 1
    assert times(tmp_path, "shaky1") == 1
    assert last_lines(ended)[1] == "1 passed, 1 failed, 1 skipped"


def test_a_skip_in_ci_is_red(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, SKIPPED)
    assert ended.returncode == 1
    assert "when CI=true: Skipped: why not\n" in ended.stdout


def test_what_cannot_be_imported_is_red(tmp_path: Path) -> None:
    ended = run_tests(tmp_path, UNREADABLE)
    assert ended.returncode not in (0, 5)
    assert "failed:\n  test_sample.py" in ended.stdout
    assert last_lines(ended)[1] == "0 passed, 1 failed, 0 skipped"


def test_nothing_collected_is_red(tmp_path: Path) -> None:
    assert run_tests(tmp_path, "del test_fine").returncode == 5
