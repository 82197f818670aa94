"""A real program that dials in, in a process of its own: it writes down what it was asked, and can be killed.

Run as a program it takes one argument, its options as JSON. It needs the standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOOLS = ("echo", "fail", "sleep")


class App:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._sleeping: dict[int, threading.Timer] = {}
        self._line = _dial(options["port"], options["patience_s"])

    def run(self) -> None:
        name = self._options["name"]
        tools = [
            {"name": f"{name}:{tool}", "description": f"Does {tool}", "inputSchema": {"type": "object"}}
            for tool in TOOLS
        ]
        self._say({"type": "register", "appName": name, "tools": tools, "acknowledge": True})
        for line in self._line.makefile("rb"):
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "registered":
            self._write_down("registered", pid=os.getpid())
        elif kind == "toolCancel":
            self._write_down("cancelled")
            self._sleeping.pop(message["correlationId"], threading.Timer(0, print)).cancel()
        elif kind == "toolInvocation":
            tool = message["tool"].partition(":")[2]
            self._write_down("call", tool=tool)
            self._do(tool, message["correlationId"], message["parameters"])

    def _do(self, tool: str, number: int, arguments: dict[str, Any]) -> None:
        if tool == "echo":
            self._answer(number, True, arguments["text"])
        elif tool == "fail":
            self._answer(number, False, None, "it did not work")
        else:
            timer = threading.Timer(arguments["seconds"], self._answer, (number, True, "slept"))
            timer.daemon = True
            self._sleeping[number] = timer
            timer.start()

    def _answer(self, number: int, success: bool, data: Any, error: str | None = None) -> None:
        result = {"success": success, "data": data, "error": error}
        self._say({"type": "toolResponse", "correlationId": number, "result": result})

    def _say(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._line.sendall(json.dumps(message).encode() + b"\r\n\r\n")

    def _write_down(self, event: str, **fields: Any) -> None:
        with self._lock, Path(self._options["journal"]).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps({"event": event, **fields}) + "\n")


def _dial(port: int, patience_s: float) -> socket.socket:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=None)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def start_app(port: int, name: str, journal: Path, patience_s: float) -> subprocess.Popen[bytes]:
    """It dials until somebody listens, for so long."""
    options = json.dumps({"port": port, "name": name, "journal": str(journal), "patience_s": patience_s})
    return subprocess.Popen([sys.executable, "-I", "-S", __file__, options], stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    App(json.loads(sys.argv[1])).run()
