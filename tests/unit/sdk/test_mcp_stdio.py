"""Standard input and output belong to the protocol alone, whatever the program and its children print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import at_most

PROGRAM = """
import os, subprocess, sys
from trunkline.mcpserver import Server

def loud(arguments):
    print("printed")
    sys.stdout.write("written\\n")
    os.write(1, b"by number\\n")
    subprocess.run([sys.executable, "-c", "import sys; print('child read', repr(sys.stdin.read()))"], check=True)
    return "quiet"

server = Server("loud", "1")
server.register_tool("loud", {}, loud)
server.register_tool("large", {}, lambda arguments: "x" * 3_000_000)
server.run()
print("after")
"""

GREETING = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}

HANGS = (
    "import threading\nfrom trunkline.mcpserver import Server\nfrom trunkline.sdk import mcp_connection\n"
    "mcp_connection._LAST_ANSWERS_S = {last_answers_s}\nserver = Server()\n"
    "server.register_tool('hang', {{}}, lambda _: threading.Event().wait())\nserver.run()\n"
)


def call(name: str, number: int = 1) -> dict:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name}}


def talk(*messages: dict) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def program(tmp_path: Path) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return [sys.executable, str(path)]


def start(tmp_path: Path, **streams) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        program(tmp_path), **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    out, err = process.communicate(timeout=at_most(30))
    assert process.returncode == 0, err
    return out or b"", err or b""


def test_what_is_printed_goes_to_stderr_and_answers_larger_than_a_pipe_arrive_whole(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(talk(GREETING, call("loud")))
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert answers[1]["result"]["content"][0]["text"] == "quiet"
    process.stdin.write(talk(*(call("large", number) for number in range(2, 6))))
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(4)]
    assert {len(answer["result"]["content"][0]["text"]) for answer in answers} == {3_000_000}
    out, err = ended(process)
    assert out == b"after\n"
    for line in (b"printed", b"written", b"by number", b"child read ''"):
        assert line in err


def test_files_are_as_good_as_pipes(tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    asked.write_bytes(talk(GREETING, {"jsonrpc": "2.0", "id": 1, "method": "ping"}))
    with asked.open("rb") as stdin, answered.open("wb") as stdout:
        ended(start(tmp_path, stdin=stdin, stdout=stdout))
    lines = answered.read_bytes().splitlines()
    assert [json.loads(line)["id"] for line in lines[:2]] == [0, 1]
    assert lines[2:] == [b"after"]


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_an_empty_device_is_taken_too(tmp_path: Path, stream: str) -> None:
    process = start(tmp_path, **{stream: subprocess.DEVNULL})
    if process.stdin is not None:
        process.stdin.write(talk(GREETING))
    ended(process)


def test_it_ends_when_nobody_reads_its_answers_any_more(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(talk(GREETING))
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(talk(call("large")))
    process.stdin.flush()
    process.wait(at_most(30))
    process.stdin.close()
    assert process.stderr is not None
    process.stderr.close()


def test_it_ends_while_a_function_hangs_in_its_thread(tmp_path: Path) -> None:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS.format(last_answers_s=0.2))
    done = subprocess.run(
        [sys.executable, str(path)], input=talk(GREETING, call("hang")), capture_output=True, timeout=at_most(30)
    )
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0]


def test_it_waits_for_no_answer_once_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS.format(last_answers_s=600))
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(talk(GREETING, call("hang")))
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        assert process.wait(at_most(30)) == 0


def test_a_call_in_flight_at_the_end_of_the_input_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(
        "import asyncio\nfrom trunkline.mcpserver import Server\nserver = Server()\n"
        "async def slow(_): await asyncio.sleep(1); return 'slept'\n"
        "server.register_tool('slow', {}, slow)\nserver.run()\n"
    )
    given = talk(GREETING, call("slow"))
    done = subprocess.run([sys.executable, str(path)], input=given, capture_output=True, timeout=at_most(30))
    assert b"slept" in done.stdout.splitlines()[-1]


def test_the_pipe_of_its_client_is_left_as_it_was(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        process = start(tmp_path, stdout=writing)
        assert process.stdin is not None
        process.stdin.write(talk(GREETING))
        ended(process)
        assert os.get_blocking(writing)
    finally:
        os.close(reading)
        os.close(writing)
