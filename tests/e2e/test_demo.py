"""What `make run` starts: the demonstration's configuration is valid, comes up and answers."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.client import HttpClient
from tests.support.gateway import TRUNKLINE
from tests.support.peers.programs import ROOT
from tests.support.ports import free_port
from tests.support.waiting import wait_until

CONFIG = "examples/demo/trunkline.yaml"


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[int]:
    """The port of the running demonstration, which keeps its state in a home of its own."""
    port = free_port()
    log_path = tmp_path / "demo.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [TRUNKLINE, "up", "-c", CONFIG, "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: answers(process, port, log_path), "the demonstration is ready", 30)
        yield port
    finally:
        process.terminate()
        status = process.wait(30)
    assert status == 0, log_path.read_text()


def answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def test_make_run_starts_the_demonstration() -> None:
    steps = subprocess.run(["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert f"trunkline up -c {CONFIG}" in steps.stdout


def test_its_configuration_has_no_problems() -> None:
    check = subprocess.run([TRUNKLINE, "check", CONFIG], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (check.returncode, check.stderr) == (0, "")


async def test_it_lists_tools_of_every_server_and_runs_them(demo: int) -> None:
    async with HttpClient(demo) as client:
        assert {"clock_now", "clock_days_between", "text_reverse"} <= await client.tool_names()
        days = await client.call("clock_days_between", {"first": "2026-01-01", "last": "2026-07-28"})
        assert days.text == "208"
        assert (await client.call("text.reverse", {"text": "live"})).text == "evil"
