"""The official SDK's client and FastMCP's, in both eras, through every frontend: everything a client does with tools.

Before a server as people write it, which speaks every version. What each single row of the requirements table does is
in `test_interactions.py`; here one client does it all, one thing after the other.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest
from mcp import MCPError
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.pairs import pairs
from tests.support.peers.clients import MODERN, RealClient, connect
from tests.support.peers.programs import HttpPeer, Journal, sdk
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until, wait_until

FRONTENDS = ("http", "stdio", "attached")
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
        gateway = stack.enter_context(shared_gateway(Gateway(folder, entry, start_wait=START_WAIT_S)))
        wait_until(lambda: "peer is ready" in gateway.log, "the server behind the gateway is up", START_WAIT_S)
        yield Places(gateway, started.journal, listening)


@dataclass(frozen=True)
class Way:
    """A kind of client, an era and a frontend; `auto` is a client that takes the newest version it is offered."""

    kind: str
    era: str
    frontend: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.era}-{self.frontend}"

    def target(self, places: Places, folder: Path) -> str | list[str]:
        if self.frontend == "http":
            return places.url
        if self.frontend == "attached":
            return [TRUNKLINE, "stdio", "--url", places.url]
        entry = {"peer": places.server.entry()["listening"]}
        return [TRUNKLINE, "stdio", "-c", str(write_config(folder, entry, start_wait=START_WAIT_S))]


WAYS = [Way(*way) for way in itertools.product(("sdk", "fastmcp"), ("legacy", MODERN, "auto"), FRONTENDS)]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("way", pairs(WAYS, astuple), ids=str)
async def test_a_client_does_everything_with_tools(way: Way, places: Places, tmp_path: Path) -> None:
    async with connect(way.kind, way.era, way.target(places, tmp_path), tmp_path / "client.log") as client:
        assert (client.protocol_version == MODERN) == (way.era != "legacy")
        await lists_and_calls_them(client)
        await gets_an_image(client)
        await is_told_of_failures(client)
        await is_told_of_progress(client)
        await takes_a_call_back(client, places.journals[way.frontend])
        await hears_of_a_new_tool(client)
        if way.era == "legacy":
            await client.ping()
        await makes_many_calls_at_once(client)


async def lists_and_calls_them(client: RealClient) -> None:
    tools = {tool.name: tool for tool in await client.tools()}
    assert {"peer_add", "peer_picture", "peer_hold"} <= tools.keys()
    assert tools["peer_add"].title == "Add numbers"
    assert tools["peer_add"].input_schema["required"] == ["a", "b"]
    result = await client.call("peer_add", {"a": 2**64, "b": 1})
    assert result.structured_content == {"total": 2**64 + 1, "parts": [2**64, 1], "note": None}
    assert not result.is_error


async def gets_an_image(client: RealClient) -> None:
    (image,) = (await client.call("peer_picture")).content
    assert (image.type, image.mime_type) == ("image", "image/png")
    assert base64.b64decode(image.data).startswith(b"\x89PNG")


async def is_told_of_failures(client: RealClient) -> None:
    """A failing tool is a result; a server's own error keeps code, message and data; an unknown tool is named."""
    result = await client.call("peer_fail", {"reason": "out of paper"})
    assert result.is_error
    assert "out of paper" in result.content[0].text
    with pytest.raises(MCPError) as caught:
        await client.call("peer_refuse", {"reason": "not today"})
    assert (caught.value.error.code, caught.value.error.message) == (4711, "not today")
    assert caught.value.error.data == {"retry": False, "ids": [1, "1", 1.5, None]}
    with pytest.raises(MCPError, match="peer_nonsense") as caught:
        await client.call("peer_nonsense")
    assert caught.value.error.code == -32602


async def is_told_of_progress(client: RealClient) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    await client.call("peer_work", {"steps": 3}, on_progress)
    await until(lambda: len(seen) == 3, "all three steps were reported")
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def takes_a_call_back(client: RealClient, journal: Journal) -> None:
    name = unique("held")
    call = asyncio.ensure_future(client.call("peer_hold", {"name": name}))
    await journal.wait_for(f"held {name}")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await journal.wait_for(f"cancelled {name}")
    assert not (await client.call("peer_add", {"a": 1, "b": 1})).is_error


async def hears_of_a_new_tool(client: RealClient) -> None:
    name = unique("grown")
    assert f"peer_{name}" not in await client.names()
    client.list_changed.clear()
    async with client.listening() as changed:
        await client.call("peer_grow", {"name": name})
        async with asyncio.timeout(PATIENCE_S):
            await changed()
        await until(lambda: has_tool(client, f"peer_{name}"), "the new tool is listed")
    assert (await client.call(f"peer_{name}")).content[0].text == name


async def makes_many_calls_at_once(client: RealClient) -> None:
    results = await asyncio.gather(*(client.call("peer_add", {"a": n, "b": 1000}) for n in range(40)))
    assert [result.structured_content["total"] for result in results] == [n + 1000 for n in range(40)]


async def has_tool(client: RealClient, name: str) -> bool:
    return name in await client.names()


def unique(word: str) -> str:
    return f"{word}_{next(_names)}"
