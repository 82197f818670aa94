"""A .NET program that knows nothing of Trunkline: its bytes, on a plain socket, called by a real MCP client.

It writes an empty line after each answer, ends lines as its platform does, puts a byte order mark before its first,
writes `null` for what it does not have, and in some programs every name with a capital.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from tests.support.gateway import Gateway
from tests.support.peers.clients import MODERN, connect
from tests.support.ports import free_port
from tests.support.waiting import until

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer", "description": None}}, "required": None}
TOOLS = [
    {"name": "WatchTower:ClickElement", "description": "Clicks", "inputSchema": SCHEMA},
    {"name": "WatchTower:Fail", "description": None, "inputSchema": None},
    {"name": "WatchTower:Forget", "description": "Never answers", "inputSchema": {"type": "object"}},
]


def capitalised(value: Any) -> Any:
    """As a serialiser writes it that was not told about camel case. Values and the names of parameters stay."""
    if isinstance(value, list):
        return [capitalised(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name[:1].upper() + name[1:]: {key: capitalised(inner) for key, inner in item.items()}
        if name == "properties"
        else capitalised(item)
        for name, item in value.items()
    }


class WatchTower:
    """The program. `heard` are the messages that it was sent."""

    def __init__(self, *, capitals: bool, line_end: bytes, mark: bytes) -> None:
        self._spell = capitalised if capitals else lambda value: value
        self._line_end = line_end
        self._mark = mark
        self.heard: list[dict[str, Any]] = []

    @contextlib.asynccontextmanager
    async def running(self, port: int) -> AsyncIterator[None]:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(self._mark)
        self._write({"type": "register", "appName": "WatchTower", "tools": TOOLS})
        serving = asyncio.ensure_future(self._serve(reader))
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            self._writer.close()
            await self._writer.wait_closed()

    def _write(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(self._spell(message)).encode() + self._line_end)

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = json.loads(line)
            self.heard.append(message)
            if message["type"] == "toolInvocation" and message["tool"] != "WatchTower:Forget":
                self._answer(message)

    def _answer(self, invocation: dict[str, Any]) -> None:
        fails = invocation["tool"] == "WatchTower:Fail"
        result = {
            "success": not fails,
            "data": None if fails else f"clicked {invocation['parameters']['x']}",
            "error": "Element not found" if fails else None,
        }
        number = invocation["correlationId"]
        self._write({"type": "toolResponse", "correlationId": number, "result": result})
        self._writer.write(self._line_end)


@pytest.mark.parametrize(
    "writes",
    [
        {"capitals": False, "line_end": b"\n", "mark": b""},
        {"capitals": False, "line_end": b"\r\n", "mark": b"\xef\xbb\xbf"},
        {"capitals": True, "line_end": b"\r\n", "mark": b"\xef\xbb\xbf"},
    ],
    ids=["camel case", "windows", "capitals"],
)
async def test_a_dotnet_program_connects_unchanged(tmp_path: Path, writes: dict[str, Any]) -> None:
    port = free_port()
    app = WatchTower(**writes)
    entry = {"kind": "app", "listen": f"127.0.0.1:{port}", "tools": {"timeouts": {"WatchTower:Forget": 1}}}
    with Gateway(tmp_path, {"desktop": entry}) as gateway:
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        async with connect("sdk", MODERN, url, tmp_path / "client.log") as client:
            async with app.running(port):

                async def listed() -> bool:
                    return len(await client.names()) == len(TOOLS)

                await until(listed, "its tools are listed")
                click, fail, _ = await client.tools()
                assert click.name == "WatchTower_ClickElement"
                assert click.input_schema["properties"]["x"]["type"] == "integer"
                assert fail.input_schema == {"type": "object"}

                results = await asyncio.gather(
                    *(client.call("WatchTower_ClickElement", {"x": number}) for number in range(20))
                )
                assert [result.content[0].text for result in results] == [f"clicked {number}" for number in range(20)]
                failed = await client.call("WatchTower:Fail", {})
                assert failed.is_error and failed.content[0].text == "Element not found"
                with pytest.raises(MCPError, match="Tool execution timed out after 1 seconds"):
                    await client.call("WatchTower.Forget", {})

                first = app.heard[0]
                assert list(first) == ["type", "correlationId", "tool", "parameters"]
                await until(lambda: app.heard[-1]["type"] == "toolCancel", "it is told that nobody waits")
                assert {message["type"] for message in app.heard[:-1]} == {"toolInvocation"}
            await until(lambda: _none(client), "its tools have left")
        assert await gateway.counted("noise_lines", "WatchTower") == 0


async def _none(client: Any) -> bool:
    return await client.names() == set()
