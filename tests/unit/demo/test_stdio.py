"""A demo server as a program on pipes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.waiting import at_most

PROGRAM = [sys.executable, "-P", "-m", "trunkline.demo"]


@pytest.fixture
def clock() -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*PROGRAM, "clock"], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process
        if process.poll() is None:
            process.kill()


def ask(process: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_it_answers_line_by_line_whatever_it_is_sent_until_its_input_ends(clock: subprocess.Popen[bytes]) -> None:
    assert ask(clock, b"not json")["error"]["code"] == -32700
    assert ask(clock, b'\n  \n{"jsonrpc":"2.0","method":"notifications/x"}\n\xff\xff')["error"]["code"] == -32700
    assert ask(clock, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')["result"] == {}
    large = b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"' + b"y" * 1_000_000 + b'"}}'
    assert ask(clock, large)["id"] == 2
    out, err = clock.communicate(timeout=at_most(30))
    assert (clock.returncode, out, err) == (0, b"", b"")


def test_it_ends_quietly_when_nobody_reads_its_answers(clock: subprocess.Popen[bytes]) -> None:
    assert clock.stdin is not None and clock.stdout is not None and clock.stderr is not None
    clock.stdout.close()
    clock.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    clock.stdin.flush()
    assert clock.wait(at_most(30)) == 0
    assert clock.stderr.read() == b""


def test_an_interrupt_ends_it_without_a_traceback(clock: subprocess.Popen[bytes]) -> None:
    assert ask(clock, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')["result"] == {}
    clock.send_signal(signal.SIGINT)
    _, err = clock.communicate(timeout=at_most(30))
    assert err == b""


def test_an_unknown_server_is_a_mistake_in_use() -> None:
    done = subprocess.run([*PROGRAM, "nonsense"], capture_output=True, text=True, timeout=at_most(30))
    assert done.returncode == 2
    assert "clock" in done.stderr
