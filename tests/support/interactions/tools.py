"""The feature server's tools: one for each thing that a gateway must carry."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp_types import INVALID_PARAMS, URL_ELICITATION_REQUIRED
from tests.support.interactions import feature_data
from tests.support.interactions.asking import RequestContext, form, roots, sampling, visit
from tests.support.interactions.notifier import LOG_LEVELS, Levels, Notifier

Handler = Callable[[RequestContext], Awaitable[dict[str, Any]]]
TOOLS: list[dict[str, Any]] = []
HANDLERS: dict[str, Handler] = {}
NOTIFIER = Notifier()
LEVELS = Levels()
_visited: set[str] = set()


def tool(handler: Handler, /, **keys: Any) -> Handler:
    """One more tool; what its arguments are is in `properties`, the rest of the definition in the other keys."""
    name = handler.__name__.rstrip("_")
    properties = keys.pop("properties", {})
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    TOOLS.append({"name": name, "description": handler.__doc__, "inputSchema": schema, **keys})
    HANDLERS[name] = handler
    return handler


def text(said: str, **members: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **members}


def structured(value: Any) -> dict[str, Any]:
    return text("see the structured content", structuredContent=value)


def journal(line: str) -> None:
    if path := os.environ.get("PEER_JOURNAL"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


# Answers of every kind ------------------------------------------------------------------------------------------------


async def add(context: RequestContext) -> dict[str, Any]:
    """Add two numbers."""
    total = context.arguments["a"] + context.arguments["b"]
    return text(str(total), structuredContent={"total": total, "by": feature_data.NAME})


async def show(_: RequestContext) -> dict[str, Any]:
    """Every kind of content."""
    resource = {
        "uri": feature_data.TEXT,
        "mimeType": "text/plain",
        "text": "embedded",
        "_meta": {"feature.example/n": 1},
    }
    annotations = {"audience": ["assistant"], "priority": 0.25}
    return {
        "content": [
            {"type": "text", "text": "é 😀 \u2028", "annotations": annotations, "_meta": {"feature.example/n": 2}},
            {"type": "image", "data": feature_data.PIXEL, "mimeType": "image/png"},
            {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
            {"type": "resource", "resource": resource},
        ]
    }


async def link(context: RequestContext) -> dict[str, Any]:
    """A link to a resource that no list has."""
    uri = feature_data.LINKED + context.arguments["name"]
    return {
        "content": [
            {"type": "resource_link", "uri": uri, "name": "linked", "title": "Linked", "icons": [feature_data.ICON]}
        ]
    }


async def numbers(_: RequestContext) -> dict[str, Any]:
    """A structured result that is no object, which 2026-07-28 allows."""
    return text("[1, 2, 3]", structuredContent=[1, 2, 3])


async def fail(context: RequestContext) -> dict[str, Any]:
    """A failure that is the tool's answer."""
    return text(context.arguments["reason"], isError=True)


async def refuse(context: RequestContext) -> dict[str, Any]:
    """A failure that is a JSON-RPC error."""
    raise MCPError(4711, context.arguments["reason"], {"retry": False, "ids": [1, "1", 1.5, None]})


async def region(context: RequestContext) -> dict[str, Any]:
    """An argument that travels in a header too."""
    return text(f"in {context.arguments['region']}")


async def seen(context: RequestContext) -> dict[str, Any]:
    """What the server sees of whoever calls."""
    client = context.ctx.session.client_params
    name = client.client_info.name if client else ""
    meta = dict(context.ctx.meta or {})
    return structured(
        {"capabilities": context.capabilities, "client": name, "meta": meta, "version": context.ctx.protocol_version}
    )


async def echo(context: RequestContext) -> dict[str, Any]:
    """Give back the `_meta` that is not about the connection, beside one key of the tool's own."""
    own = {key: value for key, value in (context.ctx.meta or {}).items() if "modelcontextprotocol" not in key}
    own.pop("progressToken", None)
    own.pop("progress_token", None)
    return text("echoed", _meta={**own, "feature.example/echoed-by": feature_data.NAME})


# What happens while a call runs ---------------------------------------------------------------------------------------


async def work(context: RequestContext) -> dict[str, Any]:
    """Report progress, then answer; with `hold`, once there is a file of that name."""
    steps, hold = context.arguments["steps"], context.arguments.get("hold")
    for step in range(1, steps + 1):
        await context.ctx.session.report_progress(step, steps, f"step {step}")
    while hold and not Path(hold).exists():
        await asyncio.sleep(0.01)
    return text(f"{steps} steps")


async def chatter(context: RequestContext) -> dict[str, Any]:
    """Say something at every level of importance."""
    for level in LOG_LEVELS[LEVELS.least(context.ctx) :]:
        await context.ctx.session.send_log_message(
            level, {"said": context.arguments["word"], "at": level}, "parrot", context.ctx.request_id
        )
    return text("said it all")


async def hold(context: RequestContext) -> dict[str, Any]:
    """Never answers; says in the journal that it began, and that it was told to stop."""
    name = context.arguments["name"]
    journal(f"held {name}")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        journal(f"cancelled {name}")
        raise
    return text("unreachable")


# Questions to the client ----------------------------------------------------------------------------------------------


