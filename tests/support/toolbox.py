"""Tools for a model in tests: each is a coroutine function, and calls are recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from trunkline.agents.providers.openai.request import FunctionTool

Tool = Callable[[dict[str, Any]], Awaitable[str]]
SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"n": {}}}


async def echo(arguments: dict[str, Any]) -> str:
    return "got " + json.dumps(arguments, sort_keys=True)


class Tools:
    def __init__(self, **tools: Tool) -> None:
        self.tools = tools or {"echo": echo}
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[str] = []

    def definitions(self) -> list[FunctionTool]:
        return [FunctionTool(name=name, description=f"the tool {name}", parameters=SCHEMA) for name in self.tools]

    async def call(self, name: str, arguments: bytes) -> str:
        given = json.loads(arguments)
        self.called.append((name, given))
        try:
            return await self.tools[name](given)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
