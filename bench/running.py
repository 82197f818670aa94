"""One started peer: its processes and backends, its handshake, and one window of load on it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.client import Client, Http, Pipes, Refused
from bench.launch import Site
from bench.peers import Peer
from bench.programs import PLUGIN_BACKEND, Programs
from bench.workloads import ECHO, READ, Cell

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 6.0
RETRY_S = 0.002
SETTLE_S = 0.5  # between the first answers and reading the idle memory
LOG_LIMIT_BYTES = 64 << 20
IDS_PER_WINDOW = 20_000_000  # more than one window can use


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True)
class Start:
    """How a start went."""

    first_answer_s: float  # from the start of the process to the answer to `initialize`
    first_result_s: float  # … to the result of a first tool call


@dataclass(frozen=True)
class Pace:
    """How long a window is."""

    seconds: float
    warm_s: float
    min_calls: int = 20
    longest_s: float = 6.0  # a window is prolonged up to this to get the least number of calls


class Running:
    """`root` is the folder of the built-in tools; one with a single file unless given."""

    def __init__(self, peer: Peer, programs: Programs, folder: Path, *, root: Path | None = None) -> None:
        self.peer, self.programs, self.folder = peer, programs, folder
        self._root = root or folder / "root"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.backends: list[subprocess.Popen[bytes]] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._windows = 0
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    # -- starting ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        site = self._site()
        command = self.peer.launch(site)
        began_s = time.monotonic()
        self.process = self._spawn(command, self.peer.front == "stdio")
        self.client = Client(self._wire(site.port))
        deadline_s = began_s + START_TIMEOUT_S
        self._open(deadline_s)
        first_answer_s = time.monotonic() - began_s
        self._first_call(deadline_s)
        self.start = Start(first_answer_s, time.monotonic() - began_s)

    def settle(self) -> None:
        """Reads what the peer holds while it has nothing to do."""
        time.sleep(SETTLE_S)
        self.idle_rss_mb = machine.rss_mb(self.pids())

    def _site(self) -> Site:
        options = ["--tools", str(self.peer.tools), *(["--modern"] if self.peer.modern_backend else [])]
        urls: list[str] = []
        if self.peer.behind == "http":
            for _ in range(self.peer.backends):
                port = free_port()
                self.backends.append(self._spawn([*self.programs.backend, "http", str(port), *options], piped=False))
                urls.append(f"http://127.0.0.1:{port}/mcp")
                _await_port(port)
        port = free_port()
        # without a proxy the backend is started with the wire of the front
        mode = ["http", str(port)] if self.peer.behind is None and self.peer.front == "http" else ["stdio"]
        command = [*self.programs.backend, *mode, *options]
        return Site(self.folder, port, command, urls, self.peer.backends, self._source())

    def _source(self) -> dict[str, dict[str, object]] | None:
        """What is behind a peer where that is no MCP server."""
        match self.peer.behind:
            case "app":
                port = free_port()
                self.backends.append(self._spawn([*self.programs.backend, "app", str(port)], piped=False))
                return {"b00": {"kind": "app", "listen": f"127.0.0.1:{port}", "queue": 10_000}}
            case "service":
                port = free_port()
                self.backends.append(self._spawn([*self.programs.backend, "http", str(port)], piped=False))
                _await_port(port)
                return {"b00": {"kind": "service", "endpoint": f"http://127.0.0.1:{port}", "tokens": {"*": "bench"}}}
            case "plugin":
                return {"b00": {"kind": "plugin", "command": sys.executable, "args": [str(PLUGIN_BACKEND)]}}
            case "builtin":
                lines = (f"line {number} {'x' * 80}\n" for number in range(1, 100_000))
                self._root.mkdir(exist_ok=True)
                (self._root / "1mb.txt").write_text("".join(lines)[: 1000 * 1024])
                return {"b00": {"kind": "builtin", "root": str(self._root)}}
            case _:
                return None

    def _spawn(self, command: list[str], piped: bool) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        # appended to, so that it can be cut back while the peer writes
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                bufsize=0,
                start_new_session=True,  # Ctrl+C is for us; we end the peers ourselves
            )

    def _wire(self, port: int) -> Http | Pipes:
        if self.peer.front == "http":
            return Http(port, self.peer.path, self.peer.modern)
        assert self.process and self.process.stdin and self.process.stdout
        return Pipes(self.process.stdin, self.process.stdout, self.peer.modern)

    def _open(self, deadline_s: float) -> None:
        """Knocks until the peer answers. A peer on pipes needs to be asked only once."""
        while True:
            try:
                return self.client.open(deadline_s)
            except (OSError, ValueError, Refused) as failure:
                assert self.process
                ended = self.process.poll() is not None
                if ended or self.peer.front == "stdio" or time.monotonic() > deadline_s:
                    raise Refused(f"{failure}; {self._last_words()}") from failure
                time.sleep(RETRY_S)

    def _first_call(self, deadline_s: float) -> None:
        """Lists the tools until all are there, and calls one."""
        wanted, first = self.peer.backends, READ if self.peer.behind == "builtin" else ECHO
        assert first.tool is not None
        while True:
            self.client.list_tools(deadline_s)
            names = self.client.names_of(first.tool)
            if len(names) >= wanted:
                break
            if time.monotonic() > deadline_s:
                raise Refused(f"{len(names)} of {wanted} backends listed; {self._last_words()}")
            time.sleep(0.02)
        self.client.request("tools/call", {"name": names[0], "arguments": first.arguments}, deadline_s)

    def _last_words(self) -> str:
        try:
            text = (self.folder / "log").read_text(errors="replace")
        except OSError:
            text = ""
        return "last logged: " + " | ".join(text.strip().splitlines()[-3:])[-400:]

    # -- load -------------------------------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        """The peer's whole process tree, without the backends (which, without a proxy, are the peer)."""
        assert self.process
        found = machine.tree(self.process.pid)
        return [pid for pid in found if self.peer.behind is None or not self.programs.is_backend(pid)]

    def load(self, cell: Cell, pace: Pace, sessions: int = 1) -> dict[str, Any]:
        """One window of load; what the load generator says about it."""
        self._cut_log()
        requests = self.folder / "requests"
        requests.write_bytes(b"\0".join(self._requests(cell, sessions)))
        seconds = pace.seconds * cell.workload.window
        self._windows += 1
        options = {
            "requests": requests,
            "in-flight": cell.in_flight,
            "seconds": seconds,
            "max-seconds": pace.longest_s,
            "warm": pace.warm_s,
            "min-calls": max(pace.min_calls, cell.in_flight),
            "min-bytes": cell.workload.min_bytes or self._list_bytes(cell),
            "expect": cell.workload.expect,
            "first-id": 100_000_000 + self._windows % 40 * IDS_PER_WINDOW,
        }
        where, inherited = self._where()
        command = [*self.programs.loadgen, *where, *(f"--{key}={value}" for key, value in options.items())]
        command += [str(pid) for pid in self.pids()]
        limit_s = pace.longest_s + 60
        try:
            ran = subprocess.run(command, capture_output=True, pass_fds=inherited, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return {"given_up": True, "first_error": "the load generator did not end"}
        if not ran.stdout:
            return {"given_up": True, "first_error": ran.stderr.decode(errors="replace")[-200:]}
        return json.loads(ran.stdout)

    def _where(self) -> tuple[list[str], tuple[int, ...]]:
        if self.peer.front == "http":
            assert isinstance(self.client.wire, Http)
            return ["http", str(self.client.wire.port)], ()
        assert self.process and self.process.stdin and self.process.stdout
        fds = self.process.stdout.fileno(), self.process.stdin.fileno()
        return ["pipes", *map(str, fds)], fds

    def _list_bytes(self, cell: Cell) -> int:
        """What a list of all tools cannot be shorter than."""
        return 100 * self.peer.backends * self.peer.tools if cell.workload.tool is None else 0

    def _requests(self, cell: Cell, sessions: int) -> list[bytes]:
        several = sessions if isinstance(self.client.wire, Http) and self.client.wire.session else 1
        requests: list[bytes] = []
        for _ in range(several):
            if several > 1:
                self.client.open(time.monotonic() + START_TIMEOUT_S)
            requests += self._requests_of_session(cell)
        return requests

    def _requests_of_session(self, cell: Cell) -> list[bytes]:
        workload = cell.workload
        if workload.tool is None:
            return [self.client.raw_request(workload.method, {})]
        names = self.client.names_of(workload.tool)
        return [
            self.client.raw_request(workload.method, {"name": name, "arguments": workload.arguments})
            for name in (names if workload.spread else names[:1])
        ]

    def _cut_log(self) -> None:
        log = self.folder / "log"
        if log.stat().st_size > LOG_LIMIT_BYTES:
            os.truncate(log, 0)

    # -- ending -----------------------------------------------------------------------------------------------------

    def ask_to_end(self) -> None:
        """Sends the signals only, so that many peers can end at the same time."""
        for process in self._processes():
            if process.poll() is None:
                process.terminate()

    def stop(self) -> None:
        """Ends the peer and its backends. What the peer itself leaves behind is ended at the end of the run."""
        self.ask_to_end()
        deadline_s = time.monotonic() + END_TIMEOUT_S
        for process in self._processes():
            try:
                process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [*([self.process] if self.process else []), *self.backends]


def _await_port(port: int) -> None:
    deadline_s = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_S)
