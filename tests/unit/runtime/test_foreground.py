"""A program in the terminal's foreground, and what is left of it: nothing."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.child_trees import MARK, new_mark, survivors
from tests.support.commands import Terminal
from tests.support.processes import descendants
from tests.support.waiting import at_most, wait_until

from trunkline.core.errors import SOURCE_START_FAILED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")

HOST = """
import asyncio, os, signal, sys
from trunkline.core.errors import GatewayError
from trunkline.runtime.children import Children
from trunkline.runtime.foreground import run_in_foreground

async def main():
    loop = asyncio.get_running_loop()
    children = Children()
    task = loop.create_task(run_in_foreground(children, sys.argv[1:], env=dict(os.environ), cwd=None, label="agent"))
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    code = "cancelled"
    try:
        code = await task
    except asyncio.CancelledError:
        pass
    except GatewayError as error:
        code = error.problem.code.id
    await children.close()
    print("code", code, flush=True)

asyncio.run(main())
"""
ESCAPES = """
sleep 1000 &
setsid sleep 1000 &
(setsid env -i sh -c 'sleep 1000 & sleep 1000' {mark} &)
echo ready
"""
ESCAPED = 5
"""A child, one in a session of its own, and a daemon without our environment with two children, marked by argument."""


@contextmanager
def host(*argv: str, mark: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, *argv],
        env={**os.environ, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def state_of(command: str, *, below: int) -> str:
    (state,) = (process.state for process in descendants(below) if process.command == command)
    return state


def gone(mark: str) -> None:
    wait_until(lambda: not survivors(mark), "nothing of it is left")


def test_it_has_our_streams_our_group_and_its_code_is_ours() -> None:
    mark = new_mark()
    script = "read line; echo got $line; cut -d' ' -f5 /proc/$$/stat; exit 7"
    with host("sh", "-c", script, mark=mark) as process:
        output, _ = process.communicate("hello\n", timeout=at_most(30))
    assert output.split() == ["got", "hello", str(process.pid), "code", "7"]
    gone(mark)


@pytest.mark.law
def test_what_it_leaves_behind_is_killed_even_what_hid() -> None:
    mark = new_mark()
    with host("sh", "-c", ESCAPES.format(mark=mark), mark=mark) as process:
        output, _ = process.communicate(timeout=at_most(30))
    assert output.split() == ["ready", "code", "0"]
    assert survivors(mark) == []


@pytest.mark.law
def test_a_program_is_told_to_go_before_it_is_killed(tmp_path: Path) -> None:
    mark, told = new_mark(), tmp_path / "told"
    script = f"trap 'echo told > {told}; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    with host("sh", "-c", script, mark=mark) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "code cancelled\n"
        assert process.wait(at_most(15)) == 0
    assert told.exists()
    gone(mark)


@pytest.mark.slow
@pytest.mark.law
def test_a_program_that_will_not_go_is_killed_in_time() -> None:
    mark = new_mark()
    script = "trap '' TERM HUP;" + ESCAPES.format(mark=mark) + "while :; do sleep 1; done"
    with host("sh", "-c", script, mark=mark) as process:
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: len(survivors(mark)) >= ESCAPED, "all is started")
        process.terminate()
        assert process.stdout.readline() == "code cancelled\n"
        assert process.wait(at_most(15)) == 0
    assert survivors(mark) == []


@pytest.mark.law
def test_nothing_survives_when_we_are_killed_but_others_in_our_group_do() -> None:
    mark, other = new_mark(), new_mark()
    script = "trap '' TERM HUP INT; sleep 1000 & setsid sleep 1000 & echo ready; while :; do sleep 1; done"
    pipeline = f'{MARK}={other} sleep 1000 & exec "$@"'
    command = ["sh", "-c", pipeline, "sh", sys.executable, "-c", HOST, "sh", "-c", script]
    process = subprocess.Popen(
        command, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.wait(at_most(15))
        gone(mark)
        (neighbour,) = survivors(other)
        assert os.getpgid(neighbour) == process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    gone(other)


def test_the_keyboards_signals_are_the_programs() -> None:
    mark = new_mark()
    script = "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.1; done"
    with host("sh", "-c", script, mark=mark) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=at_most(30))
    assert output.split() == ["interrupted", "code", "3"]
    gone(mark)


def test_a_terminal_is_left_as_it_was() -> None:
    mark = new_mark()
    ours, theirs = pty.openpty()
    try:
        before = termios.tcgetattr(theirs)
        shell = "stty raw -echo; kill -9 $$"
        command = [sys.executable, "-c", HOST, "sh", "-c", shell]
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command],
            env={**os.environ, MARK: mark},
            stdin=theirs,
            stdout=subprocess.PIPE,
            text=True,
        )
        output, _ = process.communicate(timeout=at_most(30))
        assert output.split() == ["code", "-9"]
        assert termios.tcgetattr(theirs) == before
    finally:
        os.close(ours)
        os.close(theirs)
    gone(mark)


@pytest.mark.needs("bash")
@pytest.mark.parametrize("stops", ["read key", "kill -STOP $$"], ids=["by the keyboard", "by itself"])
def test_ctrl_z_stops_it_and_us_until_the_shell_continues_both(tmp_path: Path, stops: str) -> None:
    """A program that reads the keys itself stops itself alone."""
    mark = new_mark()
    (tmp_path / "host.py").write_text(HOST)
    (tmp_path / "program").write_text(f"echo begun; {stops}; exit 5\n")
    shell = Terminal("--norc", "-i", cwd=tmp_path, program="bash", env={MARK: mark, "PS1": "$ "}, columns=200)
    with shell as terminal:
        wait_until(lambda: terminal.written.endswith("$ "), "the shell is there")
        terminal.type(f"{sys.executable} host.py sh program\n")
        terminal.wait_for("begun\n")
        terminal.type("" if "kill" in stops else "\x1a")
        wait_until(lambda: terminal.written.partition("Stopped")[2].endswith("$ "), "the shell is back")
        # one that still reads takes what comes next, although it is told to stop: the kernel looks for keys first
        wait_until(lambda: state_of("sh program", below=terminal.process.pid) == "T", "the program has stopped")
        terminal.type("fg; exit\n")
        wait_until(lambda: terminal.written.partition("Stopped")[2].count("host.py sh program\n") == 2, "it goes on")
        terminal.type("" if "kill" in stops else "key\n")
        terminal.wait_for("code 5")
        terminal.finish()
    gone(mark)


def test_a_program_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    mark = new_mark()
    with host(str(tmp_path / "missing"), mark=mark) as process:
        output, _ = process.communicate(timeout=at_most(30))
    assert output.split() == ["code", SOURCE_START_FAILED.id]
    gone(mark)
