"""Clients that subscribe to their tasks: they hear of these alone, under their own ids, and again after a loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.client import ModernClient
from tests.support.gateway import Gateway
from tests.support.tasks import DECLARED, HttpTasks, TaskHouse, listening, make_task, over_stdio
from tests.support.waiting import START_WAIT_S, until

TRANSPORTS = ["stdio", "http"]
FRONTENDS = [*TRANSPORTS, "joined"]
TASK_UPDATED = "notifications/tasks"


@pytest.fixture(scope="module", params=TRANSPORTS)
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskHouse]:
    with ExitStack() as stack:
        yield TaskHouse(request.param, tmp_path_factory.mktemp(request.param), stack)


@pytest.mark.law
@pytest.mark.parametrize("frontend", FRONTENDS)
async def test_updates_of_tasks_of_several_servers_come_under_the_ids_of_the_client(
    house: TaskHouse, frontend: str, tmp_path: Path
) -> None:
    async with house.client(frontend, tmp_path) as client:
        a, b, other = [await make_task(client, tool) for tool in ("a_long", "b_ask", "a_long")]
        async with listening(client, [b, "task-1", a, b]) as (acknowledged, heard):
            assert acknowledged == [b, a]
            update = await heard()
            assert (update["method"], update["params"]["taskId"]) == (TASK_UPDATED, b)
            assert update["params"]["inputRequests"]["who"]["params"]["message"] == "[b] Who?"
            await client.request("tasks/cancel", {"taskId": other, **DECLARED})
            await client.request("tasks/update", {"taskId": a, "inputResponses": {"k": {}}, **DECLARED})
            update = (await heard())["params"]
            assert (update["taskId"], update["status"], update["server"]) == (a, "completed", "a")
            assert update["result"]["structuredContent"] == {"k": {}}
            await client.request("tasks/cancel", {"taskId": b, **DECLARED})
            update = (await heard())["params"]
            assert (update["taskId"], update["status"], update["server"]) == (b, "cancelled", "b")


@pytest.mark.law
async def test_each_listen_hears_of_its_own_tasks(house: TaskHouse) -> None:
    async with ModernClient(house.gateway.port) as client:
        one, two = [await make_task(client, "a_long") for _ in range(2)]
        async with (
            listening(client, [one], 7) as (_, first),
            listening(client, [two], "7") as (_, second),
            listening(client, [one, two], "both") as (_, both),
        ):
            for task_id in (two, one):
                await client.request("tasks/cancel", {"taskId": task_id, **DECLARED})
            assert (await first())["params"]["taskId"] == one
            assert (await second())["params"]["taskId"] == two
            assert {(await both())["params"]["taskId"] for _ in range(2)} == {one, two}


async def test_what_happened_while_a_subscription_was_lost_is_reported_afterwards(house: TaskHouse) -> None:
    async with ModernClient(house.gateway.port) as client:
        a, b = [await make_task(client, f"{name}_long") for name in "ab"]
        async with listening(client, [a, b]) as (acknowledged, heard):
            assert acknowledged == [a, b]
            closed = (await client.call("a_hang_up")).structured["closed"]
            assert closed >= 1
            update = (await heard())["params"]
            assert (update["taskId"], update["status"]) == (a, "completed")
            assert "resultType" not in update
            await client.request("tasks/cancel", {"taskId": b, **DECLARED})
            update = (await heard())["params"]
            assert (update["taskId"], update["status"]) == (b, "cancelled")


async def test_a_server_that_is_down_is_not_promised(tmp_path: Path) -> None:
    with (
        HttpTasks("a") as server,
        Gateway(tmp_path, server.entry(), over_stdio("b"), start_wait=START_WAIT_S) as gateway,
    ):
        async with ModernClient(gateway.port) as client:
            a, b = [await make_task(client, f"{name}_long") for name in "ab"]
            server.stop()

            async def is_down() -> bool:
                return (await client.request("tasks/get", {"taskId": a, **DECLARED})).situation[:2] == (503, "TL201")

            await until(is_down, "the server is known to be down")
            async with listening(client, [a, b]) as (acknowledged, _):
                assert acknowledged == [b]
