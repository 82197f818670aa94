"""How much work still gets done when ten times as many clients ask as can be served, and ask again at once.

    python -m bench.overload [--seconds 3] [--rounds 5] [--trunkline PROGRAM]

Each client is one connection without a session that sends its next call the moment it has an answer, also when that is
a refusal. Goodput is what succeeds per second, the median of the rounds. The bar is 80 % of the peak with 640 clients
and room for 64 calls. Where there is room for all (4,096) nothing is refused, and what is lost is what any server loses
to more connections: the machine's caches hold fewer of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.client import CLIENT, MODERN, MODERN_META
from bench.programs import prepare
from bench.running import free_port

BAR = 0.8
ROOM = 64
PLENTY = 4096
CLIENTS = (64, 256, 640, 2560)


def request_bytes() -> bytes:
    params: dict[str, Any] = {"name": "s_echo", "arguments": {"text": "hello world"}, "_meta": MODERN_META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {MODERN}",
        "Mcp-Method: tools/call",
        "Mcp-Name: s_echo",
        f"User-Agent: {CLIENT['name']}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def load(port: int, clients: int, seconds: float, told: Any) -> None:
    """All clients on one poll: what succeeded, and what was refused."""
    poll, sockets = select.epoll(), dict[int, socket.socket]()
    request = request_bytes()
    for _ in range(clients):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setblocking(False)
        sockets[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    for connection in sockets.values():
        connection.send(request)
    good = refused = 0
    warm = time.monotonic() + min(2.0, seconds / 2)
    end = warm + seconds
    while (now := time.monotonic()) < end:
        for number, _ in poll.poll(0.1, 256):
            answer = sockets[number].recv(65536)
            if not answer:
                poll.unregister(number)
                continue
            if now > warm:
                is_good = b"hello world" in answer
                good, refused = good + is_good, refused + (not is_good)
            sockets[number].send(request)
    for connection in sockets.values():
        connection.close()
    told.send((good / seconds, refused / seconds))


def measure(port: int, clients: int, seconds: float) -> tuple[float, float]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=load, args=(port, clients, seconds, there))
    process.start()
    figures = here.recv()
    process.join()
    return figures


@contextmanager
def gateway(program: str, room: int) -> Generator[int]:
    """One with room for so many calls, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        settings = {
            "listen": f"127.0.0.1:{port}",
            "state_dir": f"{folder}/state",
            "log": {"level": "error"},
            "limits": {"in_flight": room},
        }
        command, *args = prepare().backend
        source = {"kind": "mcp_stdio", "command": command, "args": [*args, "stdio"]}
        config = Path(folder, "trunkline.json")
        config.write_text(json.dumps({"gateway": settings, "sources": {"s": source}}))
        process = subprocess.Popen([program, "up", "-c", str(config)])
        try:
            time.sleep(3)
            yield port
        finally:
            process.terminate()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trunkline", default=str(Path(sys.executable).with_name("trunkline")))
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16384)), hard))
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    with gateway(options.trunkline, ROOM) as narrow, gateway(options.trunkline, PLENTY) as wide:
        for _ in range(options.rounds):
            for clients in CLIENTS:
                for room, port in ((ROOM, narrow), (PLENTY, wide)):
                    found.setdefault((room, clients), []).append(measure(port, clients, options.seconds))
    figures = {key: (median(good for good, _ in many), median(bad for _, bad in many)) for key, many in found.items()}
    print("room   clients  calls/s  of peak  refused/s")
    for room in (ROOM, PLENTY):
        peak = max(good for (where, _), (good, _) in figures.items() if where == room)
        for clients in CLIENTS:
            good, refused = figures[room, clients]
            print(f"{room:4}  {clients:8}  {good:7.0f}  {good / peak:6.0%}  {refused:9.0f}")
    peak = max(figures[ROOM, clients][0] for clients in CLIENTS)
    return 0 if figures[ROOM, 10 * ROOM][0] >= BAR * peak else 1


if __name__ == "__main__":
    sys.exit(main())
