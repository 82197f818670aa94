"""What the feature server has besides tools: resources, templates, prompts, completion; all lists in small pages."""

from __future__ import annotations

import os
import re
from typing import Any

from mcp import MCPError
from mcp_types import INVALID_PARAMS
from tests.support.interactions.asking import RequestContext, form

NAME = os.environ.get("FEATURE_NAME", "feature")
PAGE = int(os.environ.get("FEATURE_PAGE", "3"))
EXTRA = int(os.environ.get("FEATURE_EXTRA", "0"))
ENDLESS = os.environ.get("FEATURE_ENDLESS", "").split()
ICON = {"src": "data:image/svg+xml;base64,PHN2Zy8+", "mimeType": "image/svg+xml", "sizes": ["any"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/VscvDQAAAABJRU5ErkJggg=="
RESOURCE_NOT_FOUND = -32002
TEXT, BLOB, WATCHED, OTHER, ASKING = "test://text", "test://blob", "test://watched", "test://other", "test://asking"
LINKED = "test://linked/"
TEMPLATE = "test://items/{id}/{part}"
PARTS = {"one": ["head", "hand"], "two": ["tail"]}
STYLES = {"Ada": ["formal", "friendly"], "Bob": ["loud"]}
_ITEM = re.compile(r"test://items/([^/]+)/([^/]+)")
_versions: dict[str, int] = {}

RESOURCES: list[dict[str, Any]] = [
    {
        "uri": TEXT,
        "name": "text",
        "title": "A text",
        "description": f"Says who it is: {NAME}",
        "mimeType": "text/plain",
        "size": 42,
        "annotations": {"audience": ["user"], "priority": 0.5},
        "icons": [ICON],
        "_meta": {"feature.example/shelf": {"row": 2}},
    },
    {"uri": BLOB, "name": "blob", "mimeType": "image/png"},
    {"uri": WATCHED, "name": "watched"},
    {"uri": OTHER, "name": "other"},
    {"uri": ASKING, "name": "asking"},
]
RESOURCES += [{"uri": f"test://extra/{number}", "name": f"extra-{number}"} for number in range(EXTRA)]
TEMPLATES: list[dict[str, Any]] = [
    {
        "uriTemplate": TEMPLATE,
        "name": "items",
        "title": "Parts of items",
        "description": "A part of an item",
        "mimeType": "text/plain",
        "icons": [ICON],
        "_meta": {"feature.example/shelf": {"row": 3}},
    },
    {"uriTemplate": "test://linked/{name}", "name": "linked"},
]
PROMPTS: list[dict[str, Any]] = [
    {
        "name": "greet",
        "title": "Greet somebody",
        "description": "A greeting in a style",
        "arguments": [
            {"name": "name", "title": "Who", "description": "Whom to greet", "required": True},
            {"name": "style"},
        ],
        "icons": [ICON],
        "_meta": {"feature.example/shelf": {"row": 4}},
    },
    {"name": "plain"},
    {"name": "picture"},
    {"name": "asking"},
]


def page(items: list[dict[str, Any]], key: str, cursor: str | None) -> dict[str, Any]:
    if key in ENDLESS:
        number = int(cursor or 0)
        more = {"name": f"more-{number}", "uri": f"test://more/{number}"}
        return {key: [more, *(items if number == 0 else ())], "nextCursor": str(number + 1)}
    start = 0 if cursor is None else place_of(cursor, len(items))
    result: dict[str, Any] = {key: items[start : start + PAGE]}
    if start + PAGE < len(items):
        result["nextCursor"] = f"from {start + PAGE}"
    return result


def place_of(cursor: str, size: int) -> int:
    word, _, number = cursor.partition(" ")
    if word != "from" or not number.isdigit() or int(number) >= size:
        raise MCPError(INVALID_PARAMS, f"unknown cursor {cursor!r}")
    return int(number)


# Resources ------------------------------------------------------------------------------------------------------------


def version_of(uri: str) -> int:
    return _versions.get(uri, 1)


def renew(uri: str) -> None:
    _versions[uri] = version_of(uri) + 1


async def read(context: RequestContext) -> dict[str, Any]:
    uri = context.params.uri
    if uri == ASKING:
        answer = await context.ask(reader=form("Who reads this?", reader={"type": "string"}))
        return _text(uri, f"read by {answer['reader']['content']['reader']}")
    if uri == BLOB:
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
    if found := _ITEM.fullmatch(uri):
        return _text(uri, f"{NAME}: {found[2]} of {found[1]}")
    if uri.startswith(LINKED):
        return _text(uri, f"{NAME} linked {uri.removeprefix(LINKED)}")
    if not any(resource["uri"] == uri for resource in RESOURCES):
        code = INVALID_PARAMS if context.modern else RESOURCE_NOT_FOUND
        raise MCPError(code, "Resource not found", {"uri": uri})
    return _text(uri, f"{NAME}: {uri} version {version_of(uri)}")


def _text(uri: str, text: str) -> dict[str, Any]:
    content = {"uri": uri, "mimeType": "text/plain", "text": text, "_meta": {"feature.example/by": NAME}}
    return {"contents": [content], "_meta": {"feature.example/read": True}}


# Prompts --------------------------------------------------------------------------------------------------------------


async def get_prompt(context: RequestContext) -> dict[str, Any]:
    name, arguments = context.params.name, context.arguments
    if name == "greet":
        return _said(f"{NAME}: greet {arguments['name']} in a {arguments.get('style', 'plain')} style")
    if name == "picture":
        resource = {"uri": TEXT, "mimeType": "text/plain", "text": "embedded"}
        return _message(
            {"type": "resource", "resource": resource}, {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        )
    if name == "asking":
        answer = await context.ask(topic=form("About what?", topic={"type": "string"}))
        return _said(f"talk about {answer['topic']['content']['topic']}")
    if not any(prompt["name"] == name for prompt in PROMPTS):
        raise MCPError(INVALID_PARAMS, f"Unknown prompt: {name}")
    return _said(f"{NAME}: {name}")


def _said(text: str) -> dict[str, Any]:
    return _message({"type": "text", "text": text})


def _message(*contents: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": content} for content in contents]
    return {"description": f"a prompt of {NAME}", "messages": messages, "_meta": {"feature.example/got": True}}


# Completion -----------------------------------------------------------------------------------------------------------


def complete(params: Any) -> dict[str, Any]:
    known = dict(params.context.arguments or {}) if params.context else {}
    values = _candidates(params.ref, params.argument.name, known)
    fitting = [value for value in values if value.startswith(params.argument.value)]
    return {"completion": {"values": fitting, "total": len(fitting), "hasMore": False}}


def _candidates(ref: Any, argument: str, known: dict[str, str]) -> list[str]:
    if ref.type == "ref/prompt" and ref.name == "greet":
        return [*sorted(STYLES), NAME] if argument == "name" else STYLES.get(known.get("name", ""), [])
    if ref.type == "ref/resource" and ref.uri == TEMPLATE:
        return [*sorted(PARTS), NAME] if argument == "id" else PARTS.get(known.get("id", ""), [])
    raise MCPError(INVALID_PARAMS, "Unknown reference")
