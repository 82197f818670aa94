"""Runs the tests: `python -m tools.run_tests [arguments of pytest]`. Ends with 0 if they can be believed to pass.

By hand, one failure is red. With CI=true, what failed is run once more, alone, after the rest: what fails twice is red,
what passes the second time is *shaky* and told with its first traceback; more than three shaky tests are red too. A
test marked as a law is not run again: there a single failure is the finding.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.processes import descendants

MAX_SHAKY = 3
MAX_SECOND_LOOKS = 20
"""With more failures than that, what is wrong is wrong with all of them."""
SLOWEST = 10
SEEDS = 2**32


@dataclass
class Record:
    """What became of one test, over its set-up, call and teardown."""

    seconds: float = 0.0
    outcome: str = "passed"
    law: bool = False
    traceback: str = ""


@dataclass
class Results:
    """A pytest plugin that keeps what became of each test, wherever it ran."""

    tests: dict[str, Record] = field(default_factory=dict)
    broken: bool = False
    """Something failed that is not a test: its module could not be imported, for one."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = self.tests.setdefault(report.nodeid, Record())
        record.seconds += getattr(report, "duration", 0.0)
        record.law = record.law or "law" in report.keywords
        if report.failed:
            record.outcome = "failed"
            record.traceback = record.traceback or report.longreprtext
        elif report.skipped and record.outcome == "passed":
            record.outcome = "skipped"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.broken = self.broken or report.failed

    def with_outcome(self, outcome: str) -> list[str]:
        return [name for name, record in self.tests.items() if record.outcome == outcome]


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    seed = int(os.environ.get("TEST_SEED") or random.randrange(SEEDS)) % SEEDS
    os.environ |= {"TEST_SEED": str(seed), "PYTHONHASHSEED": str(seed)}
    results, status = run(["-n", workers(), "--dist", "worksteal", f"--hypothesis-seed={seed}", *arguments])
    failed, shaky = results.with_outcome("failed"), []
    if os.environ.get("CI") == "true" and status == 1 and not results.broken:
        failed, shaky = look_again(results, [f"--hypothesis-seed={seed}", *filter(is_kept, arguments)])
    print_summary(results, failed, shaky, seed, time.monotonic() - began)
    explained = status == 0 or (status == 1 and (failed or shaky) and not results.broken)
    if not explained:
        return status or 1
    return 1 if failed or len(shaky) > MAX_SHAKY else 0


def workers() -> str:
    """Twice as many as there are cores: every other test waits for a program that it started, or for a timer."""
    return os.environ.get("WORKERS") or str(2 * (os.cpu_count() or 1))


def run(arguments: list[str]) -> tuple[Results, int]:
    results = Results()
    try:
        return results, int(pytest.main(arguments, plugins=[results]))
    finally:
        end_what_is_left()


def end_what_is_left() -> None:
    """What was below a worker that went down with its test: orphans come to this process."""
    for process in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def look_again(results: Results, options: list[str]) -> tuple[list[str], list[str]]:
    """What failed and what is only shaky, after a second run of what may be run twice."""
    failed = results.with_outcome("failed")
    doubted = [name for name in failed if not results.tests[name].law]
    if not doubted or len(doubted) > MAX_SECOND_LOOKS:
        return failed, []
    print(f"\nOnce more, alone: {len(doubted)} of {len(failed)} that failed", flush=True)
    again, _ = run(["-n", "1", *options, *doubted])
    shaky = [name for name in doubted if is_shaky(again.tests.get(name))]
    return [name for name in failed if name not in shaky], shaky


def is_kept(argument: str) -> bool:
    """Of the arguments, only where the project is says how its tests are run, and not which or how that is told."""
    return argument.startswith("--rootdir=")


def is_shaky(second: Record | None) -> bool:
    """A test that took its worker down says only the second time whether it is a law."""
    return second is not None and second.outcome == "passed" and not second.law


def print_summary(results: Results, failed: list[str], shaky: list[str], seed: int, seconds: float) -> None:
    if shaky:
        print("\n== shaky: failed, then passed alone; a defect of the product or of the test ==")
    for name in shaky:
        print(f"\n{name}\n{results.tests[name].traceback}")
    print("\nslowest:")
    for name in slowest(results.tests):
        print(f"  {results.tests[name].seconds:6.1f} s  {name}")
    print_names("failed", failed)
    print_names("shaky", shaky)
    passed, skipped = results.with_outcome("passed"), results.with_outcome("skipped")
    print(f"seed: {seed} (again with TEST_SEED={seed})")
    print(f"shaky: {len(shaky)}, minutes: {seconds / 60:.1f}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)


def slowest(tests: dict[str, Record]) -> Iterable[str]:
    return sorted(tests, key=lambda name: tests[name].seconds, reverse=True)[:SLOWEST]


def print_names(heading: str, names: list[str]) -> None:
    if names:
        print(f"{heading}:", *names, sep="\n  ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
