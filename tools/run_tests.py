"""Runs the tests: `python -m tools.run_tests [arguments of pytest]`. Ends with 0 if they can be believed to pass.

By hand, one failure is red. With CI=true, what failed is run once more, alone, after the rest: what fails twice is red,
what passes the second time is *shaky* and told with its first traceback; more than three shaky tests are red too. A
test marked as a law is not run again: there a single failure is the finding. What failed at its end is run again with
all tests of its file: fixtures that a file shares end with its last test, whichever of them did the harm.
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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.support.processes import descendants

MAX_SHAKY = 3
MAX_SECOND_LOOKS = 20
"""With more failures than that, what is wrong is wrong with all of them."""
SLOWEST = 10
MAX_WORKERS = 32
"""Each takes a block of ports for its servers, of which there are 60."""
SEEDS = 2**32


@dataclass
class Record:
    """What became of one test, over its set-up, call and teardown."""

    seconds: float = 0.0
    outcome: str = "unfinished"
    at_its_end: bool = False
    """It failed in its teardown."""
    law: bool = False
    traceback: str = ""


@dataclass
class Results:
    """A pytest plugin that keeps what became of each test, wherever it ran."""

    stacks: str
    """A folder in which each worker writes where a test hangs."""
    tests: dict[str, Record] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    """Modules that could not be imported."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        for name in ids:
            self.tests.setdefault(name, Record())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = self.tests.setdefault(report.nodeid, Record())
        record.seconds += getattr(report, "duration", 0.0)
        record.law = record.law or "law" in report.keywords
        if report.failed:
            record.outcome = "failed"
            record.at_its_end = report.when == "teardown"
            record.traceback = record.traceback or report.longreprtext
        elif record.outcome == "unfinished" and (report.skipped or report.when == "call"):
            record.outcome = "skipped" if report.skipped else "passed"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["stacks"] = self.stacks

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        """A test that hung too long took its worker down, which wrote before where it hung."""
        with contextlib.suppress(FileNotFoundError):
            report.longrepr += "\n" + Path(self.stacks, report.node.gateway.id).read_text()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.unreadable.append(report.nodeid)

    def with_outcome(self, outcome: str) -> list[str]:
        return [name for name, record in self.tests.items() if record.outcome == outcome]

    def of_file(self, name: str) -> list[Record]:
        return [record for other, record in self.tests.items() if file_of(other) == file_of(name)]

    def is_law(self, name: str) -> bool:
        """Where a fixture broke that a file shares, any law of that file may have."""
        record = self.tests[name]
        return record.law or (record.at_its_end and any(other.law for other in self.of_file(name)))


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    seed = int(os.environ.get("TEST_SEED") or random.randrange(SEEDS)) % SEEDS
    os.environ |= {"TEST_SEED": str(seed), "PYTHONHASHSEED": str(seed)}
    results, status = run(["-n", workers(), "--dist", "worksteal", f"--hypothesis-seed={seed}", *arguments])
    failed, shaky = results.with_outcome("failed"), []
    believed = status in {0, 1} and not results.unreadable and not results.with_outcome("unfinished")
    if os.environ.get("CI") == "true" and status == 1 and believed:
        failed, shaky = look_again(results, [f"--hypothesis-seed={seed}", *filter(is_kept, arguments)])
    print_summary(results, results.unreadable + failed, shaky, seed, time.monotonic() - began)
    if not believed or not (status == 0 or failed or shaky):
        return status or 1
    return 1 if failed or len(shaky) > MAX_SHAKY else 0


def workers() -> str:
    """Twice as many as there are cores: every other test waits for a program that it started, or for a timer."""
    return os.environ.get("WORKERS") or str(min(2 * len(os.sched_getaffinity(0)), MAX_WORKERS))


def run(arguments: list[str]) -> tuple[Results, int]:
    with TemporaryDirectory(prefix="trunkline-test-stacks-") as stacks:
        results = Results(stacks)
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
    doubted = [name for name in failed if not results.is_law(name)]
    if len(doubted) > MAX_SECOND_LOOKS:
        print(f"\nNothing is run again: more than {MAX_SECOND_LOOKS} failed")
        return failed, []
    if not doubted:
        return failed, []
    print(f"\nOnce more, alone: {len(doubted)} of {len(failed)} that failed", flush=True)
    files = {file_of(name) for name in doubted if results.tests[name].at_its_end}
    again, status = run(["-n", "1", *options, *files, *(name for name in doubted if file_of(name) not in files)])
    if status not in {0, 1} or again.with_outcome("unfinished"):
        return failed, []
    shaky = [name for name in doubted if passed_again(name, again, with_its_file=file_of(name) in files)]
    return [name for name in failed if name not in shaky], shaky


def is_kept(argument: str) -> bool:
    """Of the arguments, only where the project is says how its tests are run, and not which or how that is told."""
    return argument.startswith("--rootdir=")


def file_of(name: str) -> str:
    return name.partition("::")[0]


def passed_again(name: str, again: Results, *, with_its_file: bool) -> bool:
    """A test that took its worker down says only the second time whether it is a law."""
    record = again.tests.get(name, Record())
    others = again.of_file(name) if with_its_file else []
    return record.outcome == "passed" and not record.law and all(other.outcome != "failed" for other in others)


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
    print_names("not run to the end", results.with_outcome("unfinished"))
    passed, skipped = results.with_outcome("passed"), results.with_outcome("skipped")
    print(f"seed: {seed} (again with TEST_SEED={seed})")
    if len(shaky) > MAX_SHAKY:
        print(f"red: more than {MAX_SHAKY} are shaky")
    print(f"shaky: {len(shaky)}, minutes: {seconds / 60:.1f}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)


def slowest(tests: dict[str, Record]) -> Iterable[str]:
    return sorted(tests, key=lambda name: tests[name].seconds, reverse=True)[:SLOWEST]


def print_names(heading: str, names: list[str]) -> None:
    if names:
        print(f"{heading}:", *names, sep="\n  ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
