from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.support.child_trees import PLAIN_TREE, WILD_TREE, marked, new_mark, survivors
from tests.support.waiting import at_most, wait_until

from trunkline.runtime.processes import TAG, child_in_tag, kill_run, make_tag, process_table, tag_of, with_descendants

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"), pytest.mark.law]


def start(script: str, **env: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sh", "-c", script], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(process: subprocess.Popen[bytes]) -> None:
    process.stdin.close()
    process.stdout.close()
    process.wait(at_most(15))


def test_a_tag_names_the_child_of_its_own_run_only(monkeypatch):
    monkeypatch.delenv(TAG, raising=False)
    assert child_in_tag(make_tag("run", 7), "run") == 7
    assert child_in_tag(make_tag("run", 7), "other") is None


def test_a_gateway_behind_a_gateway_keeps_the_outer_tag(monkeypatch):
    monkeypatch.setenv(TAG, "outer.3")
    tag = make_tag("inner", 1)
    assert (child_in_tag(tag, "outer"), child_in_tag(tag, "inner")) == (3, 1)


@pytest.mark.parametrize("tag", ["", "run", "run.", "run.x", "/", "run.1x", "xrun.1"])
def test_a_tag_that_is_not_one_names_nothing(tag):
    assert child_in_tag(tag, "run") is None


def test_the_tag_is_read_from_the_environment_of_a_process_however_large():
    process = start("echo ready; read line", PATH=os.environ["PATH"], A="x" * 10_000, **{TAG: "run.5"}, Z="y" * 10_000)
    assert tag_of(process.pid) == "run.5"
    finish(process)
    assert tag_of(process.pid) == ""


@pytest.mark.parametrize(("cut", "found"), [(0, "run.21"), (1, ""), (2, ""), (30, "")])
def test_a_tag_that_is_cut_where_the_reading_ends_is_none_at_all(cut, found):
    page = 4096
    behind_filler = len(f"\0{TAG}=run.21\0") - cut
    process = start(
        "echo ready; read line", A="x" * (page - behind_filler - len("A=")), **{TAG: "run.21"}, Z="y" * page
    )
    assert tag_of(process.pid, within=page) == found
    assert tag_of(process.pid) == "run.21"
    finish(process)


def test_the_table_knows_parents_groups_and_sessions_whatever_a_program_is_called(tmp_path):
    odd = tmp_path / ") R 1 1 (x"
    odd.write_text("#!/bin/sh\necho ready\nread line\n")
    odd.chmod(0o755)
    process = subprocess.Popen([odd], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"ready\n"
    entry = process_table()[process.pid]
    assert (entry.parent, entry.group, entry.session, entry.dead) == (os.getpid(), process.pid, process.pid, False)
    process.kill()
    wait_until(lambda: process_table()[process.pid].dead, "it is a zombie")
    finish(process)
    assert process.pid not in process_table()


def test_a_program_whose_first_thread_ended_is_not_dead():
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"

    def looks_like_a_zombie() -> bool:
        with open(f"/proc/{process.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"

    wait_until(looks_like_a_zombie, "its first thread has ended")
    assert not process_table()[process.pid].dead
    process.kill()
    finish(process)


def test_descendants_are_the_living_below():
    process = start(PLAIN_TREE, PATH=os.environ["PATH"])
    wait_until(lambda: len(_below(process.pid)) == 4, "the tree is grown")
    for pid in _below(process.pid):
        os.kill(pid, signal.SIGKILL)
    finish(process)


def _below(pid: int) -> list[int]:
    table = process_table()
    return [process.pid for process in with_descendants([table[pid]], table)]


def test_what_a_run_left_behind_is_killed_by_its_tag_and_nothing_else():
    mark, other_mark, run = new_mark(), new_mark(), new_mark()
    process = start(WILD_TREE, **marked(mark, **{TAG: f"outer.1/{run}.2"}))
    other = start("echo ready; read line", **marked(other_mark, **{TAG: f"another{run}.2"}))
    assert kill_run(run, [], portable=False, limit_s=at_most(15))
    assert survivors(mark) == []
    assert survivors(other_mark) == [other.pid]
    finish(process)
    finish(other)


def test_what_a_run_left_behind_is_killed_by_its_groups_where_there_are_no_tags():
    mark = new_mark()
    process = subprocess.Popen(
        ["sh", "-c", PLAIN_TREE],
        env=marked(mark),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout.readline() == b"ready\n"
    kill_run(new_mark(), [process.pid], portable=True, limit_s=0.2)
    wait_until(lambda: not survivors(mark), "the group is gone")
    finish(process)