async def think(context: RequestContext) -> dict[str, Any]:
    """Let the client's model answer."""
    if "sampling" not in context.capabilities:
        return text("nobody to ask")
    answers = await context.ask(thought=sampling(context.arguments["about"]))
    return structured(answers["thought"])


async def survey(context: RequestContext) -> dict[str, Any]:
    """Let the user fill in a form."""
    if "elicitation" not in context.capabilities:
        return text("nobody to ask")
    colour = {"type": "string", "title": "Colour", "enum": ["red", "green"], "default": "green"}
    age = {"type": "integer", "minimum": 0, "maximum": 150}
    answers = await context.ask(person=form(context.arguments["question"], name=STRING, age=age, colour=colour))
    return structured(answers["person"])


async def sign_in(context: RequestContext) -> dict[str, Any]:
    """Send the user to a page."""
    if "url" not in context.capabilities.get("elicitation", {}):
        return text("nobody to ask")
    page = visit("Please sign in", context.arguments["url"], uuid.uuid4().hex, modern=context.modern)
    answers = await context.ask(signed=page)
    return structured(answers["signed"])


async def where(context: RequestContext) -> dict[str, Any]:
    """Ask for the client's folders."""
    if "roots" not in context.capabilities:
        return text("nobody to ask")
    answers = await context.ask(folders=roots())
    return structured(answers["folders"])


async def everything(context: RequestContext) -> dict[str, Any]:
    """Three questions at once."""
    answers = await context.ask(
        thought=sampling("three at once"), person=form("Who are you?", name=STRING), folders=roots()
    )
    return structured(answers)


async def interview(context: RequestContext) -> dict[str, Any]:
    """One question after the other: the second one needs the first one's answer."""
    first = (await context.ask(first=form("What is your name?", name=STRING)))["first"]
    name = first["content"]["name"]
    second = (await context.ask(second=form(f"How old are you, {name}?", age=INTEGER)))["second"]
    third = (await context.ask(third=sampling(f"{name} is {second['content']['age']}")))["third"]
    return structured({"name": name, "age": second["content"]["age"], "thought": third["content"]["text"]})


async def gate(context: RequestContext) -> dict[str, Any]:
    """Works only after the user has been to a page, which old servers say with an error of its own."""
    name = context.arguments["name"]
    if name not in _visited:
        _visited.add(name)
        page = {"mode": "url", "elicitationId": name, "url": f"https://example.com/{name}", "message": "Open the gate"}
        raise MCPError(URL_ELICITATION_REQUIRED, "The gate is shut", {"elicitations": [page]})
    return text(f"{name} went through")


async def finish_sign_in(context: RequestContext) -> dict[str, Any]:
    """Say that an elicitation by URL is over, as old servers do."""
    await context.ctx.session.send_elicit_complete(context.arguments["id"], context.ctx.request_id)
    return text("told")


# Changes --------------------------------------------------------------------------------------------------------------


async def touch(context: RequestContext) -> dict[str, Any]:
    """Renew a resource, and tell whoever watches it."""
    uri = context.arguments["uri"]
    feature_data.renew(uri)
    await NOTIFIER.updated(context.ctx, uri)
    return text(f"version {feature_data.version_of(uri)}")


async def grow(context: RequestContext) -> dict[str, Any]:
    """Have one more tool, prompt or resource from now on, and say so."""
    kind, name = context.arguments["kind"], context.arguments["name"]
    if kind == "tools":

        async def grown(_: RequestContext) -> dict[str, Any]:
            return text(name)

        grown.__name__ = name
        tool(grown)
    elif kind == "prompts":
        feature_data.PROMPTS.append({"name": name})
    elif kind == "resources":
        feature_data.RESOURCES.append({"uri": f"test://grown/{name}", "name": name})
    else:
        raise MCPError(INVALID_PARAMS, f"cannot grow {kind}")
    await NOTIFIER.changed(context.ctx, kind)
    return text(name)


tool(
    add,
    title="Add numbers",
    properties={"a": INTEGER, "b": INTEGER},
    outputSchema={
        "type": "object",
        "properties": {"total": INTEGER, "by": STRING},
        "required": ["total", "by"],
    },
    annotations={"readOnlyHint": True, "idempotentHint": True},
    icons=[feature_data.ICON],
    _meta={"feature.example/shelf": {"row": 1, "exact": 12345678901234567890}},
)
for plain in (show, seen, echo, where, everything, interview):
    tool(plain)
tool(link, properties={"name": STRING})
tool(fail, properties={"reason": STRING})
tool(refuse, properties={"reason": STRING})
tool(work, properties={"steps": INTEGER})
tool(chatter, properties={"word": STRING})
tool(hold, properties={"name": STRING})
tool(think, properties={"about": STRING})
tool(survey, properties={"question": STRING})
tool(sign_in, properties={"url": STRING})
tool(touch, properties={"uri": STRING})
tool(grow, properties={"kind": STRING, "name": STRING})


def add_tools_of(era: str) -> None:
    """Those that only one era of the protocol has."""
    if era == "legacy":
        tool(gate, properties={"name": STRING})
        tool(finish_sign_in, properties={"id": STRING})
    else:
        tool(numbers, outputSchema={"type": "array", "items": INTEGER})
        tool(region, properties={"region": {**STRING, "x-mcp-header": "Region"}})
