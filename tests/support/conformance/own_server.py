"""The tools that the conformance harness calls, on a server made with `trunkline.mcpserver`; it serves stdio.

Tools that ask their client something are missing: such a server asks nothing.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from tests.support.conformance.contents import RED_PIXEL, embedded, silence

from trunkline.mcpserver import Context, Server, ToolError, audio, image, text

STEP_S = 0.05
ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

server = Server("own-server", "1.0")
picture = image(base64.b64decode(RED_PIXEL))
sound = audio(base64.b64decode(silence()))
resource = embedded("test://embedded-resource", "This is an embedded resource content.")


async def with_logging(arguments: dict[str, Any], context: Context) -> str:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        context.log(words)
        await asyncio.sleep(STEP_S)
    return "Logged three messages."


async def with_progress(arguments: dict[str, Any], context: Context) -> str:
    for done in (0, 50, 100):
        context.progress(done, 100)
        await asyncio.sleep(STEP_S)
    return "Reported progress."


def fails(arguments: dict[str, Any]) -> None:
    raise ToolError("This tool intentionally returns an error for testing")


def toggle_tool(arguments: dict[str, Any]) -> str:
    if "test_extra" in server.tools:
        server.remove_tool("test_extra")
    else:
        server.register_tool("test_extra", {}, lambda _: "extra", description="One more")
    return "The list of tools has changed."


HANDLERS = {
    "test_simple_text": lambda _: "This is a simple text response for testing.",
    "test_image_content": lambda _: picture,
    "test_audio_content": lambda _: sound,
    "test_embedded_resource": lambda _: [resource],
    "test_multiple_content_types": lambda _: [text("Multiple content types test:"), picture, resource],
    "test_tool_with_logging": with_logging,
    "test_tool_with_progress": with_progress,
    "test_error_handling": fails,
    "test_trigger_tool_change": toggle_tool,
}

if __name__ == "__main__":
    for name, handler in HANDLERS.items():
        server.register_tool(name, {}, handler, description=f"For the harness: {name}")
    server.register_tool("json_schema_2020_12_tool", SCHEMA, lambda arguments: arguments, description="Elaborate")
    server.run()
