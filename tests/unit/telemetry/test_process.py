from __future__ import annotations

import time
from pathlib import Path

import pytest

from trunkline.telemetry.metrics import process_metrics


def values(**options) -> dict[str, float]:
    return {name: value for name, _, _, value in process_metrics(**options)}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this platform has no /proc")
def test_memory_and_open_files_are_those_of_this_process(tmp_path):
    with (tmp_path / "a").open("w"):
        more = values()["process_open_fds"]
    now = values()
    assert now["process_open_fds"] == more - 1
    assert 1e6 < now["process_resident_memory_bytes"] < now["process_virtual_memory_bytes"]


def test_without_proc_the_portable_readings_remain(tmp_path):
    readings = values(proc=tmp_path)
    assert set(readings) == {"process_cpu_seconds_total", "process_start_time_seconds"}
    assert 0 < readings["process_start_time_seconds"] <= time.time()
