"""Tasks of 2025-11-25 between a client and servers of that version pass, under the gateway's own ids."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import CLIENT_INFO, Client, HttpClient, ModernClient, encode
from tests.support.gateway import TRUNKLINE, Gateway, stdio_gateway
from tests.support.peers.programs import HERE, NODE, NODE_PACKAGES, everything
from tests.support.tasks import over_stdio
from tests.support.waiting import START_WAIT_S, at_most

RELATED = "io.modelcontextprotocol/related-task"
OFFERED = {"requests": {"tools": {"call": {}}}, "cancel": {}}


def entry(name: str) -> dict[str, Any]:
    return over_stdio(name, "legacy_task_server.py")


async def follow(client: Client) -> None:
    tools = {tool["name"]: tool for tool in await client.tools()}
    assert tools["a_long"]["execution"] == {"taskSupport": "required"}
    assert (await client.request("tools/call", {"name": "a_long"})).error["code"] == -32601
    ids = {}
    for name in "ab":
        made = (await client.request("tools/call", {"name": f"{name}_long", "task": {"ttl": 60_000}})).result
        assert (made["task"]["status"], made["task"]["ttl"]) == ("working", 60_000)
        ids[name] = made["task"]["taskId"]
    assert len({"task-1", *ids.values()}) == 3
    got = (await client.request("tasks/get", {"taskId": ids["a"]})).result
    assert (got["taskId"], got["status"]) == (ids["a"], "working")
    result = (await client.request("tasks/result", {"taskId": ids["b"]})).result
    assert (result["content"][0]["text"], result["_meta"][RELATED]) == ("b", {"taskId": ids["b"]})
    cancelled = (await client.request("tasks/cancel", {"taskId": ids["a"]})).result
    assert (cancelled["taskId"], cancelled["status"]) == (ids["a"], "cancelled")
    assert (await client.request("tasks/get", {"taskId": "task-1"})).error["code"] == -32602
    assert (await client.request("tasks/list")).error["code"] == -32601


@pytest.mark.law
async def test_they_are_followed_over_http_belong_to_one_session_and_are_told_of(tmp_path: Path) -> None:
    with Gateway(tmp_path, entry("a"), entry("b"), start_wait=START_WAIT_S) as gateway:
        async with HttpClient(gateway.port) as client, HttpClient(gateway.port) as other:
            await follow(client)
            made = (await client.request("tools/call", {"name": "a_long", "task": {"ttl": 1}})).result
            answer = await other.request("tasks/get", {"taskId": made["task"]["taskId"]})
            assert answer.error["code"] == -32602
            await is_told_of_it_under_the_id_that_it_knows(other)


async def is_told_of_it_under_the_id_that_it_knows(client: HttpClient) -> None:
    async with client.listen() as stream:
        made = (await client.request("tools/call", {"name": "a_long", "task": {"ttl": 1}})).result
        while (update := json.loads(await anext(stream)))["method"] != "notifications/tasks/status":
            pass
        assert update["params"]["taskId"] == made["task"]["taskId"]


async def test_they_are_followed_over_stdio(tmp_path: Path) -> None:
    async with stdio_gateway(tmp_path, entry("a"), entry("b"), start_wait=START_WAIT_S) as client:
        await client.open()
        await follow(client)


@pytest.mark.parametrize(
    ("server", "offered"),
    [
        ("legacy_task_server.py", {"2025-11-25": OFFERED, "2025-06-18": None}),
        ("task_server.py", {"2025-11-25": None}),
    ],
)
async def test_they_are_offered_where_a_server_has_them_and_the_client_may_know_them(
    tmp_path: Path, server: str, offered: dict[str, dict[str, Any] | None]
) -> None:
    with Gateway(tmp_path, over_stdio("a", server), start_wait=START_WAIT_S) as gateway:
        async with HttpClient(gateway.port) as first:
            assert await first.tools(), "the server was heard of"
        for version, expected in offered.items():
            async with ModernClient(gateway.port) as other:
                other.headers["MCP-Protocol-Version"] = version
                params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT_INFO}
                message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
                greeting = other.answer(await other.post(encode(message)), 1)
                assert greeting.result["capabilities"].get("tasks") == expected, version


RUNS = [(frontend, wire) for frontend in ("joined", "http") for wire in ("stdio", "http")]


@pytest.mark.node
async def test_the_typescript_sdk_follows_a_task_of_the_reference_server_that_asks_something(tmp_path: Path) -> None:
    """Through each frontend, to a server on each wire: all at the same time, because the server takes its time."""
    with (
        everything(tmp_path, "stdio", "on-stdio") as on_stdio,
        everything(tmp_path, "http", "on-http") as on_http,
        Gateway(tmp_path, on_stdio.entry(), on_http.entry(), entry("a"), start_wait=START_WAIT_S) as gateway,
    ):
        async with HttpClient(gateway.port) as first:
            assert await first.tools(), "the servers were heard of"
        url = f"http://127.0.0.1:{gateway.port}/mcp"
        targets = {"http": [url], "joined": [TRUNKLINE, "stdio", "--url", url]}
        reports = await asyncio.gather(*(run_client(f"on-{wire}", *targets[frontend]) for frontend, wire in RUNS))
    for (frontend, wire), report in zip(RUNS, reports, strict=True):
        assert_was_followed(report, f"on-{wire}", f"{frontend} to {wire}")


def assert_was_followed(report: dict[str, Any], server: str, way: str) -> None:
    assert report["offered"] == OFFERED, way
    assert "error" not in report, way
    [task_id] = set(report["ids"])
    assert report["states"][0] == "working", way
    [asked] = report["asked"]
    assert asked["message"].startswith(f'[{server}] The research query "python"'), way
    assert asked["related"] == task_id, way
    assert report["text"].startswith("# Research Report: python (snake)"), way
    assert report["after"] == "completed", way


async def run_client(server: str, *target: str) -> dict[str, Any]:
    tool = f"{server}_simulate-research-query"
    program = [NODE, str(HERE / "task_client.mjs"), str(NODE_PACKAGES / "sdk"), tool]
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    client = await asyncio.create_subprocess_exec(*program, *target, stdin=nothing, stdout=pipe)
    try:
        async with asyncio.timeout(at_most(60)):
            output, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    return json.loads(output)
