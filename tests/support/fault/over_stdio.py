"""The fault server on its standard input and output."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from tests.support.fault import tools
from tests.support.fault.options import Options
from tests.support.fault.rpc import Exchange, Server, Session

BANNER = b"Starting up...\n\n   \n{not json\n\x1b[1mREADY\x1b[0m on stdio\n[]\n"


class Later:
    """One thread that does many things later: thousands of delayed answers without thousands of threads."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, then: Any) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), then))
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                then = heapq.heappop(self._due)[2]
            then()


class Output:
    def __init__(self, one_byte_at_a_time: bool) -> None:
        self._step = 1 if one_byte_at_a_time else 1 << 20
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        with self._lock:
            while view:
                view = view[os.write(1, view[: self._step]) :]


class StdioExchange(Exchange):
    server: StdioServer

    def send(self, data: bytes, *, last: bool = False) -> None:
        if "banner" in self.server.options.faults:
            data = b"DEBUG about to write\n\n" + data
        self.server.output.write(data + b"\n")

    def pause(self, seconds: float) -> bool:
        return self.cancelled.wait(seconds)

    def after(self, seconds: float, then: Any) -> None:
        self.server.later.add(seconds, then)

    def half(self) -> None:
        self.server.output.write(self.envelope("result", b'{"content":[{"type":"text","text":"half')[:-1])
        os._exit(0)

    def reset(self) -> None:
        """The output is closed but the process lives on."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def hang_up(self) -> None:
        os._exit(0)


class StdioServer(Server):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.output = Output("slicer" in options.faults)
        self.later = Later()
        self.session = Session()
        self.deaf = False

    def run(self, exchange: Exchange, tool: Any) -> None:
        if exchange.params.get("name") in tools.INLINE:
            super().run(exchange, tool)
        else:
            threading.Thread(target=super().run, args=(exchange, tool), daemon=True).start()

    def broadcast(self, method: str) -> None:
        self.output.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")

    def read_forever(self) -> None:
        source = sys.stdin.buffer
        while line := source.readline():
            try:
                message = json.loads(line)
            except ValueError:
                self.journal.write("garbage", size=len(line))
                continue
            self.received(StdioExchange(self, self.session, line, message))
            while self.deaf:
                time.sleep(1)
        self.journal.write("eof")


def serve(options: Options) -> None:
    time.sleep(options.start_delay)
    server = StdioServer(options)
    faults = options.faults
    if "exit" in faults:
        os.write(2, b"fault server: no licence found, giving up\n")
        os._exit(3)
    if "stubborn" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "banner" in faults:
        server.output.write(BANNER)
    if "stderr_flood" in faults:
        tools.flood_stderr()
    if faults & {"spawn", "spawn_setsid"}:
        child = tools.spawn_child(setsid="spawn_setsid" in faults)
        server.journal.write("spawned", child=child)
    try:
        server.read_forever()
    except KeyboardInterrupt:
        os._exit(130)
    while "stubborn" in faults:
        time.sleep(60)
    os._exit(0)
