"""`python -m bench.noise`: how long others wait while one source is as noisy as it can be.

A gateway with a quiet echo server and one noisy source of each kind in turn. What is measured: calls to the quiet one
and `/healthz`, one at a time over kept connections, and how long SIGTERM takes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.launch import BIN
from bench.noisy import APP, EVENTS, STDIO
from bench.programs import BUILD, HERE, Programs, prepare
from bench.running import free_port

NOISY = str(HERE / "noisy.py")
KINDS = ("quiet", *STDIO, *EVENTS, *APP)
START_S = 30.0
LIMIT_MS = 20.0


@dataclass(frozen=True)
class Row:
    kind: str
    calls_ms: list[float]
    health_ms: list[float]
    cores: float
    end_s: float

    def __str__(self) -> str:
        figures = [*_figures(self.calls_ms), *_figures(self.health_ms)]
        late = "" if max(figures[1], figures[4]) <= LIMIT_MS else f"  p99 over {LIMIT_MS:g} ms"
        cells = "".join(f"{figure:9.1f}" for figure in figures)
        return f"{self.kind:24}{cells}{self.cores:8.2f}{self.end_s:8.1f}{late}"


def _figures(times_ms: list[float]) -> tuple[float, float, float]:
    ordered = sorted(times_ms)
    return statistics.median(ordered), ordered[int(0.99 * (len(ordered) - 1))], ordered[-1]


def measure(kind: str, programs: Programs, seconds: float) -> Row:
    folder = BUILD / "run" / "noise"
    folder.mkdir(parents=True, exist_ok=True)
    port, far_port = free_port(), free_port()
    sources = {"quiet": {"command": programs.backend[0], "args": [*programs.backend[1:], "stdio"]}}
    config: dict[str, object] = {"mcpServers": sources, "gateway": {"listen": f"127.0.0.1:{port}"}}
    if kind in STDIO:
        sources["noisy"] = {"command": sys.executable, "args": ["-I", NOISY, kind]}
    elif kind in EVENTS:
        sources["noisy"] = {"url": f"http://127.0.0.1:{far_port}/mcp"}
    elif kind in APP:
        config["sources"] = {"noisy": {"kind": "app", "listen": f"127.0.0.1:{far_port}"}}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    with ExitStack() as stack:
        if kind in EVENTS:
            _spawn(stack, [sys.executable, "-I", NOISY, kind, str(far_port)], folder)
            _await_port(far_port)
        gateway = _spawn(stack, [str(BIN / "trunkline"), "up", "--config", str(path)], folder)
        _await_port(port)
        if kind in APP:
            _await_port(far_port)
            _spawn(stack, [sys.executable, "-I", NOISY, kind, str(far_port)], folder)
        call, health = _Caller(port).call, _Caller(port).health
        _until_answered(call)
        time.sleep(1)
        cpu_s, began_s = machine.cpu_s([gateway.pid]), time.monotonic()
        calls_ms, health_ms = _timed(call, seconds), _timed(health, seconds)
        cores = (machine.cpu_s([gateway.pid]) - cpu_s) / (time.monotonic() - began_s)
        ending_s = time.monotonic()
        gateway.send_signal(signal.SIGTERM)
        gateway.wait(60)
        return Row(kind, calls_ms, health_ms, cores, time.monotonic() - ending_s)


class _Caller:
    """One kept connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(self) -> None:
        params = {"name": "quiet_echo", "arguments": {"text": "hello"}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "quiet_echo",
        }
        answer = self._ask("POST", "/mcp", json.dumps(message), headers)
        if b"hello" not in answer:
            raise OSError(answer)

    def health(self) -> None:
        self._ask("GET", "/healthz", None, {})

    def _ask(self, verb: str, path: str, body: str | None, headers: dict[str, str]) -> bytes:
        self._connection.request(verb, path, body, headers)
        return self._connection.getresponse().read()


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "noise", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _timed(ask: Callable[[], None], seconds: float) -> list[float]:
    times_ms: list[float] = []
    end_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < end_s:
        ask()
        times_ms.append(1000 * (time.monotonic() - began_s))
        time.sleep(0.002)
    return times_ms


def _until_answered(ask: Callable[[], None]) -> None:
    end_s = time.monotonic() + START_S
    while True:
        try:
            return ask()
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)


def _spawn(stack: ExitStack, command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _await_port(port: int) -> None:
    def knock() -> None:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()

    _until_answered(knock)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.noise", description=__doc__)
    parser.add_argument("--only", default="", help="kinds, with commas between them")
    parser.add_argument("--secs", type=float, default=4.0, help="how long to ask, for calls and for /healthz (4)")
    options = parser.parse_args()
    programs = prepare()
    machine.adopt_orphans()
    print(f"{'ms':24}{'call p50':>9}{'p99':>9}{'max':>9}{'health':>9}{'p99':>9}{'max':>9}{'cores':>8}{'end s':>8}")
    late = False
    try:
        for kind in filter(None, options.only.split(",")) if options.only else KINDS:
            row = measure(kind, programs, options.secs)
            late = late or "over" in str(row)
            print(row, flush=True)
    finally:
        machine.end_descendants()
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
