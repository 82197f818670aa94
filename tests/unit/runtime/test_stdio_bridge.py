"""The stdio bridge that agents start, as a process: it copies bytes, however either side behaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import peak_memory_mib
from tests.support.waiting import at_most, wait_until

from trunkline.runtime.stdio_bridge import bridge_command, socket_path

MIB = 1024 * 1024
REQUEST = {"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": {}}


class Router:
    """Listens where the bridge's file says; `connection` is the bridge."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "router"
        self.config = folder / "serve.json"
        self.config.write_text(json.dumps({"socket": str(self.path)}))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.settimeout(at_most(15))
        self._listening.bind(str(self.path))
        self._listening.listen()

    def accept(self) -> socket.socket:
        connection, _ = self._listening.accept()
        connection.settimeout(at_most(15))
        return connection

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def router() -> Iterator[Router]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as folder:
        listening = Router(Path(folder))
        try:
            yield listening
        finally:
            listening.close()


@contextlib.contextmanager
def bridge(config: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    program, arguments = bridge_command(config)
    process = start([program, *arguments], **options)
    with ended(process):
        yield process


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, **{"env": {}, "stdin": pipe, "stdout": pipe, "stderr": pipe, "bufsize": 0, **options}
    )


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := connection.recv(1 << 16)):
        data += part
    return bytes(data)


# What it carries ------------------------------------------------------------------------------------------------------


def test_bytes_go_through_unchanged_whatever_they_are(router: Router) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        sent = bytes(range(256)) * 10
        agent.stdin.write(sent)
        assert receive(connection, len(sent)) == sent
        connection.sendall(sent)
        assert agent.stdout.read(len(sent)) == sent


def test_large_messages_go_both_ways_at_once(router: Router) -> None:
    size = 16 * MIB
    with bridge(router.config) as agent, router.accept() as connection:
        there, back = os.urandom(MIB) * 16, os.urandom(MIB) * 16
        received: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: _write_all(agent.stdin.fileno(), there)),
            threading.Thread(target=lambda: connection.sendall(back)),
            threading.Thread(target=lambda: received.append(receive(connection, size))),
        ]
        for thread in threads:
            thread.start()
        got = bytearray()
        while len(got) < size and (part := agent.stdout.read(1 << 16)):
            got += part
        for thread in threads:
            thread.join(at_most(30))
        assert bytes(got) == back
        assert received == [there]
        assert peak_memory_mib(agent.pid) < 24


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


@pytest.mark.parametrize("silent", ["router", "agent"])
def test_a_side_that_does_not_read_holds_up_its_own_direction_only(router: Router, silent: str) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        connection.setblocking(False)
        os.set_blocking(agent.stdin.fileno(), False)
        flooded = agent.stdin.fileno() if silent == "router" else connection.fileno()
        accepted = _fill(flooded)
        assert accepted < 4 * MIB, "it takes no more than its buffers"
        connection.setblocking(True)
        connection.settimeout(at_most(15))
        if silent == "router":
            connection.sendall(b"still here\n")
            assert agent.stdout.readline() == b"still here\n"
            assert receive(connection, accepted) == b"x" * accepted
        else:
            agent.stdin.write(b"still here\n")
            assert receive(connection, 11) == b"still here\n"
            assert len(agent.stdout.read(1)) == 1
        assert peak_memory_mib(agent.pid) < 24


def _fill(fd: int) -> int:
    """Write until nothing more is taken for a while; how much that was."""
    total = refused = 0
    while refused < 20:
        try:
            total += os.write(fd, b"x" * 65536)
            refused = 0
        except BlockingIOError:
            refused += 1
            threading.Event().wait(0.01)
    return total


# How it ends ----------------------------------------------------------------------------------------------------------


def test_answers_still_come_after_the_agent_closed_its_end(router: Router) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        agent.stdin.write(b"question\n")
        agent.stdin.close()
        assert receive(connection, 1000) == b"question\n", "and then its end"
        connection.sendall(b"answer\n")
        connection.close()
        assert agent.stdout.read() == b"answer\n"
        assert agent.wait(at_most(15)) == 0
        assert agent.stderr.read() == b""


@pytest.mark.slow
def test_a_router_that_does_not_close_is_not_waited_for_long(router: Router) -> None:
    with bridge(router.config) as agent, router.accept():
        agent.stdin.close()
        assert agent.wait(at_most(15)) == 0


def test_a_router_that_goes_ends_it_though_the_agent_says_nothing(router: Router) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        connection.close()
        assert agent.stdout.read() == b""
        assert agent.wait(at_most(15)) == 0


def test_a_router_that_dies_with_unread_words_ends_it_after_its_last_answer(router: Router) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        agent.stdin.write(b"never read\n")
        wait_until(lambda: connection.recv(1, socket.MSG_PEEK), "the words are there")
        connection.sendall(b"answer\n")
        connection.close()
        assert agent.stdout.read() == b"answer\n"
        assert agent.wait(at_most(15)) == 0
        assert agent.stderr.read() == b""


def test_an_agent_that_reads_no_more_ends_it(router: Router) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        agent.stdout.close()
        connection.sendall(b"answer\n")
        assert agent.wait(at_most(15)) == 0
        assert agent.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("busy", [False, True])
