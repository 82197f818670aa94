from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import Rig, Use
from tests.support.services import ServiceProcess


class KindRig(Rig):
    kind: ClassVar = "service"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._service = ServiceProcess(folder, self.server)

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return self._service.entry(**keys)

    def start(self) -> None:
        self._service.start()

    def kill(self) -> None:
        self._service.stop()

    close = kill

    def echo(self, text: str) -> Use:
        return "echo", {"text": text}

    def fail(self) -> Use:
        return "fail", {}

    def sleep(self, seconds: float) -> Use:
        return "sleep", {"seconds": seconds}

    def sleeping(self) -> int:
        return len(self._service.calls("sleep"))

    def told_to_stop(self) -> int:
        return len(self._service.events("cancelled"))
