"""The official SDK's client and FastMCP's, in both eras, through every door: everything a client does with tools."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import MCPError
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.peers.clients import MODERN, RealClient, connect
from tests.support.peers.programs import HttpPeer, Journal, sdk
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until, wait_until

_names = itertools.count(1)


class Places:
    """One gateway that listens, and one server that every `trunkline stdio` of this module connects to."""

    def __init__(self, gateway: Gateway, journal: Journal, server: HttpPeer) -> None:
        self.url = f"http://127.0.0.1:{gateway.port}/mcp"
        self.journals = {"http": journal, "attached": journal, "stdio": server.journal}
        self.server = server


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("places")
    started = sdk(folder, "stdio", name="started")
    with ExitStack() as stack:
        listening = stack.enter_context(sdk(folder, "http", name="listening"))
        assert isinstance(listening, HttpPeer)
        entry = {"peer": started.entry()["started"]}
        gateway = stack.enter_context(Gateway(folder, entry, start_wait=START_WAIT_S))
        wait_until(lambda: "peer is ready" in gateway.log, "the server behind the gateway is up", START_WAIT_S)
        yield Places(gateway, started.journal, listening)


class Setting:
    """A kind of client, an era and a door."""

    def __init__(self, kind: str, era: str, door: str, places: Places, folder: Path) -> None:
        self.kind = kind
        self.era = era
        self.door = door
        self.journal = places.journals[door]
        self._places = places
        self._folder = folder

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RealClient]:
        target: str | list[str] = self._places.url
        if self.door == "stdio":
            entry = {"peer": self._places.server.entry()["listening"]}
            target = [TRUNKLINE, "stdio", "-c", str(write_config(self._folder, entry, start_wait=START_WAIT_S))]
        elif self.door == "attached":
            target = [TRUNKLINE, "stdio", "--url", self._places.url]
        async with connect(self.kind, self.era, target, self._folder / "client.log") as client:
            yield client


@pytest.fixture(params=["http", "stdio", "attached"])
def door(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["legacy", MODERN])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["sdk", "fastmcp"])
def setting(request: pytest.FixtureRequest, era: str, door: str, places: Places, tmp_path: Path) -> Setting:
    return Setting(request.param, era, door, places, tmp_path)


async def test_tools_are_listed_and_called(setting: Setting) -> None:
    async with setting.client() as client:
        tools = {tool.name: tool for tool in await client.tools()}
        assert {"peer_add", "peer_picture", "peer_hold"} <= tools.keys()
        assert tools["peer_add"].title == "Add numbers"
        assert tools["peer_add"].input_schema["required"] == ["a", "b"]
        result = await client.call("peer_add", {"a": 2**64, "b": 1})
        assert result.structured_content == {"total": 2**64 + 1, "parts": [2**64, 1], "note": None}
        assert not result.is_error


async def test_an_image_arrives(setting: Setting) -> None:
    async with setting.client() as client:
        (image,) = (await client.call("peer_picture")).content
        assert (image.type, image.mime_type) == ("image", "image/png")
        assert base64.b64decode(image.data).startswith(b"\x89PNG")


async def test_a_failing_tool_is_a_result_that_says_so(setting: Setting) -> None:
    async with setting.client() as client:
        result = await client.call("peer_fail", {"reason": "out of paper"})
        assert result.is_error
        assert "out of paper" in result.content[0].text


async def test_a_servers_own_error_keeps_its_code_message_and_data(setting: Setting) -> None:
    async with setting.client() as client:
        with pytest.raises(MCPError) as caught:
            await client.call("peer_refuse", {"reason": "not today"})
        assert caught.value.error.code == 4711
        assert caught.value.error.message == "not today"
        assert caught.value.error.data == {"retry": False, "ids": [1, "1", 1.5, None]}


async def test_an_unknown_tool_is_an_error_that_names_it(setting: Setting) -> None:
    async with setting.client() as client:
        with pytest.raises(MCPError) as caught:
            await client.call("peer_nonsense")
        assert caught.value.error.code == -32602
        assert "peer_nonsense" in caught.value.error.message


async def test_progress_reaches_the_callback_in_order(setting: Setting) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    async with setting.client() as client:
        await client.call("peer_work", {"steps": 3}, on_progress)
        await until(lambda: len(seen) == 3, "all three steps were reported")
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_call_that_is_taken_back_stops_at_the_server(setting: Setting) -> None:
    name = unique("held")
    async with setting.client() as client:
        call = asyncio.ensure_future(client.call("peer_hold", {"name": name}))
        await setting.journal.wait_for(f"held {name}")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await setting.journal.wait_for(f"cancelled {name}")
        assert not (await client.call("peer_add", {"a": 1, "b": 1})).is_error


async def test_a_change_of_tools_is_announced_and_the_new_tool_works(setting: Setting) -> None:
    name = unique("grown")
    async with setting.client() as client:
        assert f"peer_{name}" not in await client.names()
        async with client.listening() as changed:
            await client.call("peer_grow", {"name": name})
            async with asyncio.timeout(PATIENCE_S):
                await changed()
            await until(lambda: has_tool(client, f"peer_{name}"), "the new tool is listed")
        assert (await client.call(f"peer_{name}")).content[0].text == name


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("era", ["legacy"], indirect=True)
async def test_ping_is_answered(setting: Setting) -> None:
    async with setting.client() as client:
        await client.ping()


async def test_many_calls_at_once_get_each_their_own_answer(setting: Setting) -> None:
    async with setting.client() as client:
        results = await asyncio.gather(*(client.call("peer_add", {"a": n, "b": 1000}) for n in range(40)))
        assert [result.structured_content["total"] for result in results] == [n + 1000 for n in range(40)]


@pytest.mark.parametrize("era", ["auto"], indirect=True)
async def test_a_client_that_may_choose_takes_the_newest_version(setting: Setting) -> None:
    async with setting.client() as client:
        assert client.protocol_version == MODERN
        assert "peer_add" in await client.names()


async def has_tool(client: RealClient, name: str) -> bool:
    return name in await client.names()


def unique(word: str) -> str:
    return f"{word}_{next(_names)}"
