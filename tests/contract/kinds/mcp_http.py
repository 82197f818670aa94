from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.mcp_stdio import McpRig
from tests.support.servers import HttpFaults


class KindRig(McpRig):
    kind: ClassVar = "mcp_http"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = self._server = HttpFaults(folder, self.server, transport="http")

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return self._server.entry(**keys)

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.stop()

    close = kill
