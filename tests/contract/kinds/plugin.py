from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import RecordedRig
from tests.support.servers import Records, kill
from tests.support.waiting import at_most

PLUGIN = Path(__file__).parents[2] / "support" / "plugin_jobs.py"


class KindRig(RecordedRig):
    kind: ClassVar = "plugin"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = Records(folder, self.server)

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        program = {"command": sys.executable, "args": [str(PLUGIN), str(self.records.journal)]}
        return {self.server: {"kind": "plugin", **program, "timeout": at_most(10), **keys}}

    def take_away(self) -> dict[str, Any]:
        return {"command": str(self.folder / "not-yet")}

    def bring_back(self) -> None:
        program = self.folder / "not-yet"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)

    def kill(self) -> None:
        for pid in self.records.pids():
            kill(pid)
