"""A demo server on its standard input and output: one message a line."""

from __future__ import annotations

import json
import sys
from collections import deque
from typing import Any, BinaryIO, cast

from trunkline.demo.rpc import RpcServer


class StdioWire:
    """Lines in, lines out. What comes while a question is open and is not its answer waits for its turn."""

    def __init__(self, lines: BinaryIO, out: BinaryIO) -> None:
        self._lines = lines
        self._out = out
        self._waiting: deque[bytes] = deque()

    def next_line(self) -> bytes:
        """The next message; empty at the end of the input."""
        return self._waiting.popleft() if self._waiting else self._lines.readline()

    def write(self, message: bytes) -> None:
        self._out.write(message + b"\n")
        self._out.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps(message, separators=(",", ":")).encode())

    def answer_to(self, question: str) -> dict[str, Any] | None:
        for line in iter(self._lines.readline, b""):
            message = _message(line)
            if message.get("id") == question and "method" not in message:
                return message
            self._waiting.append(line)
        return None


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], message) if isinstance(message, dict) else {}


def serve_stdio(server: RpcServer) -> None:
    """Until the input ends, or nobody reads the output any more."""
    wire = StdioWire(sys.stdin.buffer, sys.stdout.buffer)
    server.client.wire = wire
    try:
        while line := wire.next_line():
            answer = server.answer(line) if line.strip() else None
            if answer is not None:
                wire.write(answer)
    except BrokenPipeError:
        # what is still buffered has no reader: let the interpreter not try again as it ends
        sys.stdout = None
    except KeyboardInterrupt:
        return
