"""Makes the demo servers, and their tools with the bounds and defaults that the schemas declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final

from trunkline.mcpserver import Context, Handler, MethodError, Server, ToolError, text
from trunkline.version import __version__

Json = dict[str, Any]

READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}
ADDS: Final = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
DESTROYS: Final = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
RESOURCE_NOT_FOUND: Final = -32002


def handshake_server(name: str, instructions: str, *, title: str, capabilities: Json) -> Server:
    """A server for clients that open with `initialize`: 2026-07-28 has other shapes for prompts and resources."""
    server = Server(name, __version__, instructions, title=title, capabilities=capabilities)

    @server.method("server/discover")
    def not_offered(params: Json) -> Json:
        raise MethodError(METHOD_NOT_FOUND, "This server is for clients that open with `initialize`")

    return server


def tool(
    server: Server,
    title: str,
    properties: Mapping[str, Json] | None = None,
    *,
    result: Mapping[str, Json] | None = None,
    annotations: Mapping[str, bool] = READ_ONLY,
) -> Callable[[Handler], Handler]:
    """Decorator for a function that becomes the tool of its name, described by its docstring. Arguments are required
    unless their schema has a default."""
    arguments = properties or {}

    def register(function: Handler) -> Handler:
        @wraps(function)
        def in_thread(values: Json, *context: Context) -> Any:
            return function(_within_bounds(values, arguments), *context)

        @wraps(function)
        async def on_loop(values: Json, *context: Context) -> Any:
            return await function(_within_bounds(values, arguments), *context)

        server.register_tool(
            function.__name__.rstrip("_"),
            _object(arguments),
            on_loop if iscoroutinefunction(function) else in_thread,
            description=function.__doc__,
            title=title,
            annotations=annotations,
            output_schema=None if result is None else _object(result),
        )
        return function

    return register


def text_and_data(words: str, data: Json) -> Json:
    """A result with words for people, and the same as data for programs."""
    return {"content": [text(words)], "structuredContent": data}


def completion(values: Iterable[str], typed: object) -> Json:
    """Those of the values that begin with what is typed so far, in any case."""
    found = [value for value in values if value.casefold().startswith(str(typed).casefold())]
    return {"completion": {"values": found[:100], "total": len(found), "hasMore": len(found) > 100}}


def _object(properties: Mapping[str, Json]) -> Json:
    required = [name for name, schema in properties.items() if "default" not in schema]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _within_bounds(values: Json, properties: Mapping[str, Json]) -> Json:
    """The arguments with defaults filled in. Their types were checked by the server."""
    for name, value in values.items():
        schema = properties[name]
        if isinstance(value, str):
            if len(value) > schema.get("maxLength", len(value)):
                raise ToolError(f"`{name}` is longer than {schema['maxLength']:,} characters")
        elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            raise ToolError(f"`{name}` must be between {schema['minimum']:,} and {schema['maximum']:,}")
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema} | values
