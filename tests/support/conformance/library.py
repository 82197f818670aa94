"""The prompts, resources and completions that the conformance harness asks for by name."""

from __future__ import annotations

import json
import re
from typing import Any

import mcp_types as types
from mcp import MCPError
from tests.support.conformance.changes import Changes
from tests.support.conformance.contents import RED_PIXEL, Content, embedded, image, text
from tests.support.conformance.server_requests import Context, ask, form, is_modern

Result = dict[str, Any]
RESOURCE_NOT_FOUND = -32002
"""Its number before 2026-07-28."""

# Prompts --------------------------------------------------------------------------------------------------------------


def argument(name: str) -> dict[str, Any]:
    return {"name": name, "required": True}


PROMPTS: list[dict[str, Any]] = [
    {"name": "test_simple_prompt", "description": "Without arguments"},
    {
        "name": "test_prompt_with_arguments",
        "description": "With two arguments",
        "arguments": [argument("arg1"), argument("arg2")],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "With a resource in it",
        "arguments": [argument("resourceUri")],
    },
    {"name": "test_prompt_with_image", "description": "With a picture in it"},
    {"name": "test_input_required_result_prompt", "description": "Needs something from the user"},
]
EXTRA_PROMPT = {"name": "test_extra_prompt", "description": "Comes and goes"}
CONTEXT = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])


def prompts(changes: Changes) -> list[dict[str, Any]]:
    return [*PROMPTS, EXTRA_PROMPT] if changes.extra_prompt else PROMPTS


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Result:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt" | "test_extra_prompt":
            return messages(text("This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            return messages(text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"))
        case "test_prompt_with_embedded_resource":
            resource = embedded(given.get("resourceUri", ""), "Embedded resource content for testing.")
            return messages(resource, text("Please process the embedded resource above."))
        case "test_prompt_with_image":
            return messages(image(), text("Please analyze the image above."))
        case "test_input_required_result_prompt":
            answers = await ask(ctx, params, {"user_context": CONTEXT})
            return messages(text(f"Use this: {json.dumps(answers['user_context'].get('content'))}"))
    raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name}")


def messages(*contents: Content) -> Result:
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def complete(params: types.CompleteRequestParams) -> Result:
    """Words that go on from what was typed."""
    words = ["paris", "park", "party", "test", "testing"]
    found = [word for word in words if word.startswith(params.argument.value)]
    return {"completion": {"values": found, "total": len(found), "hasMore": False}}


# Resources ------------------------------------------------------------------------------------------------------------

TEMPLATE = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
_OF_TEMPLATE = re.compile(r"test://template/([^/]+)/data")
_TEXTS = {
    "test://static-text": "This is the content of the static text resource.",
    "test://watched-resource": "This is the content of a resource that may be watched.",
}
RESOURCES: list[dict[str, Any]] = [
    *({"uri": uri, "name": uri.removeprefix("test://"), "mimeType": "text/plain"} for uri in _TEXTS),
    {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png"},
]


def read(ctx: Context, uri: str) -> Result:
    if uri in _TEXTS:
        return contents(uri, "text/plain", text=_TEXTS[uri])
    if uri == "test://static-binary":
        return contents(uri, "image/png", blob=RED_PIXEL)
    if found := _OF_TEMPLATE.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        return contents(uri, "application/json", text=json.dumps(data))
    code = types.INVALID_PARAMS if is_modern(ctx) else RESOURCE_NOT_FOUND
    raise MCPError(code=code, message="Resource not found", data={"uri": uri})


def contents(uri: str, mime_type: str, **content: str) -> Result:
    return {"contents": [{"uri": uri, "mimeType": mime_type, **content}]}
