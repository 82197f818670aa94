"""Tasks of servers that use the same ids, through the whole gateway: each is visible to its own client only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.test_operator_api import OPERATOR, SERVERS, Api
from tests.support.answers import BROKE_PROTOCOL
from tests.support.client import META, HttpClient, ModernClient, encode, modern_headers
from tests.support.gateway import Gateway
from tests.support.tasks import (
    CAPABILITIES,
    DECLARED,
    TASKS,
    HttpTasks,
    TaskHouse,
    make_task,
    over_stdio,
)
from tests.support.waiting import START_WAIT_S, until

TRANSPORTS = ["stdio", "http"]
FRONTENDS = [*TRANSPORTS, "joined"]
ANSWERS = {"who": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.fixture(scope="module", params=TRANSPORTS)
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskHouse]:
    with ExitStack() as stack:
        yield TaskHouse(request.param, tmp_path_factory.mktemp(request.param), stack)


@pytest.mark.parametrize("frontend", FRONTENDS)
async def test_a_task_is_followed_to_its_end_at_the_server_that_has_it(
    house: TaskHouse, frontend: str, tmp_path: Path
) -> None:
    """Over HTTP the server refuses requests whose `Mcp-Name` is not its own id."""
    async with house.client(frontend, tmp_path) as client:
        assert await client.tools(), "the servers were heard of"
        discovered = (await client.request("server/discover")).result
        assert TASKS in discovered["capabilities"]["extensions"]
        ids = {name: await make_task(client, f"{name}_long") for name in "ab"}
        assert ids["a"] != ids["b"]
        for name, task_id in ids.items():
            task = (await client.request("tasks/get", {"taskId": task_id, **DECLARED})).result
            assert (task["server"], task["taskId"], task["status"]) == (name, task_id, "working")
        update = {"taskId": ids["a"], "inputResponses": ANSWERS, **DECLARED}
        assert (await client.request("tasks/update", update)).result["resultType"] == "complete"
        await client.request("tasks/cancel", {"taskId": ids["b"], **DECLARED})
        done = (await client.request("tasks/get", {"taskId": ids["a"], **DECLARED})).result
        assert (done["status"], done["result"]["structuredContent"]) == ("completed", ANSWERS)
        other = (await client.request("tasks/get", {"taskId": ids["b"], **DECLARED})).result
        assert other["status"] == "cancelled"


@pytest.mark.parametrize(("alone", "message"), [(True, "Who?"), (False, "[a] Who?")], ids=["alone", "of several"])
@pytest.mark.parametrize("house", ["stdio"], indirect=True)
async def test_what_a_task_asks_says_which_of_several_servers_asks(
    house: TaskHouse, alone: bool, message: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        gateway = house.gateway
        if alone:
            gateway = stack.enter_context(Gateway(tmp_path, over_stdio("a"), start_wait=START_WAIT_S))
        async with ModernClient(gateway.port) as client:
            task_id = await make_task(client, "a_ask")
            task = (await client.request("tasks/get", {"taskId": task_id, **DECLARED})).result
            assert (task["status"], list(task["inputRequests"])) == ("input_required", ["who"])
            question = task["inputRequests"]["who"]
            assert (question["method"], question["params"]["message"]) == ("elicitation/create", message)
            assert question["params"].get("_meta", {}).get("trunkline/server") == (None if alone else "a")
            await client.request("tasks/update", {"taskId": task_id, "inputResponses": ANSWERS, **DECLARED})
            task = (await client.request("tasks/get", {"taskId": task_id, **DECLARED})).result
            assert task["result"]["structuredContent"] == ANSWERS


@pytest.mark.law
async def test_ids_that_were_not_given_to_this_client_are_unknown(house: TaskHouse) -> None:
    gateway = house.gateway
    async with ModernClient(gateway.port) as client, HttpClient(gateway.port) as legacy:
        task_id = await make_task(client, "a_long")
        for made_up in ("task-1", task_id[:-1], task_id + "A", "x" * 5000):
            answer = await client.request("tasks/get", {"taskId": made_up, **DECLARED})
            assert answer.error["code"] == -32602
        assert (await legacy.request("tasks/get", {"taskId": task_id})).error["code"] == -32602


async def test_tasks_must_be_declared(house: TaskHouse) -> None:
    gateway = house.gateway
    async with ModernClient(gateway.port) as client:
        task_id = await make_task(client, "a_long")
        listen = {"notifications": {"taskIds": [task_id]}}
        for method, params in (
            ("tasks/get", {"taskId": task_id}),
            ("tools/call", {"name": "a_long"}),
            ("subscriptions/listen", listen),
        ):
            answer = await client.request(method, params)
            assert answer.reply is not None
            assert (answer.reply.status, answer.error["code"]) == (400, -32021)
            assert answer.error["data"]["requiredCapabilities"] == CAPABILITIES
    legacy = await HttpClient(gateway.port).open(CAPABILITIES)
    assert (await legacy.request("tools/call", {"name": "a_long"})).error["code"] == -32602
    await legacy.close()


async def test_a_task_that_the_client_did_not_declare_is_a_fault_of_the_server(house: TaskHouse) -> None:
    legacy = await HttpClient(house.gateway.port).open(CAPABILITIES)
    async with ModernClient(house.gateway.port) as client:
        for undeclared in (client, legacy):
            answer = await undeclared.request("tools/call", {"name": "a_rude"})
            assert answer.situation == BROKE_PROTOCOL
            assert TASKS in answer.error["message"]
        await make_task(client, "a_rude")
    await legacy.close()


async def test_the_name_in_the_header_is_the_task_in_the_body(house: TaskHouse) -> None:
    async with ModernClient(house.gateway.port) as client:
        first, second = [await make_task(client, "a_long") for _ in range(2)]
        message = client.message("tasks/cancel", {"taskId": first, **DECLARED}, id=5)
        for name in (second, None):
            headers = modern_headers("tasks/cancel", {"taskId": name} if name else {})
            reply = await client.post(encode(message), headers)
            assert reply.status == 400
            assert client.answer(reply, 5).error["code"] == -32020
        task = (await client.request("tasks/get", {"taskId": first, **DECLARED})).result
        assert task["status"] == "working"


async def test_tasks_of_a_server_that_is_down_or_gone(tmp_path: Path) -> None:
    with (
        HttpTasks("a") as server,
        Gateway(tmp_path, server.entry(), over_stdio("b"), operator_token=OPERATOR, start_wait=START_WAIT_S) as gateway,
    ):
        async with ModernClient(gateway.port) as client:
            ids = {name: await make_task(client, f"{name}_long") for name in "ab"}
            server.stop()

            async def situation() -> bool:
                answer = await client.request("tasks/get", {"taskId": ids["a"], **DECLARED})
                return answer.situation == (503, "TL201", "no")

            await until(situation, "the server is known to be down")
            assert (await Api(gateway).ask("DELETE", f"{SERVERS}/b")).status == 200
            answer = await client.request("tasks/get", {"taskId": ids["b"], **DECLARED})
            assert (answer.error["code"], answer.error["message"]) == (-32602, "Unknown task")


async def test_tasks_are_never_kept_and_given_again(tmp_path: Path) -> None:
    with Gateway(tmp_path, over_stdio("a", cache={"tools": ["*"]}), start_wait=START_WAIT_S) as gateway:
        async with ModernClient(gateway.port) as client:
            made = {await make_task(client, "a_long") for _ in range(3)}
            assert len(made) == 3
            task_id = made.pop()
            get = {"taskId": task_id, **DECLARED}
            assert (await client.request("tasks/get", get)).result["status"] == "working"
            await client.request("tasks/cancel", get)
            assert (await client.request("tasks/get", get)).result["status"] == "cancelled"


async def test_the_word_for_tasks_of_before_means_nothing_from_a_modern_client(tmp_path: Path) -> None:
    legacy = over_stdio("l", "legacy_task_server.py")
    with Gateway(tmp_path, legacy, start_wait=START_WAIT_S) as gateway:
        async with ModernClient(gateway.port) as client:
            for declared in ({}, DECLARED, {"_meta": {META + "clientCapabilities": {"elicitation": {}}}}):
                answer = await client.request("tools/call", {"name": "l_long", "task": {"ttl": 1}, **declared})
                assert answer.error["code"] == -32601
