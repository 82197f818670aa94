"""Records of the gateways that run on this machine."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import at_most

from trunkline.runtime.gateway_records import (
    LOCK,
    RECORD,
    Announcement,
    RunningGateway,
    all_running,
    announce_running,
    find_running,
    running_record,
)

_HOLD = """
import sys, time
from pathlib import Path
from trunkline.runtime.gateway_records import RunningGateway, announce_running
record = RunningGateway(7, "http://127.0.0.1:1/mcp", "/c", "1", "2026-01-01T00:00:00Z")
held = announce_running(Path(sys.argv[1]), record)
print(held.reason or "held", flush=True)
time.sleep(60)
"""


def record(pid: int = 7, started: str = "2026-01-01T00:00:00Z") -> RunningGateway:
    return RunningGateway(pid, "http://127.0.0.1:4747/mcp", "/etc/trunkline.yaml", "1.0", started, "/run/t.sock")


def _text(**changes: object) -> bytes:
    fields = {"pid": 7, "url": "http://h:1/", "config": "", "version": "", "started": ""}
    return json.dumps(fields | changes).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "gateways" / "0123456789abcdef"


@pytest.fixture
def held(folder: Path) -> Iterator[Announcement]:
    announcement = announce_running(folder, record())
    assert announcement.reason == ""
    yield announcement
    announcement.close()


def test_a_gateway_is_found_while_it_runs_and_not_after(folder: Path, held: Announcement) -> None:
    assert find_running(folder) == record()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / RECORD).stat().st_mode) == 0o600
    held.close()
    assert find_running(folder) is None
    assert not (folder / RECORD).exists()
    held.close()


def test_no_folder_means_no_gateway(tmp_path: Path) -> None:
    assert find_running(tmp_path / "missing") is None
    assert find_running(tmp_path / "nul\0") is None
    assert all_running(tmp_path / "missing") == []


def test_a_second_gateway_of_the_same_file_gets_no_record_and_takes_none_away(folder: Path, held: Announcement) -> None:
    second = announce_running(folder, record(pid=8))
    assert "another gateway runs" in second.reason
    second.close()
    assert find_running(folder) == record()


def test_a_killed_gateway_leaves_a_record_that_nobody_believes(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert find_running(folder) is not None
        process.send_signal(signal.SIGKILL)
        process.wait(at_most(30))
    assert (folder / RECORD).exists()
    assert find_running(folder) is None
    again = announce_running(folder, record(pid=9))
    assert again.reason == ""
    assert find_running(folder) == record(pid=9)
    again.close()


def test_all_that_run_are_listed_the_oldest_first(tmp_path: Path) -> None:
    younger = announce_running(tmp_path / "gateways" / "a", record(1, "2026-02-01T00:00:00Z"))
    older = announce_running(tmp_path / "gateways" / "b", record(2, "2026-01-01T00:00:00Z"))
    (tmp_path / "gateways" / "stray").write_text("not a folder")
    (tmp_path / "gateways" / "empty").mkdir()
    assert [running.pid for running in all_running(tmp_path)] == [2, 1]
    younger.close()
    older.close()
    assert all_running(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b'{"pid": "7"}',
        _text(config=1),
        _text(pid=0),
        _text(url="file:///etc"),
        _text(url="http://h:99999/"),
        _text(url="http://h\n:1/"),
        _text(url="http://h:1/" + "x" * 70_000),
    ],
)
def test_an_unreadable_record_is_no_record(folder: Path, held: Announcement, text: bytes) -> None:
    (folder / RECORD).write_bytes(text)
    assert find_running(folder) is None


def test_a_record_that_others_can_write_is_not_believed(folder: Path, held: Announcement) -> None:
    (folder / RECORD).chmod(0o666)
    assert find_running(folder) is None


@pytest.mark.parametrize("name", [RECORD, LOCK])
@pytest.mark.parametrize("obstacle", ["pipe", "folder", "link", "dangling"])
def test_odd_things_in_the_folder_never_stop_or_delay_a_start(folder: Path, name: str, obstacle: str) -> None:
    folder = folder / f"{name} {obstacle}"
    folder.mkdir(parents=True)
    path = folder / name
    if obstacle == "pipe":
        os.mkfifo(path)
    elif obstacle == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null" if obstacle == "link" else "nowhere")
    announcement = announce_running(folder, record())
    found = find_running(folder)
    announcement.close()
    assert (found is None) == bool(announcement.reason)


def test_a_state_folder_that_cannot_be_made_costs_the_record_only(tmp_path: Path) -> None:
    (tmp_path / "gateways").write_text("in the way")
    announcement = announce_running(tmp_path / "gateways" / "key", record())
    assert "cannot be written" in announcement.reason
    announcement.close()


def test_the_record_tells_an_address_that_can_be_dialled() -> None:
    def url(host: str) -> str:
        return running_record(host=host, port=1, socket=None, config=Path("/c"), version="1").url

    assert url("0.0.0.0") == "http://127.0.0.1:1/mcp"
    assert url("::") == "http://[::1]:1/mcp"
    assert url("localhost") == "http://localhost:1/mcp"
    assert running_record(host="::1", port=1, socket=Path("/s"), config=Path("/c"), version="1").pid == os.getpid()
