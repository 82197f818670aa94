"""A service as tests use it: a process, an entry for the configuration, and what it wrote down."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.servers import Records
from tests.support.waiting import wait_until

PROGRAM = str(Path(__file__).with_name("service_server.py"))
TOKEN = "s3rvice-t0ken-0123456789"


class ServiceProcess(Records):
    def __init__(self, folder: Path, name: str = "svc", **options: Any) -> None:
        super().__init__(folder, name)
        self.name = name
        self.port = free_port()
        self._port_file = folder / f"{name}.port"
        self.options = {
            "journal": str(self.journal),
            "port_file": str(self._port_file),
            "port": self.port,
            "token": TOKEN,
            **options,
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        tokens = {"*": TOKEN}
        return {self.name: {"kind": "service", "endpoint": self.endpoint, "tokens": tokens, "timeout": 10, **keys}}

    def start(self) -> ServiceProcess:
        self._port_file.unlink(missing_ok=True)
        command = [sys.executable, "-I", "-S", PROGRAM, json.dumps(self.options)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self._port_file.exists, "the service listens")
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    def posts(self) -> list[dict[str, Any]]:
        """Every request to execute something."""
        return [event for event in self.events("request") if event["method"] == "POST"]
