"""Programs that dial in with our clients, each in a process of its own, called by an MCP client through a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from tests.support.dialin_apps.program import Program, workshop
from tests.support.gateway import Gateway
from tests.support.peers.clients import MODERN, RealClient, connect
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

TOOLS = {
    f"Workshop_{name}"
    for name in ("add", "echo", "build", "fail", "picture", "work", "hold", "grow", "shrink", "leave")
}


class Place:
    """A gateway with one source for apps. Start and stop it as the test likes."""

    def __init__(self, folder: Path, listen: str = "", **keys: Any) -> None:
        self.address = listen or f"127.0.0.1:{free_port()}"
        self.folder = folder
        self.gateway = Gateway(folder, {"desktop": {"kind": "app", "listen": self.address, **keys}})

    def client(self, era: str = MODERN) -> AbstractAsyncContextManager[RealClient]:
        url = f"http://127.0.0.1:{self.gateway.port}/mcp"
        return connect("sdk", era, url, self.folder / "client.log")


@pytest.fixture(params=["python", "javascript"])
def language(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For programs that come and go one after the other."""
    place = Place(tmp_path_factory.mktemp("place"))
    with place.gateway:
        yield place


@asynccontextmanager
async def at_work(language: str, place: Place, era: str = MODERN) -> AsyncIterator[tuple[Program, RealClient]]:
    """A program that has dialled in, and a client; at the end the program is known to be gone."""
    async with place.client(era) as client:
        async with workshop(language, place.address) as program:
            await program.until_said("registered Workshop")
            yield program, client
        await has(client, set())


def text(result: Any) -> str:
    return result.content[0].text


async def has(client: RealClient, names: set[str]) -> None:
    async def look() -> bool:
        return await client.names() == names

    await until(look, f"the tools are {names}")


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_an_agent_uses_the_tools_of_a_running_program(language: str, era: str, place: Place) -> None:
    async with at_work(language, place, era) as (program, client):
        tools = {tool.name: tool for tool in await client.tools()}
        assert tools.keys() == TOOLS
        assert tools["Workshop_add"].description == "Add two numbers"
        assert tools["Workshop_add"].input_schema["required"] == ["a"]
        assert tools["Workshop_add"].annotations.read_only_hint
        assert text(await client.call("Workshop_add", {"a": 2, "b": 3})) == "5"
        value = {"text": "ü€𝄞", "list": [1, 2.5, None]}
        assert (await client.call("Workshop_echo", {"value": value})).structured_content == value
        picture = (await client.call("Workshop_picture")).content
        assert [(block.type, getattr(block, "mime_type", None)) for block in picture] == [
            ("text", None),
            ("image", "image/png"),
        ]
        failed = await client.call("Workshop_fail", {"kind": "told"})
        assert (failed.is_error, text(failed)) == (True, "the glue is dry")
        wrong = await client.call("Workshop_add", {"a": "x"})
        assert (wrong.is_error, "`a` must be an integer" in text(wrong)) == (True, True)
        for name in ("Workshop.add", "Workshop:add", "add"):
            assert text(await client.call(name, {"a": 1})) == "2"
        await progress_reaches_the_agent(client)
        await what_the_agent_cancels_ends_in_the_program(program, client)
        await many_calls_at_once(client)


async def progress_reaches_the_agent(client: RealClient) -> None:
    reported: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))

    assert text(await client.call("Workshop_work", {"steps": 2}, on_progress)) == "2 steps"
    await until(lambda: len(reported) == 2, "both steps were told")
    assert reported == [(1, 2, "step 1"), (2, 2, "step 2")]


async def what_the_agent_cancels_ends_in_the_program(program: Program, client: RealClient) -> None:
    held = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        held.set()

    call = asyncio.get_running_loop().create_task(client.call("Workshop_hold", None, on_progress))
    await asyncio.wait_for(held.wait(), PATIENCE_S)
    call.cancel()
    await asyncio.wait({call})
    await program.until_said("cancelled")
    assert text(await client.call("Workshop_add", {"a": 1})) == "2"


async def many_calls_at_once(client: RealClient) -> None:
    results = await asyncio.gather(*(client.call("Workshop_add", {"a": number}) for number in range(100)))
    assert [text(result) for result in results] == [str(number + 1) for number in range(100)]


async def test_what_takes_too_long_is_told_to_end(language: str, tmp_path: Path) -> None:
    place = Place(tmp_path, tools={"timeouts": {"hold": 0.5}})
    with place.gateway:
        async with at_work(language, place) as (program, client):
            with pytest.raises(MCPError, match="timed out after"):
                await client.call("Workshop_hold")
            await program.until_said("cancelled")


async def test_tools_come_and_go_and_clients_hear_of_it(language: str, place: Place) -> None:
    async with at_work(language, place) as (program, client):
        async with client.listening() as changed:
            await client.call("Workshop_grow", {"name": "branch"})
            await asyncio.wait_for(changed(), PATIENCE_S)
        await has(client, TOOLS | {"Workshop_branch"})
        assert text(await client.call("Workshop_branch")) == "I am branch"
        await client.call("Workshop_shrink", {"name": "branch"})
        await has(client, TOOLS)
        async with client.listening() as changed:
            program.process.kill()
            await asyncio.wait_for(changed(), PATIENCE_S)
        await has(client, set())


async def test_it_comes_back_when_its_gateway_does(language: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with workshop(language, place.address) as program:
        for _ in range(2):
            with place.gateway:
                async with place.client() as client:
                    await has(client, TOOLS)
                    assert text(await client.call("Workshop_add", {"a": 1})) == "2"
        assert program.process.returncode is None


@pytest.mark.law
async def test_two_that_want_one_name_and_one_with_a_wrong_token(language: str, tmp_path: Path) -> None:
    socket = str(tmp_path / "apps.sock")
    place = Place(tmp_path, socket, token="s3cret")
    with place.gateway:
        async with workshop(language, socket, "s3cret") as first, place.client() as client:
            await first.until_said("registered Workshop")
            async with workshop(language, socket, "s3cret") as second:
                assert await second.ended() == 3
                assert "is connected already" in second.text
            async with workshop(language, socket, "wrong") as stranger:
                assert await stranger.ended() == 3
                assert stranger.said[0].startswith("refused TL415")
            assert text(await client.call("Workshop_add", {"a": 1})) == "2"
            assert "s3cret" not in place.gateway.log


async def test_a_program_that_stops_itself_leaves_in_order(language: str, place: Place) -> None:
    async with at_work(language, place) as (program, client):
        assert not (await client.call("Workshop_leave")).is_error
        assert await program.ended() == 0
        await has(client, set())
