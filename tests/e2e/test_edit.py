"""`trunkline add` and `remove` change the servers of a running gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.gateway import TRUNKLINE
from tests.support.trust import trust
from tests.support.waiting import at_most

CONFIG = "# mine\ngateway: {listen: '127.0.0.1:0', state_dir: state}\n"


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder)}


def trunkline(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [TRUNKLINE, *args], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=at_most(60)
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "trunkline.yaml").write_text(CONFIG)
    trust(tmp_path, environment(tmp_path))
    with subprocess.Popen(
        [TRUNKLINE, "up"], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(at_most(30))


def logged(process: subprocess.Popen[str], event: str, **members: str) -> dict[str, str]:
    """The next line of the log that says this."""
    assert process.stderr is not None
    for line in process.stderr:
        record = json.loads(line)
        if record["event"] == event and members.items() <= record.items():
            return record
    raise AssertionError(f"the gateway ended without {event}")


def test_a_running_gateway_takes_up_what_is_added_and_removed(tmp_path: Path, gateway: subprocess.Popen[str]) -> None:
    url = logged(gateway, "started")["url"]
    added = trunkline(tmp_path, "add", "notes", "--", sys.executable, "-m", "trunkline.demo", "notes")
    assert f"The gateway at {url} picks up the change automatically" in added
    logged(gateway, "health", source="notes", state="ready")
    trunkline(tmp_path, "remove", "notes")
    assert "notes" in logged(gateway, "reloaded")["message"]
    assert (tmp_path / "trunkline.yaml").read_text() == f"{CONFIG}mcpServers:\n"
