from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import RecordedRig
from tests.support.services import ServiceProcess


class KindRig(RecordedRig):
    kind: ClassVar = "service"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = self._service = ServiceProcess(folder, self.server)

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return self._service.entry(**keys)

    def start(self) -> None:
        self._service.start()

    def kill(self) -> None:
        self._service.stop()

    close = kill
