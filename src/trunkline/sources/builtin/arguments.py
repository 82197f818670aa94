"""The definitions of built-in tools, with schemas that come from the Structs their arguments are read into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.protocol.jsonrpc import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What a tool does to its surroundings, as MCP's annotations say it."""

    title: str
    reads_only: bool = False
    destroys: bool = False
    idempotent: bool = False
    open_world: bool = False


def definition(name: str, doc: str, arguments: type[Struct], hints: Hints) -> bytes:
    """The tool as `tools/list` shows it."""
    annotations = {
        "title": hints.title,
        "readOnlyHint": hints.reads_only,
        "destructiveHint": hints.destroys,
        "idempotentHint": hints.idempotent,
        "openWorldHint": hints.open_world,
    }
    shown = msgspec.json.schema_components([arguments])[1][arguments.__name__]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _argument(schema) for name, schema in shown["properties"].items()},
        "required": shown["required"],
    }
    return encode({"name": name, "description": doc, "inputSchema": schema, "annotations": annotations})


def _argument(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the null that stands for an argument that is left out: nobody needs to write it."""
    if "enum" in schema:
        return {"type": "string", **schema}
    return schema["anyOf"][0] if "anyOf" in schema else schema
