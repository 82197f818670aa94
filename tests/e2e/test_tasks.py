"""Tasks of servers that give the same ids, through the whole gateway: each is found again, by its own client alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import META, HttpClient, ModernClient
from tests.support.gateway import Gateway

SERVER = Path(__file__).parents[1] / "support" / "task_server.py"
TASKS = META + "tasks"
DECLARED = {"_meta": {META + "clientCapabilities": {"extensions": {TASKS: {}}}}}


def source(name: str) -> dict[str, Any]:
    return {name: {"kind": "mcp_stdio", "command": sys.executable, "args": [str(SERVER), name]}}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path, source("a"), source("b"), start_wait=30) as running:
        yield running


async def make_task(client: ModernClient, tool: str) -> str:
    made = (await client.request("tools/call", {"name": tool, **DECLARED})).result
    assert made["resultType"] == "task"
    return made["taskId"]


async def test_a_task_is_followed_to_its_end_at_the_server_that_has_it(gateway: Gateway) -> None:
    async with ModernClient(gateway.port) as client:
        discovered = (await client.request("server/discover")).result
        assert TASKS in discovered["capabilities"]["extensions"]
        made = {
            name: (await client.request("tools/call", {"name": f"{name}_long", **DECLARED})).result for name in "ab"
        }
        assert {task["resultType"] for task in made.values()} == {"task"}
        ids = {name: task["taskId"] for name, task in made.items()}
        assert ids["a"] != ids["b"]
        for name, task_id in ids.items():
            task = (await client.request("tasks/get", {"taskId": task_id, **DECLARED})).result
            assert (task["server"], task["taskId"], task["status"]) == (name, task_id, "working")
        update = {"taskId": ids["a"], "inputResponses": {"k": {"action": "accept"}}, **DECLARED}
        assert (await client.request("tasks/update", update)).result["resultType"] == "complete"
        await client.request("tasks/cancel", {"taskId": ids["b"], **DECLARED})
        done = (await client.request("tasks/get", {"taskId": ids["a"], **DECLARED})).result
        assert (done["status"], done["result"]["structuredContent"]) == ("completed", {"k": {"action": "accept"}})
        assert (await client.request("tasks/get", {"taskId": ids["b"], **DECLARED})).result["status"] == "cancelled"


async def test_ids_that_were_not_given_to_this_client_are_unknown(gateway: Gateway) -> None:
    async with ModernClient(gateway.port) as client, HttpClient(gateway.port) as legacy:
        task_id = await make_task(client, "a_long")
        for made_up in ("task-1", task_id[:-1], task_id + "A", "x" * 5000):
            answer = await client.request("tasks/get", {"taskId": made_up, **DECLARED})
            assert answer.error["code"] == -32602
        assert (await legacy.request("tasks/get", {"taskId": task_id})).error["code"] == -32602


async def test_tasks_must_be_declared(gateway: Gateway) -> None:
    async with ModernClient(gateway.port) as client:
        task_id = await make_task(client, "a_long")
        for method, params in (("tasks/get", {"taskId": task_id}), ("tools/call", {"name": "a_long"})):
            error = (await client.request(method, params)).error
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
