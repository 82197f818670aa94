"""A call by `execute_tool` is the call of the tool it names: the same bytes, questions, progress, end and record."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import entry_of, stdio_server
from tests.support.fault.tools import FANCY
from tests.support.gateway import Gateway
from tests.support.interactions.client import Client, Person, Refused, text_of
from tests.support.interactions.python_client import python_client
from tests.support.interactions.scene import over_http
from tests.support.peers.programs import HttpPeer
from tests.support.tasks import DECLARED, over_stdio
from tests.support.waiting import START_WAIT_S, until, wait_until

ODD = b'{"content":[{"type":"text","text":"\\u00e4"}],"x-own":[1.50,-0.0,1e400,123456789012345678901],"isError":false}'


class House:
    """A gateway that only shows tools to search with, before a server that asks its clients things."""

    def __init__(self, folder: Path, server_era: str, stack: ExitStack) -> None:
        self.folder = folder
        self.server: HttpPeer = stack.enter_context(over_http(folder, server_era))
        self.gateway = stack.enter_context(
            Gateway(folder, self.server.entry(), meta_tools=True, disclosure="search", start_wait=START_WAIT_S)
        )
        wait_until(lambda: "feature is ready" in self.gateway.log, "the server is up", START_WAIT_S)

    @asynccontextmanager
    async def client(self, era: str) -> AsyncIterator[Client]:
        url = f"http://127.0.0.1:{self.gateway.port}/mcp"
        log = self.folder / "client.log"
        async with python_client("sdk", era, url, log, person=Person(), prefix="feature_") as client:
            yield client


@pytest.fixture(scope="module", params=["legacy", "modern"], ids=["server-legacy", "server-modern"])
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(tmp_path_factory.mktemp(request.param), request.param, stack)


@pytest.fixture(params=["legacy", "modern"], ids=["client-legacy", "client-modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


async def execute(
    client: Client, tool: str, /, *, progress: list[dict[str, Any]] | None = None, **arguments: Any
) -> dict[str, Any]:
    name = client.named(tool)
    provisioned = await client.call_exactly("provision_tools", {"tool_ids": [name]}, {}, None)
    assert name in text_of(provisioned)
    return await client.call_exactly("execute_tool", {"tool_id": name, "arguments": arguments}, {}, progress)


async def test_a_server_may_ask_whoever_executes(house: House, era: str) -> None:
    async with house.client(era) as client:
        answer = (await execute(client, "survey", question="Who are you?"))["structuredContent"]
        assert (answer["action"], answer["content"]) == ("accept", {"name": "Ada", "age": 36, "colour": "green"})
        (question,) = client.person.asked
        assert question.text == "Who are you?"


async def test_a_server_may_ask_again_and_again(house: House, era: str) -> None:
    async with house.client(era) as client:
        result = (await execute(client, "interview"))["structuredContent"]
        assert result == {"name": "Ada", "age": 36, "thought": "thought about Ada is 36"}
        assert len(client.person.asked) == 3


async def test_progress_is_reported(house: House, era: str, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    hold = tmp_path / "go on"
    async with house.client(era) as client:
        working = asyncio.ensure_future(execute(client, "work", steps=3, hold=str(hold), progress=seen))
        await until(lambda: len(seen) == 3, "all three steps are reported")
        hold.touch()
        assert text_of(await working) == "3 steps"
    assert [step["message"] for step in seen] == ["step 1", "step 2", "step 3"]


async def test_taking_it_back_stops_it_at_the_server(house: House, era: str) -> None:
    name = f"held-by-{era}"
    async with house.client(era) as client:
        holding = asyncio.ensure_future(execute(client, "hold", name=name))
        await house.server.journal.wait_for(f"held {name}")
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        await house.server.journal.wait_for(f"cancelled {name}")
        assert (await execute(client, "add", a=1, b=1))["structuredContent"]["total"] == 2


async def test_an_error_of_the_server_is_the_same_error(house: House, era: str) -> None:
    async with house.client(era) as client:
        with pytest.raises(Refused) as caught:
            await execute(client, "refuse", reason="not today")
    assert (caught.value.code, caught.value.message) == (4711, "not today")
    assert caught.value.data == {"retry": False, "ids": [1, "1", 1.5, None]}


# Bytes, and what is written down --------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_kind", ["client", "modern"])
async def test_bytes_and_records_are_those_of_a_direct_call(client_kind: str, tmp_path: Path) -> None:
    own = ("fancy", "verbatim", "wire", "sleep")
    entry = entry_of(stdio_server(tmp_path, "github"), *own)
    entry["github"]["tools"]["timeouts"] = {"sleep": 1}
    with Gateway(tmp_path, entry, meta_tools=True, disclosure="search", start_wait=START_WAIT_S) as gateway:
        async with getattr(gateway, client_kind)() as client:
            await client.call("provision_tools", {"tool_ids": [f"github_{name}" for name in own]})
            listing = (await client.request("tools/list")).raw
            assert FANCY.replace(b'"name":"fancy"', b'"name":"github_fancy"') in listing

            verbatim = {"result": base64.b64encode(ODD).decode()}
            direct = await client.call("github_verbatim", verbatim, id=7)
            executed = await client.call("execute_tool", {"tool_id": "github_verbatim", "arguments": verbatim}, id=7)
            assert executed.raw == direct.raw
            assert ODD[1:-1] in executed.raw

            odd = {"z": "\u00e4\u2028", "a": [1, 2.5, None], "": {}}
            seen = [
                json.loads(base64.b64decode((await asked).text))
                for asked in (
                    client.call("github_wire", odd),
                    client.call("execute_tool", {"tool_id": "github.wire", "arguments": odd}),
                )
            ]
            assert seen[0]["params"] == seen[1]["params"]
            assert seen[1]["params"]["name"] == "wire"

            late = await client.call("execute_tool", {"tool_id": "github_sleep", "arguments": {"seconds": 60}})
            assert late.situation == (504, "TL305", "unknown")
            assert late.error["message"] == "Tool execution timed out after 1 seconds"

            counted = await gateway.metrics()
            assert counted['trunkline_calls_total{source="github",tool="verbatim",outcome="ok"}'] == 2
            assert not [name for name in counted if "execute_tool" in name]
    calls = [json.loads(line) for line in gateway.log.splitlines() if '"event":"call"' in line]
    assert len([call for call in calls if call["tool"] == "wire"]) == 2
    assert not [call for call in calls if call["tool"] == "execute_tool"]


# Tasks ----------------------------------------------------------------------------------------------------------------


async def test_tasks_are_made_and_belong_to_whoever_executes(tmp_path: Path) -> None:
    servers = [over_stdio("old", "legacy_task_server.py"), over_stdio("new")]
    with Gateway(tmp_path, *servers, meta_tools=True, disclosure="search", start_wait=START_WAIT_S) as gateway:
        async with gateway.client() as legacy, gateway.client() as other:
            await legacy.call("provision_tools", {"tool_ids": ["old_long"]})
            asked = {"name": "execute_tool", "arguments": {"tool_id": "old_long"}, "task": {"ttl": 60_000}}
            task_id = (await legacy.request("tools/call", asked)).result["task"]["taskId"]
            assert (await legacy.request("tasks/get", {"taskId": task_id})).result["status"] == "working"
            assert (await other.request("tasks/get", {"taskId": task_id})).error["code"] == -32602
        async with gateway.modern() as modern:
            await modern.call("provision_tools", {"tool_ids": ["new_long"]})
            asked = {"name": "execute_tool", "arguments": {"tool_id": "new_long"}, **DECLARED}
            made = (await modern.request("tools/call", asked)).result
            task = (await modern.request("tasks/get", {"taskId": made["taskId"], **DECLARED})).result
            assert (made["resultType"], task["server"], task["status"]) == ("task", "new", "working")
