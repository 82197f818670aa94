"""The client that the harness starts with the address of its mock server: one of the SDK's, behind a gateway or not.

`python -m tests.support.conformance.client gateway FOLDER URL` or `… direct URL`. The environment says which scenario
is on, and which version of the protocol the mock speaks.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from tests.support.conformance.layouts import gateway_of
from tests.support.waiting import at_most

Steps = Callable[[Client], Awaitable[None]]
_steps: dict[str, Steps] = {}


def scenario(*names: str) -> Callable[[Steps], Steps]:
    def keep(steps: Steps) -> Steps:
        _steps.update(dict.fromkeys(names, steps))
        return steps

    return keep


# What a client does in each scenario ----------------------------------------------------------------------------------


@scenario("initialize", "request-metadata", "json-schema-ref-no-deref")
async def list_tools(client: Client) -> None:
    await client.list_tools()


@scenario("tools_call")
async def add_numbers(client: Client) -> None:
    await client.list_tools()
    result = await client.call_tool("add_numbers", {"a": 5, "b": 3})
    expect("8" in text_of(result), result)


@scenario("elicitation-sep1034-client-defaults")
async def accept_defaults(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults", {})


@scenario("sse-retry")
async def come_back_for_the_answer(client: Client) -> None:
    await client.list_tools()
    result = await client.call_tool("test_reconnection", {})
    expect("completed" in text_of(result), result)


@scenario("sep-2322-client-request-state")
async def answer_questions(client: Client) -> None:
    await client.list_tools()
    answers = ("echo_state", "echo-state-ok"), ("unrelated", "unrelated-ok"), ("no_state", "no-state-ok")
    for name, answer in (*answers, ("no_result_type", "no-result-type-test-ok")):
        result = await client.call_tool(f"test_mrtr_{name}", {})
        expect(text_of(result) == answer, result)


@scenario("http-standard-headers")
async def use_everything(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        await client.call_tool(tool.name, {})
    for resource in (await client.list_resources()).resources:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name)


@scenario("http-custom-headers")
async def call_as_told(client: Client) -> None:
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


@scenario("http-invalid-tool-headers")
async def call_whatever_is_listed(client: Client) -> None:
    """Carelessly: the SDK's client leaves out bad tools by itself, and the question is whether they get that far."""
    listed = await client.session.send_request(types.ListToolsRequest(), types.ListToolsResult)
    kept = {tool.name for tool in (await client.list_tools()).tools}
    for tool in listed.tools:
        arguments = dict.fromkeys(tool.input_schema.get("properties", {}), "eu")
        if tool.name in kept:
            await client.call_tool(tool.name, arguments)
            continue
        params = types.CallToolRequestParams(name=tool.name, arguments=arguments)
        with contextlib.suppress(MCPError):
            await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)


@scenario("json-schema-2020-12-preservation")
async def send_schema_back(client: Client) -> None:
    schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


def text_of(result: types.CallToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


def expect(fine: bool, result: Any) -> None:
    if not fine:
        raise AssertionError(f"not what the mock answered: {result}")


# What it answers when it is asked -------------------------------------------------------------------------------------


async def fill_in(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Defaults where there are some, and a yes to everything else."""
    schema = params.requested_schema if isinstance(params, types.ElicitRequestFormParams) else {}
    fields = schema.get("properties", {})
    return types.ElicitResult(
        action="accept", content={name: field.get("default", True) for name, field in fields.items()}
    )


async def sample(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Paris"), model="none")


async def list_roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


async def play(url: str) -> None:
    version = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    mode = "legacy" if version in HANDSHAKE_PROTOCOL_VERSIONS else "auto"
    asked = {"elicitation_callback": fill_in, "sampling_callback": sample, "list_roots_callback": list_roots}
    async with Client(url, mode=mode, read_timeout_seconds=at_most(30), **asked) as client:
        await _steps[os.environ["MCP_CONFORMANCE_SCENARIO"]](client)


def main() -> None:
    how, *folder, url = sys.argv[1:]
    if how == "direct":
        anyio.run(play, url)
        return
    place = Path(*folder)
    place.mkdir(parents=True, exist_ok=True)
    with gateway_of({"mock": {"kind": "mcp_http", "url": url}}, place) as gateway_url:
        anyio.run(play, gateway_url)


if __name__ == "__main__":
    main()
