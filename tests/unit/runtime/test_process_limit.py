from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.waiting import wait_until

from trunkline.runtime import commands
from trunkline.runtime.commands import ProcessLimit, exceeds_process_limit, tasks_in_system
from trunkline.runtime.processes import TAG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_the_tasks_of_the_system_are_counted() -> None:
    assert (tasks_in_system() or 0) > 1


@contextlib.contextmanager
def shell(script: str, tag: str = "") -> Iterator[int]:
    mark = new_mark()
    process = subprocess.Popen(["sh", "-c", script], env={**os.environ, TAG: tag, MARK: mark}, start_new_session=True)
    try:
        yield process.pid
    finally:
        kill_all(mark)
        process.wait()


def kill_all(mark: str) -> None:
    def none_left() -> bool:
        left = survivors(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait_until(none_left, "all of it is gone")


def test_the_processes_of_a_command_are_counted_without_those_of_others() -> None:
    own = os.getpid()
    two = "sleep 100 & sleep 100 & wait"
    with shell(two) as mine, shell(two) as other:
        wait_until(
            lambda: exceeds_process_limit(2, leader=mine, supervisor=own, others={"run.2": other}),
            "a shell and its two",
        )
        wait_until(
            lambda: exceeds_process_limit(5, leader=mine, supervisor=own, others={}), "both shells and what is theirs"
        )
        wait_until(
            lambda: not exceeds_process_limit(3, leader=mine, supervisor=own, others={"run.2": other}), "mine alone"
        )
        wait_until(lambda: not exceeds_process_limit(6, leader=mine, supervisor=own, others={}), "nobody else")


def test_what_has_a_session_of_its_own_is_counted_too() -> None:
    script = "for n in 1 2 3 4; do setsid sleep 100 & done; wait"
    with shell(script) as mine:
        wait_until(
            lambda: exceeds_process_limit(4, leader=mine, supervisor=os.getpid(), others={}), "a shell and its four"
        )
        wait_until(
            lambda: not exceeds_process_limit(5, leader=mine, supervisor=os.getpid(), others={}), "and nobody else"
        )
    wait_until(
        lambda: not exceeds_process_limit(0, leader=mine, supervisor=os.getpid(), others={}), "none of them is counted"
    )


@pytest.mark.parametrize("tag", ["outer.1/run.2", "outer.1/run.2/inner.1"])
def test_an_orphan_is_counted_unless_its_tag_names_another_command(tag: str) -> None:
    own = os.getpid()
    gone = 1 << 30  # no process has such a number
    with shell("sleep 100", "outer.1/run.1") as mine, shell("sleep 100 & wait", tag):
        wait_until(
            lambda: exceeds_process_limit(2, leader=mine, supervisor=own, others={}), "both shells and what is theirs"
        )
        assert exceeds_process_limit(2, leader=mine, supervisor=own, others={"outer.1/run.21": gone})
        # what an earlier test left may still be ending below us
        wait_until(
            lambda: not exceeds_process_limit(2, leader=mine, supervisor=own, others={"outer.1/run.2": gone}),
            "mine alone",
        )


def test_a_command_that_has_the_number_of_one_that_is_ending_is_counted() -> None:
    own = os.getpid()
    with shell("setsid sleep 100 & wait") as mine:
        wait_until(
            lambda: exceeds_process_limit(1, leader=mine, supervisor=own, others={"run.2": mine}), "a shell and its one"
        )


def test_where_the_system_does_not_tell_nothing_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "tasks_in_system", lambda: None)
    assert not ProcessLimit(1, lambda: True).exceeded()
