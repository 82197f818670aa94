from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.waiting import wait_until

from trunkline.links import crowd
from trunkline.links.crowd import Crowd, processes_below, tasks_in_system

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_the_tasks_of_the_system_are_counted() -> None:
    assert (tasks_in_system() or 0) > 1


def test_processes_below_one_are_counted_without_those_of_others() -> None:
    script = "sleep 100 & sleep 100 & wait"
    mine = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    others = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    try:
        wait_until(lambda: processes_below(os.getpid(), but_of=[others.pid]) == 3, "a shell and its two")
        wait_until(lambda: processes_below(os.getpid(), but_of=[]) == 6, "both shells and all that is theirs")
        assert processes_below(os.getpid(), but_of=[mine.pid, others.pid]) == 0
    finally:
        for process in (mine, others):
            os.killpg(process.pid, 9)
            process.wait()


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int, exact: int) -> None:
        self.tasks: int | None = 100
        self.looks = 0
        self.exact = exact
        monkeypatch.setattr(crowd, "tasks_in_system", lambda: self.tasks)
        self.crowd = Crowd(limit, self._count)

    def _count(self) -> int:
        self.looks += 1
        return self.exact


def test_the_exact_count_is_taken_only_once_the_system_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, limit=50, exact=51)
    counted.tasks = 150
    assert not counted.crowd.too_large()
    assert counted.looks == 0
    counted.tasks = 151
    assert counted.crowd.too_large()


def test_a_system_that_others_fill_is_not_counted_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, limit=50, exact=3)
    counted.tasks = 1000
    assert not any(counted.crowd.too_large() for _ in range(10))
    assert counted.looks == 1


def test_where_the_system_does_not_tell_nothing_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "tasks_in_system", lambda: None)
    assert not Crowd(1, lambda: 1000).too_large()
