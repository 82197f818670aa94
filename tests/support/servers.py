"""Fault servers as tests use them: an entry for the configuration, a journal to read, and processes that end."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.support.ports import free_port
from tests.support.processes import alive
from tests.support.waiting import at_most, until, wait_until

FAULT_SERVER = str(Path(__file__).with_name("fault_server.py"))


class Records:
    """What a fault server wrote down, however many processes of it there were."""

    def __init__(self, folder: Path, name: str) -> None:
        self.journal = folder / f"{name}.journal"
        self.ledger = folder / f"{name}.ledger"
        self._past: dict[Path, int] = {}

    def forget(self) -> None:
        """What was written down so far is not shown any more: tests that share a server look at their own part."""
        self._past = {path: path.stat().st_size for path in (self.journal, self.ledger) if path.exists()}

    def events(self, kind: str) -> list[dict[str, Any]]:
        return self._events(kind, self._past.get(self.journal, 0))

    def _events(self, kind: str, start: int) -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        whole = self.journal.read_bytes()[start:].split(b"\n")[:-1]
        return [event for event in map(json.loads, whole) if event["event"] == kind]

    async def wait_for(self, kind: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """At least so many events of a kind, whose fields are as given."""

        def enough() -> list[dict[str, Any]] | None:
            found = [event for event in self.events(kind) if fields.items() <= event.items()]
            return found if len(found) >= count else None

        return await until(enough, f"{count} times {kind} {fields} in {self.journal.name}") or []

    def messages(self) -> list[bytes]:
        """Every message as it arrived, in order."""
        return [base64.b64decode(event["raw"]) for event in self.events("message")]

    def calls(self, tool: str | None = None) -> list[dict[str, Any]]:
        return [event for event in self.events("call") if tool is None or event["tool"] == tool]

    def pids(self) -> list[int]:
        """Processes of this server that are alive now, oldest first."""
        return [event["pid"] for event in self._events("start", 0) if alive(event["pid"])]

    def steps(self) -> list[tuple[str, str]]:
        """The ledger: (`start` or `done`, nonce)."""
        if not self.ledger.exists():
            return []
        written = self.ledger.read_bytes()[self._past.get(self.ledger, 0) :].decode()
        return [(step, nonce) for step, _, nonce in (line.partition(" ") for line in written.splitlines())]


class StdioFaults(Records):
    """A fault server that somebody else starts over stdio."""

    def __init__(self, folder: Path, name: str = "s", **options: Any) -> None:
        super().__init__(folder, name)
        self.name = name
        self.options = {"journal": str(self.journal), "ledger": str(self.ledger), **options}

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", FAULT_SERVER, json.dumps(self.options)]

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        """This server's part of `sources:`."""
        command, *args = self.command
        return {self.name: {"kind": "mcp_stdio", "command": command, "args": args, "timeout": at_most(30), **keys}}


class Listening(Records):
    """A program of ours that listens on a port, started here; `with` ends it."""

    program: ClassVar = FAULT_SERVER

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        super().__init__(folder, name)
        self.name = name
        self.port = free_port()
        self._port_file = folder / f"{name}.port"
        self.options = {"journal": str(self.journal), "port_file": str(self._port_file), **options}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, or start again: the port stays the same."""
        self._port_file.unlink(missing_ok=True)
        options = json.dumps({**self.options, "port": self.port})
        self.process = subprocess.Popen([sys.executable, "-I", "-S", self.program, options], stdin=subprocess.DEVNULL)
        wait_until(self._port_file.exists, f"{self.name} listens")
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()


class HttpFaults(Listening):
    """A fault server over HTTP."""

    def __init__(self, folder: Path, name: str = "h", **options: Any) -> None:
        super().__init__(folder, name, **{"transport": "http", **options})
        self.options.setdefault("ledger", str(self.ledger))

    @property
    def url(self) -> str:
        path = "sse" if self.options["transport"] == "sse" else "mcp"
        return f"http://127.0.0.1:{self.port}/{path}"

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return {self.name: {"kind": "mcp_http", "url": self.url, "timeout": at_most(30), **keys}}


def kill(pid: int) -> None:
    """SIGKILL to one process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
