from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import RecordedRig
from tests.support.app_peer_process import start_app
from tests.support.ports import free_port
from tests.support.servers import Records
from tests.support.waiting import at_most, wait_until


class KindRig(RecordedRig):
    """A program that dials in; its tools carry its name, as those of real ones do."""

    kind: ClassVar = "app"
    known_before: ClassVar = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = Records(folder, self.server)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return {"desktop": {"kind": self.kind, "listen": f"127.0.0.1:{self._port}", **keys}}

    def start(self) -> None:
        before = len(self.records.events("registered"))
        self._process = start_app(self._port, self.server, self.records.journal, at_most(30))
        wait_until(lambda: len(self.records.events("registered")) > before, "the app has registered")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    close = kill