def test_signals_end_it_at_once_in_order(router: Router, number: int, busy: bool) -> None:
    with bridge(router.config) as agent, router.accept() as connection:
        agent.stdin.write(b"x")
        assert receive(connection, 1) == b"x"
        connection.sendall(b"y")
        assert agent.stdout.read(1) == b"y"
        if busy:
            connection.setblocking(False)
            os.set_blocking(agent.stdin.fileno(), False)
            _fill(agent.stdin.fileno())
            _fill(connection.fileno())
        agent.send_signal(number)
        assert agent.wait(at_most(15)) == 0
        assert agent.stderr.read() == b""


def test_closed_standard_streams_are_no_trouble(router: Router) -> None:
    program, arguments = bridge_command(router.config)
    closed = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", program, *arguments]
    process = start(closed, stdin=subprocess.DEVNULL)
    with ended(process), router.accept() as connection:
        assert receive(connection, 1) == b"", "no input is the end of input"
        connection.sendall(b"answer\n")
        connection.close()
        assert process.stdout.read() == b"answer\n"
        assert process.wait(at_most(15)) == 0


# A router that is not there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deaf", "removed", "too long"])
def test_the_first_request_is_answered_where_the_router_cannot_be_reached(router: Router, how: str) -> None:
    router.close()
    if how == "removed":
        router.path.unlink()
    if how == "too long":
        router.config.write_text(json.dumps({"socket": "/tmp/" + "x" * 200}))
    with bridge(router.config) as agent:
        agent.stdin.write(json.dumps(REQUEST).encode() + b"\n")
        answer = json.loads(agent.stdout.readline())
        assert (answer["id"], answer["error"]["data"]["code"]) == ("first", "TL207")
        assert agent.wait(at_most(15)) == 1
        (line,) = agent.stderr.read().splitlines()
        assert b"TL207" in line


@pytest.mark.parametrize("said", [b"", b"nonsense\n", b'{"jsonrpc":"2.0","method":"x"}\n', b"[]\n", b"[" * 100_000])
def test_where_nothing_was_asked_nothing_is_answered(router: Router, said: bytes) -> None:
    router.close()
    with bridge(router.config) as agent:
        _write_all(agent.stdin.fileno(), said)
        agent.stdin.close()
        assert agent.stdout.read() == b""
        assert agent.wait(at_most(15)) == 1
        assert len(agent.stderr.read().splitlines()) == 1


# How it is started ----------------------------------------------------------------------------------------------------


@pytest.mark.law
def test_nothing_of_a_hostile_folder_or_environment_is_run(router: Router, tmp_path: Path) -> None:
    names = ["trunkline", "sitecustomize", "usercustomize", "socket", "_socket", "json", "os", "encodings", "site"]
    folders = [
        tmp_path,
        tmp_path / ".local/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages",
    ]
    folders[1].mkdir(parents=True)
    for folder in folders:
        for name in names:
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    hostile = {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "PYTHONHOME": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "trunkline.py"),
        "PYTHONUSERBASE": str(tmp_path / ".local"),
        "PYTHONINSPECT": "1",
        "PATH": str(tmp_path),
    }
    with bridge(router.config, cwd=tmp_path, env=hostile) as agent, router.accept() as connection:
        agent.stdin.write(b"x\n")
        assert receive(connection, 2) == b"x\n"
        connection.close()
        assert agent.wait(at_most(15)) == 0
    (tmp_path / "bad.json").write_text('{"nonsense": 1}')
    with bridge(tmp_path / "bad.json", cwd=tmp_path, env=hostile) as agent:  # the whole program, as far as it gets
        assert agent.wait(at_most(60)) == 2, agent.stderr.read()
    assert not (tmp_path / "run").exists()


def test_the_installed_script_joins_too_and_loads_next_to_nothing(router: Router) -> None:
    look = "import sys; sys.argv[0] = 'trunkline'; from trunkline.cli import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", look, "mcp-serve", "--config", str(router.config)]
    process = start(command)
    with ended(process), router.accept() as connection:
        connection.sendall(b"x\n")
        assert process.stdout.readline() == b"x\n"
        process.stdin.close()
        connection.close()
        assert process.wait(at_most(15)) == 0
        loaded = {line.rpartition("|")[2].strip() for line in process.stderr.read().decode().splitlines()}
    assert {"_socket", "trunkline.runtime.stdio_bridge"} <= loaded
    assert not {"click", "asyncio", "json", "socket", "msgspec", "trunkline.cli.main"} & loaded


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"socket": "/a"}', "/a"),
        (' {\n "socket"\t:\r"/a\\u00e9\\n\\"" } \n', '/aé\n"'),
        ('{"socket": "/a", "x": 1}', None),
        ('{"socket": "/a"} {}', None),
        ('{"socket": "/a" 1}', None),
        ('{"socket": 1}', None),
        ('{"sockets": "/a"}', None),
        ('{"socket": "/a}', None),
        ('{"socket"}', None),
        ("{socket: /a}", None),
        ("{}", None),
        ("", None),
        ("sources: {}", None),
    ],
)
def test_only_a_file_that_names_a_socket_and_nothing_else_is_a_run(text: str, path: str | None, tmp_path: Path) -> None:
    file = tmp_path / "serve.json"
    file.write_text(text)
    for arguments in (["--config", str(file)], [f"--config={file}"], ["-c", str(file)]):
        assert socket_path(arguments) == path


def test_other_arguments_and_files_are_left_to_the_whole_program(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    missing, binary = str(tmp_path / "missing"), str(tmp_path / "binary")
    for arguments in ([], ["--help"], ["--config"], ["--config", missing], ["--config", binary], ["-c", missing, "x"]):
        assert socket_path(arguments) is None
