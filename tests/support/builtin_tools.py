"""Built-in tools at work in a folder, without a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trunkline.config.call_arguments import InvalidArguments, read_arguments
from trunkline.config.sandbox import SandboxSettings
from trunkline.core.call import Call, Caller
from trunkline.sources.builtin.protection.protected_paths import ProtectedPaths
from trunkline.sources.builtin.root import GatewayFiles, RootFolder
from trunkline.sources.builtin.tool import RunningToolCall, ToolContext, ToolFault


class AtOnce:
    """In place of threads: work is done where it is asked for."""

    async def run(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


class Workbench:
    """`use` runs one tool and gives its result; a ToolFault comes through."""

    def __init__(
        self,
        folder: Path,
        *,
        walk_only: bool = False,
        own: GatewayFiles | None = None,
        protected: ProtectedPaths | None = None,
        context: Any = None,
    ) -> None:
        self.folder = folder
        self.root = RootFolder(folder, own=own, protected=protected, walk_only=walk_only)
        self.place = ToolContext(source="local", root=self.root, sandbox=SandboxSettings(mode="off"), gateway=context)

    def job(self) -> RunningToolCall:
        call = Call("tools/call", b"", lambda _: None, caller=Caller(), reply=lambda _: None)
        return RunningToolCall(call, AtOnce())

    async def use(self, kind: Any, **arguments: Any) -> dict[str, Any]:
        tool = kind(self.place)
        params = json.dumps({"name": "x", "arguments": arguments}).encode()
        try:
            read = read_arguments(params, tool.arguments)
        except InvalidArguments as error:
            raise ToolFault(str(error)) from None
        return json.loads(await tool.run(read, self.job()))

    async def text(self, kind: Any, **arguments: Any) -> str:
        (block,) = (await self.use(kind, **arguments))["content"]
        return block["text"]

    def write(self, name: str, content: str | bytes = "") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path
