from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import Rig, Use
from tests.support.servers import Records, kill

PLUGIN = Path(__file__).parents[2] / "support" / "plugin_jobs.py"


class KindRig(Rig):
    kind: ClassVar = "plugin"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = Records(folder, self.server)

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        args = [str(PLUGIN), str(self.records.journal)]
        return {self.server: {"kind": "plugin", "command": sys.executable, "args": args, "timeout": 10, **keys}}

    def take_away(self) -> dict[str, Any]:
        return {"command": str(self.folder / "not-yet")}

    def bring_back(self) -> None:
        program = self.folder / "not-yet"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)

    def kill(self) -> None:
        for pid in self.records.pids():
            kill(pid)

    def echo(self, text: str) -> Use:
        return "echo", {"text": text}

    def fail(self) -> Use:
        return "fail", {}

    def sleep(self, seconds: float) -> Use:
        return "sleep", {"seconds": seconds}

    def sleeping(self) -> int:
        return len(self.records.calls("sleep"))

    def told_to_stop(self) -> int:
        return len(self.records.events("cancelled"))
