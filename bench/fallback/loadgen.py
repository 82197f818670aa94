"""The load generator in Python: see `native/loadgen.c` for what it does, its options and what counts as an answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

PLACEHOLDER = b"@@@@@@@@@"
READ_BYTES = 128 * 1024
LONGEST_WARM_S, STALL_S, DRAIN_S = 8.0, 20.0, 10.0
HOPELESS_ERRORS = 200
ID = re.compile(rb'"id": ?(\d+)')
IS_ERROR = re.compile(rb'"isError": ?true')


class Run:
    """The phases of a run, and what is counted in its window."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.requests = Path(options.requests).read_bytes().strip(b"\0").split(b"\0")
        self.phase = "warming"
        self.started_s = self.last_answer_s = time.monotonic()
        self.window_s = self.wall_s = self.drain_s = 0.0
        self.next_id: int = options.first_id
        self.sent_at: dict[int, float] = {}
        self.latencies_us: list[float] = []
        self.answers = self.errors = self.connections = self.byte_count = self.rss_kb = 0
        self.first_error = ""
        self.cpu_before = self.cpu_after = (0.0, 0.0)

    @property
    def may_send(self) -> bool:
        return self.phase in {"warming", "measuring"}

    @property
    def running(self) -> bool:
        return self.phase not in {"done", "given up"}

    def stamped(self, slot: int) -> tuple[int, bytes]:
        request_id, self.next_id = self.next_id, self.next_id + 1
        self.sent_at[request_id] = time.monotonic()
        return request_id, self.requests[slot % len(self.requests)].replace(PLACEHOLDER, b"%09d" % request_id)

    def fault_of(self, body: bytes, request_id: int) -> str | None:
        if len(body) < self.options.min_bytes:
            return "answer too short"
        if not re.search(rb'"id": ?%d\b' % request_id, body):
            return "answer to another request"
        if b'"result":' not in body:
            return "no result"
        if IS_ERROR.search(body[:4096]) or IS_ERROR.search(body[-4096:]):
            return "isError"
        return None if self.options.expect.encode() in body else "expected text missing"

    def note(self, request_id: int, body: bytes, fault: str | None = None) -> None:
        now = time.monotonic()
        sent_s = self.sent_at.pop(request_id)
        self.answers += 1
        self.last_answer_s = now
        fault = fault or self.fault_of(body, request_id)
        if fault:
            self.note_error(f"{fault}: {body[:200]!r}")
        elif self.phase == "measuring":
            self.latencies_us.append((now - sent_s) * 1e6)
            self.byte_count += len(body)

    def note_error(self, text: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or text
        if self.errors >= HOPELESS_ERRORS and self.errors == self.answers:
            self.phase = "given up"

    def advance(self) -> None:
        now, options = time.monotonic(), self.options
        if self.may_send and now - self.last_answer_s > STALL_S:
            self.note_error("stalled: no answer for long")
            self.phase = "given up"
        elif self.phase == "warming":
            elapsed_s = now - self.started_s
            if elapsed_s >= options.warm and (self.answers >= options.in_flight or elapsed_s >= LONGEST_WARM_S):
                self.errors, self.cpu_before = 0, cpu_of(options.pids)
                self.window_s, self.phase = time.monotonic(), "measuring"
        elif self.phase == "measuring":
            self.wall_s = now - self.window_s
            enough = len(self.latencies_us) >= options.min_calls or self.wall_s >= options.max_seconds
            if self.wall_s >= options.seconds and enough:
                self.cpu_after, self.rss_kb = cpu_of(options.pids), rss_of(options.pids)
                self.drain_s, self.phase = now, "draining"
        if self.phase == "draining" and (not self.sent_at or now - self.drain_s > DRAIN_S):
            self.phase = "done"

    def result(self) -> dict[str, object]:
        ordered = sorted(self.latencies_us)
        calls, wall_s = max(1, len(ordered)), self.wall_s or 1.0

        def percentile(share: float) -> float:
            return round(ordered[int((len(ordered) - 1) * share + 0.5)], 1) if ordered else 0.0

        user_s, system_s = (after - before for before, after in zip(self.cpu_before, self.cpu_after, strict=True))
        return {
            "given_up": self.phase == "given up",
            "calls": len(ordered),
            "errors": self.errors,
            "first_error": self.first_error,
            "connections": self.connections,
            "wall_s": round(self.wall_s, 4),
            "calls_per_s": round(len(ordered) / wall_s, 2),
            "megabytes_per_s": round(self.byte_count / wall_s / 1e6, 2),
            "p50_us": percentile(0.5),
            "p90_us": percentile(0.9),
            "p99_us": percentile(0.99),
            "max_us": percentile(1.0),
            "cpu_user_us": round(user_s * 1e6 / calls, 3),
            "cpu_system_us": round(system_s * 1e6 / calls, 3),
            "rss_kb": self.rss_kb,
        }


def cpu_of(pids: list[int]) -> tuple[float, float]:
    ticks, user, system = os.sysconf("SC_CLK_TCK"), 0, 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        user, system = user + int(fields[11]), system + int(fields[12])
    return user / ticks, system / ticks


def rss_of(pids: list[int]) -> int:
    total_kb = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total_kb += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total_kb


class Slot:
    """One HTTP connection with one request in flight."""

    def __init__(self, run: Run, number: int, port: int, selector: selectors.BaseSelector) -> None:
        self.run, self.number, self.port, self.selector = run, number, port, selector
        self.connect()

    def connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(self.socket, selectors.EVENT_READ, self.read)
        self.run.connections += 1

    def send(self) -> None:
        self.received = bytearray()
        self.request_id, request = self.run.stamped(self.number)
        self.socket.sendall(request)

    def read(self) -> None:
        data = self.socket.recv(READ_BYTES)
        self.received += data
        body = self._body(at_end=not data)
        if body is None and data:
            return
        status_ok = self.received[9:12] == b"200"
        fault = "connection ended early" if body is None else None if status_ok else "HTTP status"
        self.run.note(self.request_id, bytes(self.received if fault else body or b""), fault)
        if not data or b"\r\nconnection: close" in self.received[:2048].lower():
            self.selector.unregister(self.socket)
            self.socket.close()
            if self.run.may_send:
                self.connect()
        if self.run.may_send:
            self.send()

    def _body(self, at_end: bool) -> bytes | None:
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        if not blank:
            return None
        head = head.lower()
        if b"transfer-encoding: chunked" in head:
            return joined(rest)
        if b"content-length:" in head:
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            return bytes(rest) if len(rest) >= length else None
        return bytes(rest) if at_end else None


def joined(chunks: bytearray) -> bytes | None:
    """The body of a chunked answer, once its last chunk is there."""
    if not chunks.endswith(b"0\r\n\r\n"):
        return None
    body, at = bytearray(), 0
    while True:
        line_end = chunks.find(b"\r\n", at)
        size = int(chunks[at:line_end].split(b";")[0], 16) if line_end > 0 else -1
        if size <= 0:
            return bytes(body) if size == 0 else None
        body += chunks[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2


class Lines:
    """All slots on one pair of pipes."""

    def __init__(self, run: Run, read_fd: int, write_fd: int) -> None:
        self.run, self.read_fd, self.write_fd = run, read_fd, write_fd
        self.received = bytearray()
        self.sent = 0

    def send(self) -> None:
        left = memoryview(self.run.stamped(self.sent)[1])
        self.sent += 1
        while left:
            left = left[os.write(self.write_fd, left) :]

    def read(self) -> None:
        data = os.read(self.read_fd, READ_BYTES)
        if not data:
            self.run.note_error("the peer closed its output")
            self.run.phase = "given up"
        self.received += data
        if b"\n" not in data:
            return
        *lines, self.received = self.received.split(b"\n")
        for line in lines:
            found = ID.search(line, 0, 128) or ID.search(line, max(0, len(line) - 128))
            if found and int(found[1]) in self.run.sent_at:
                self.run.note(int(found[1]), bytes(line))
                if self.run.may_send:
                    self.send()


def loop(run: Run, selector: selectors.BaseSelector) -> None:
    while run.running:
        for key, _ in selector.select(0.05):
            action: Callable[[], None] = key.data
            action()
            if not run.running:
                return
        run.advance()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["http", "pipes"])
    parser.add_argument("--requests", required=True)
    parser.add_argument("--expect", default="")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--warm", type=float, default=0.2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--max-seconds", type=float, default=1.0)
    parser.add_argument("--min-calls", type=int, default=0)
    parser.add_argument("--min-bytes", type=int, default=0)
    parser.add_argument("--first-id", type=int, default=100_000_000)
    fixed = 2 if sys.argv[1:2] == ["http"] else 3
    options, numbers = parser.parse_known_args([sys.argv[1], *sys.argv[1 + fixed :]])
    options.pids = [int(number) for number in numbers]
    where = [int(number) for number in sys.argv[2 : 1 + fixed]]
    run, selector = Run(options), selectors.DefaultSelector()
    if options.mode == "http":
        slots = [Slot(run, number, where[0], selector) for number in range(options.in_flight)]
        for slot in slots:
            slot.send()
    else:
        lines = Lines(run, *where)
        selector.register(lines.read_fd, selectors.EVENT_READ, lines.read)
        for _ in range(options.in_flight):
            lines.send()
    loop(run, selector)
    print(json.dumps(run.result()))
    return run.phase == "given up"


if __name__ == "__main__":
    sys.exit(main())
