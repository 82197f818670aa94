from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import RecordedRig, Use
from tests.support.servers import StdioFaults, kill


class McpRig(RecordedRig):
    """The jobs as the fault server does them."""

    def echo(self, text: str) -> Use:
        result = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
        return "verbatim", {"result": base64.b64encode(result).decode()}


class KindRig(McpRig):
    kind: ClassVar = "mcp_stdio"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = self._server = StdioFaults(folder, self.server)

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        return self._server.entry(**keys)

    def take_away(self) -> dict[str, Any]:
        return {"command": str(self.folder / "not-yet")}

    def bring_back(self) -> None:
        program = self.folder / "not-yet"
        program.write_text(f'#!/bin/sh\nexec {self._server.command[0]} "$@"\n')
        program.chmod(0o755)

    def kill(self) -> None:
        for pid in self._server.pids():
            kill(pid)
