"""How much work still gets done when ten times as many clients ask as can be served, and ask again at once.

    python -m bench.overload [--seconds 5] [--trunkline PROGRAM]

Each client is one connection without a session that sends its next call the moment it has an answer, also when that is
a refusal. Goodput is what succeeds per second; the bar is 80 % of the peak.
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
from pathlib import Path
from typing import Any

from bench.client import CLIENT, MODERN, MODERN_META
from bench.programs import prepare

BAR = 0.8


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--trunkline", default=str(Path(sys.executable).with_name("trunkline")))
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16384)), hard))
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        gateway = {"listen": f"127.0.0.1:{port}", "state_dir": f"{folder}/state", "log": {"level": "error"}}
        command, *args = prepare().backend
        source = {"kind": "mcp_stdio", "command": command, "args": [*args, "stdio"]}
        config = Path(folder, "trunkline.json")
        config.write_text(json.dumps({"gateway": gateway, "sources": {"s": source}}))
        process = subprocess.Popen([options.trunkline, "up", "-c", str(config)])
        try:
            time.sleep(3)
            figures = {clients: measure(port, clients, options.seconds) for clients in (64, 256, 640, 2560)}
        finally:
            process.terminate()
            process.wait()
    peak = max(good for good, _ in figures.values())
    print("clients  calls/s  of peak  refused/s")
    for clients, (good, refused) in figures.items():
        print(f"{clients:7}  {good:7.0f}  {good / peak:6.0%}  {refused:9.0f}")
    return 0 if figures[2560][0] >= BAR * peak else 1


if __name__ == "__main__":
    sys.exit(main())
