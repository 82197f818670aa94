"""A router with fake servers and our own tools, and every answer held against its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
from tests.support.waiting import until
from tests.unit.router.fakes import RouterRig

from trunkline.config.settings import GatewaySettings, SearchSettings
from trunkline.core.call import Call, Caller, Result
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.search.discovery import Discovery
from trunkline.search.own_tool_definitions import INFORMING
from trunkline.search.own_tools import OwnTools

SCHEMAS = {tool.name: json.loads(tool.definition)["outputSchema"] for tool in INFORMING}


def tool(source: str, name: str, description: str = "", **more: Any) -> ToolDefinition:
    return ToolDefinition(source, name, json.dumps({"name": name, "description": description, **more}).encode())


def parameters(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def snapshot_of(*tools: ToolDefinition) -> Snapshot:
    return Snapshot(tools=tools)


class Registry(RouterRig):
    def __init__(
        self, folder: Path, *, shown: bool = True, gateway: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(folder, **options)
        settings = {"state_dir": folder / "state", "search": SearchSettings(semantic=False), **(gateway or {})}
        self.discovery = Discovery(self.router, GatewaySettings(**settings))
        self.own = OwnTools(self.router, self.discovery)
        self.own.show(shown)

    def serve(self, source: str, *tools: ToolDefinition, **options: Any) -> None:
        self.add(source, **options)
        self.sinks[source].publish(snapshot_of(*tools))

    def start(self, name: str, arguments: Any = None, *, session: str | None = None) -> Call:
        members = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        return self.call(name, members, caller=Caller("local", session))

    async def ask(self, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
        return await self.read(name, self.start(name, arguments, **more))

    async def read(self, name: str, call: Call) -> dict[str, Any]:
        """The structured answer, which fits its schema and stands in the text too."""
        await until(lambda: call.done, f"{name} is answered")
        result = self.result(call)
        assert "isError" not in result, result
        structured = result["structuredContent"]
        jsonschema.Draft202012Validator(SCHEMAS[name]).validate(structured)
        (text,) = result["content"]
        assert text["type"] == "text"
        assert json.loads(text["text"]) == structured
        return structured

    def refused(self, name: str, arguments: Any) -> str:
        """Bad arguments are refused at once."""
        result = self.result(self.start(name, arguments))
        assert result["isError"] is True
        assert "structuredContent" not in result
        return result["content"][0]["text"]

    @staticmethod
    def result(call: Call) -> dict[str, Any]:
        assert isinstance(call.outcome, Result), call.outcome
        assert call.outcome.single_line
        return json.loads(bytes(call.outcome.raw))

    def listed(self) -> list[str]:
        return [tool["name"] for tool in json.loads(self.router.catalog.listing)]
