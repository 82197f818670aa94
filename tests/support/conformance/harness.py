"""The official conformance suite as a program: runs it against a URL or a client, and reads its results."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import at_most

ROOT = Path(__file__).parents[3]
NODE = str(Path(sys.executable).with_name("node"))
PACKAGES = ROOT / "tools" / "conformance" / "node_modules"
PATIENCE_S = at_most(200)
CLIENT_PATIENCE_MS = int(at_most(60) * 1000)
_RESULT = re.compile(r"(?:server-)?(.+)-\d{4}-\d\d-\d\dT[-\d]+Z")
_CHATTER = ("incoming-", "outgoing-", "stream-closed", "server-info")
"""Checks of the harness that only say what went over the wire."""


@dataclass(frozen=True)
class Wire:
    """One version of the harness, speaking one version of the protocol; what a perfect server scores with it."""

    name: str
    package: str
    options: tuple[str, ...]
    scenarios: int
    ok_checks: int

    def __str__(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return f"{self.name} ({self.scenarios} scenarios)"

    @property
    def command(self) -> list[str]:
        return [NODE, str(PACKAGES / self.package / "dist" / "index.js")]


RELEASED = Wire("0.1.16", "conformance-0.1", ("--suite", "active"), 30, 40)
LEGACY = Wire("2025-11-25", "conformance-0.2", ("--suite", "all", "--spec-version", "2025-11-25"), 33, 84)
MODERN = Wire("2026-07-28", "conformance-0.2", ("--suite", "all", "--spec-version", "2026-07-28"), 40, 152)
WIRES = (RELEASED, LEGACY, MODERN)


@dataclass(frozen=True)
class Check:
    """One thing that the harness looked at. Names tell apart what has one id in a scenario."""

    scenario: str
    id: str
    name: str
    status: str
    message: str

    @property
    def ok(self) -> bool:
        return self.status == "SUCCESS"

    def __str__(self) -> str:
        return f"{self.scenario}: {self.id} ({self.name}): {self.status}: {self.message}"


class Report:
    """What the harness found in one run."""

    def __init__(self, checks: list[Check]) -> None:
        self.checks = checks

    def count(self, status: str) -> int:
        return sum(check.status == status for check in self.checks)

    @property
    def ok_checks(self) -> int:
        return self.count("SUCCESS")

    @property
    def scenarios(self) -> set[str]:
        return {check.scenario for check in self.checks}

    @property
    def faults(self) -> list[Check]:
        """The harness lets a server pass with warnings; here they count."""
        return [check for check in self.checks if check.status in ("FAILURE", "WARNING")]

    @property
    def failed_scenarios(self) -> set[str]:
        return {check.scenario for check in self.faults}

    @property
    def passed_scenarios(self) -> set[str]:
        return self.scenarios - self.failed_scenarios

    @property
    def not_ok(self) -> list[Check]:
        """Failures, warnings, and checks that were left out or came to nothing."""
        return [check for check in self.checks if not check.ok]

    def explain(self) -> str:
        return "\n".join(map(str, self.not_ok)) or "every check is ok"

    def __str__(self) -> str:
        counts = f"{len(self.passed_scenarios)}/{len(self.scenarios)}, {self.ok_checks} ok"
        others = {"failed": "FAILURE", "warned": "WARNING", "skipped": "SKIPPED", "silent": "INFO"}
        found = [f"{count} {word}" for word, status in others.items() if (count := self.count(status))]
        return ", ".join([counts, *found])


def judge_server(wire: Wire, url: str, folder: Path, *options: str) -> Report:
    """Every scenario of a wire, or those that the options name, one after the other."""
    run([*wire.command, "server", "--url", url, *(options or wire.options)], folder)
    return read_report(folder)


def judge_client(scenario: str, version: str, command: list[str], folder: Path) -> Report:
    """One scenario in which the harness is the server, and starts the client itself."""
    asked = ["--command", " ".join(command), "--scenario", scenario, "--spec-version", version]
    patience = ["--timeout", str(CLIENT_PATIENCE_MS)]
    status = run([*MODERN.command, "client", *asked, *patience], folder)
    report = read_report(folder)
    if status != 0 and not report.failed_scenarios:
        stderr_file = next(folder.rglob("stderr.txt"), None)
        last = stderr_file.read_text("utf-8", "replace")[-2000:] if stderr_file else ""
        report.checks.append(Check(scenario, "client", "Client", "FAILURE", f"the client did not end well: {last}"))
    return report


def run(command: list[str], folder: Path) -> int:
    """The exit status; what was said is in `harness.log` of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "harness.log").open("wb") as log:
        harness = subprocess.Popen(
            [*command, "--output-dir", str(folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        return harness.wait(PATIENCE_S)
    finally:
        end(harness)


def end(harness: subprocess.Popen[bytes]) -> None:
    """With everything it started: `node` is a launcher, and clients are its children."""
    try:
        os.killpg(harness.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    harness.wait()


def read_report(folder: Path) -> Report:
    found = sorted(folder.glob("*/checks.json"))
    assert found, f"the harness left no results:\n{(folder / 'harness.log').read_text('utf-8', 'replace')[-4000:]}"
    return Report([check for file in found for check in read_checks(file)])


def read_checks(file: Path) -> Iterator[Check]:
    named = _RESULT.fullmatch(file.parent.name)
    assert named, f"not a folder of results: {file.parent.name}"
    for raw in json.loads(file.read_bytes()):
        if raw["status"] != "INFO" or not raw["id"].startswith(_CHATTER):
            yield Check(named[1], raw["id"], raw["name"], raw["status"], message_of(raw))


def message_of(raw: dict[str, Any]) -> str:
    details = raw.get("details") or {}
    return str(raw.get("errorMessage") or details.get("message") or details.get("note") or raw["description"])
