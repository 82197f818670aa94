"""Tools are checked as they are registered, and whatever a handler does, its caller gets a result."""

from __future__ import annotations

import asyncio
import functools
import sys

import pytest
from tests.support.mcp_dialogue import talking_to

from trunkline.mcpserver import Context, Server, ToolError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", {}, print), "name"),
        (("two words", {}, print), "name"),
        (("x" * 129, {}, print), "name"),
        (("x", {}, 3), "cannot be called"),
        (("x", {"type": "string"}, print), "object"),
        (("x", {"properties": {1, 2}}, print), "not JSON"),
        (("taken", {}, print), "already"),
    ],
)
def test_what_no_client_could_use_is_refused(arguments, words) -> None:
    server = Server()
    server.register_tool("taken", None, print)
    with pytest.raises(ValueError, match=words):
        server.register_tool(*arguments)
    assert list(server.tools) == ["taken"]


async def test_the_list_has_all_that_was_said_and_nothing_empty() -> None:
    server = Server()
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    options = {"title": "All", "annotations": {"readOnlyHint": True}, "output_schema": {"type": "object"}}
    server.register_tool("full", schema, print, description="Everything", **options)
    server.register_tool("bare", None, print)
    server.register_tool("undocumented", None, print, description=None, title=None)
    async with talking_to(server) as client:
        tools = (await client.ask("tools/list"))["result"]["tools"]
    assert tools == [
        {
            "name": "full",
            "description": "Everything",
            "inputSchema": {"type": "object", **schema},
            "title": "All",
            "annotations": {"readOnlyHint": True},
            "outputSchema": {"type": "object"},
        },
        {"name": "bare", "description": "", "inputSchema": {"type": "object"}},
        {"name": "undocumented", "description": "", "inputSchema": {"type": "object"}},
    ]


async def test_only_new_clients_see_an_output_that_is_no_object() -> None:
    server = Server()
    server.register_tool("count", {}, lambda _: [1, 2], output_schema={"type": "array"})
    async with talking_to(server) as client:
        assert "outputSchema" not in (await client.ask("tools/list"))["result"]["tools"][0]
        assert "outputSchema" in (await client.ask_modern("tools/list"))["result"]["tools"][0]
        assert "structuredContent" not in await client.call("count")
        modern = await client.ask_modern("tools/call", {"name": "count"})
    assert modern["result"]["structuredContent"] == [1, 2]


class Callable_:
    async def __call__(self, arguments, context):
        return f"{context.tool} from an object"


async def an_async_one(arguments):
    return "async"


def gives_a_coroutine(arguments):
    return an_async_one(arguments)


async def with_context(arguments, context):
    assert isinstance(context, Context)
    return f"{context.tool} for {context.client.name} {context.client.version} in {context.protocol_version}"


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda arguments: "plain", "plain"),
        (lambda arguments, context: f"plain {context.tool}", "plain t"),
        (an_async_one, "async"),
        (with_context, "t for tester 7 in 2025-11-25"),
        (functools.partial(with_context), "t for tester 7 in 2025-11-25"),
        (Callable_(), "t from an object"),
        (lambda *everything: f"{len(everything)} arguments", "2 arguments"),
        (gives_a_coroutine, "async"),
        (len, "1"),
    ],
)
async def test_handlers_may_be_written_in_many_ways(handler, text: str) -> None:
    server = Server()
    server.register_tool("t", {}, handler)
    async with talking_to(server) as client:
        assert (await client.call("t", {"a": 1}))["content"] == [{"type": "text", "text": text}]


async def refuses(arguments):
    raise ToolError("there is no such invoice")


async def refuses_silently(arguments):
    raise ToolError


async def is_cancelled_from_within(arguments):
    raise asyncio.CancelledError


def falls(arguments):
    return arguments["missing"]


def exits(arguments):
    sys.exit(4)


class Unusual(BaseException):
    """No `Exception`, as some libraries have them."""


def raises(error: BaseException):
    def handler(arguments):
        raise error

    return handler


async def is_unusual(arguments):
    raise Unusual("here")


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (refuses, "there is no such invoice"),
        (refuses_silently, "`t` failed"),
        (is_cancelled_from_within, "cancelled"),
        (falls, "KeyError: 'missing'"),
        (exits, "SystemExit: 4"),
        (raises(Unusual("there")), "Unusual: there"),
        (is_unusual, "Unusual: here"),
        (raises(KeyboardInterrupt()), "KeyboardInterrupt"),
        (raises(GeneratorExit()), "GeneratorExit"),
        (raises(asyncio.CancelledError()), "cancelled"),
        (lambda arguments: {1, 2}, "The result of `t` cannot be sent"),
        (lambda arguments: b"bytes", "image("),
        (lambda arguments: {"content": [], "x": float("nan")}, "cannot be sent"),
    ],
)
async def test_a_handler_that_fails_is_a_result_and_the_next_call_is_fine(handler, text: str) -> None:
    server = Server()
    server.register_tool("t", {}, handler)
    server.register_tool("fine", {}, lambda _: "yes")
    async with talking_to(server) as client:
        result = await client.call("t")
        assert result["isError"] is True
        assert text in result["content"][0]["text"]
        assert (await client.call("fine"))["content"][0]["text"] == "yes"


async def test_a_definition_is_taken_as_it_was_when_registered_and_tuples_are_lists() -> None:
    schema = {"properties": {"x": {"type": "string", "enum": ("a", "b")}}, "required": ("x",)}
    server = Server()
    server.register_tool("t", schema, lambda arguments: arguments["x"])
    schema["required"] = object()
    async with talking_to(server) as client:
        assert (await client.call("t"))["content"][0]["text"] == "Wrong arguments for `t`: `x` is missing"
        assert "must be one of" in (await client.call("t", {"x": "c"}))["content"][0]["text"]
        assert (await client.call("t", {"x": "b"}))["content"][0]["text"] == "b"
        (listed,) = (await client.ask("tools/list"))["result"]["tools"]
    assert listed["inputSchema"]["required"] == ["x"]


async def test_arguments_that_do_not_fit_never_reach_the_handler() -> None:
    server = Server()
    server.register_tool("t", {"required": ["a"]}, falls)
    async with talking_to(server) as client:
        result = await client.call("t")
    words = "Wrong arguments for `t`: `a` is missing"
    assert result == {"content": [{"type": "text", "text": words}], "isError": True}
