from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, ClassVar

from tests.contract.kinds.rig import Rig, Use
from tests.support.processes import alive
from tests.support.servers import kill


class KindRig(Rig):
    """The jobs as Bash does them: nothing else of ours can give a text back, or sleep."""

    kind: ClassVar = "builtin"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._root = folder / "root"
        self._root.mkdir()

    def entry(self, **keys: Any) -> dict[str, dict[str, Any]]:
        tools = {"allow": ["*", "Bash"]}
        return {self.server: {"kind": "builtin", "root": str(self._root), "sandbox": "off", "tools": tools, **keys}}

    def take_away(self) -> dict[str, Any]:
        self._root = self.folder / "not-yet"
        return {"root": str(self._root)}

    def bring_back(self) -> None:
        self._root.mkdir()

    def kill(self) -> None:
        """What looks after the commands: the only part of this kind that can die by itself."""
        for pid in {int(path.read_text()) for path in self._root.glob("*.begun")}:
            kill(pid)

    def echo(self, text: str) -> Use:
        return "Bash", {"command": f"printf %s {shlex.quote(text)}"}

    def heard(self, text: str) -> str:
        return text.replace("\r\n", "\n") or "(no output)"

    def fail(self) -> Use:
        return "Read", {"path": "nowhere"}

    def sleep(self, seconds: float) -> Use:
        begin = "echo $PPID > $$.new; mv $$.new $$.begun"
        return "Bash", {"command": f"{begin}; sleep {seconds}; touch $$.done; echo slept"}

    def sleeping(self) -> int:
        return len(list(self._root.glob("*.begun")))

    def told_to_stop(self) -> int:
        begun = [path for path in self._root.glob("*.begun") if not path.with_suffix(".done").exists()]
        return sum(not alive(int(path.stem)) for path in begun)
