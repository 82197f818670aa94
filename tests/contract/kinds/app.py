from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import Rig, Use
from tests.support.app_peer_process import start_app
from tests.support.ports import free_port
from tests.support.servers import Records
from tests.support.waiting import wait_until


class KindRig(Rig):
    """A program that dials in; its tools carry its name, as those of real ones do."""

    kind: ClassVar = "app"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._records = Records(folder, self.server)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return {"desktop": {"kind": self.kind, "listen": f"127.0.0.1:{self._port}", **keys}}

    def start(self) -> None:
        before = len(self._records.events("registered"))
        self._process = start_app(self._port, self.server, self._records.journal)
        wait_until(lambda: len(self._records.events("registered")) > before, "the app has registered")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    close = kill

    def echo(self, text: str) -> Use:
        return "echo", {"text": text}

    def fail(self) -> Use:
        return "fail", {}

    def sleep(self, seconds: float) -> Use:
        return "sleep", {"seconds": seconds}

    def sleeping(self) -> int:
        return len(self._records.calls("sleep"))

    def told_to_stop(self) -> int:
        return len(self._records.events("cancelled"))
