"""What a server says about its tools and answers to calls arrives byte for byte: compared with asking it directly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.client import Client
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.peers.direct import DirectClient, DirectModernClient, ModernStdioClient
from tests.support.peers.programs import HttpPeer, Peer, everything, fastmcp, filesystem, sdk
from tests.support.stdio_client import StdioClient
from tests.support.waiting import START_WAIT_S

Members = dict[str, msgspec.Raw]
Calls = dict[str, dict[str, Any]]
PYTHON_CALLS: Calls = {
    "add": {"a": 2**64, "b": -1},
    "numbers": {},
    "picture": {},
    "fail": {"reason": "größer\n\u2028"},
    "refuse": {"reason": "not today"},
    "work": {"steps": 2},
}
EVERYTHING_CALLS: Calls = {
    "echo": {"message": "größer\n\u2028"},
    "get-sum": {"a": 0.1, "b": 0.2},
    "get-tiny-image": {},
    "get-structured-content": {"location": "Chicago"},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-resource-links": {"count": 3},
}


class Case:
    """A server, the era it speaks with the gateway, and calls to compare.

    One that speaks the old HTTP+SSE is compared with the same program over stdio.
    """

    def __init__(self, make: Callable[[str], Peer], transport: str, modern: bool, calls: Calls) -> None:
        self.peer = make(transport)
        self.modern = modern and transport != "sse"
        self.calls = calls
        self._asked_directly = make("stdio") if transport == "sse" else self.peer

    @asynccontextmanager
    async def directly(self, folder: Path) -> AsyncIterator[Client]:
        peer = self._asked_directly
        if isinstance(peer, HttpPeer):
            async with (DirectModernClient if self.modern else DirectClient)(peer.port) as client:
                yield client
        else:
            kind = ModernStdioClient if self.modern else StdioClient
            async with kind(peer.command, folder / "direct.log") as client:
                yield await client.open()

    @asynccontextmanager
    async def through(self, door: str, folder: Path) -> AsyncIterator[Client]:
        if door == "http":
            with Gateway(folder, self.peer.entry(), start_wait=START_WAIT_S) as gateway:
                async with gateway.modern() if self.modern else gateway.client() as client:
                    yield client
        else:
            plain = stdio_gateway(folder, self.peer.entry(), start_wait=START_WAIT_S)
            kind = ModernStdioClient if self.modern else StdioClient
            async with kind(plain.command, plain.log_path) as client:
                yield await client.open()


def make_case(name: str, folder: Path) -> Case:
    program, _, transport = name.partition("-")
    if program == "sdk":
        return Case(partial(sdk, folder), transport, True, PYTHON_CALLS)
    if program == "fastmcp":
        return Case(partial(fastmcp, folder), transport, True, PYTHON_CALLS)
    if program == "everything":
        return Case(partial(everything, folder), transport, False, EVERYTHING_CALLS)
    files = folder / "files"
    files.mkdir()
    (files / "note.txt").write_text("größer\n")
    calls: Calls = {"read_text_file": {"path": str(files / "note.txt")}, "list_directory": {"path": str(files)}}
    calls |= {"read_media_file": {"path": str(files / "missing.png")}, "list_allowed_directories": {}}
    return Case(lambda _: filesystem(folder, files), transport, False, calls)


CASES = [
    "sdk-stdio",
    "sdk-http",
    "sdk-sse",
    "fastmcp-stdio",
    "fastmcp-http",
    "fastmcp-sse",
    pytest.param("everything-stdio", marks=pytest.mark.node),
    pytest.param("everything-http", marks=pytest.mark.node),
    pytest.param("everything-sse", marks=pytest.mark.node),
    pytest.param("filesystem-stdio", marks=pytest.mark.node),
]


@pytest.mark.slow
@pytest.mark.parametrize("door", ["http", "stdio"])
@pytest.mark.parametrize("name", CASES)
async def test_definitions_and_answers_are_what_the_server_itself_sends(name: str, door: str, tmp_path: Path) -> None:
    case = make_case(name, tmp_path)
    with case.peer:
        async with case.directly(tmp_path) as client:
            definitions = await raw_tools(client)
            answers = {tool: await raw_answer(client, tool, case.calls[tool]) for tool in case.calls}
        async with case.through(door, tmp_path) as client:
            proxied = await raw_tools(client)
            assert list(proxied) == [f"peer_{tool}" for tool in definitions]
            for tool, definition in definitions.items():
                assert_same_but_name(definition, proxied[f"peer_{tool}"])
            for tool in case.calls.keys() & definitions.keys():
                assert await raw_answer(client, f"peer_{tool}", case.calls[tool]) == answers[tool], tool


async def raw_tools(client: Client) -> dict[str, Members]:
    """Every definition by its name: its members in their order, each as the bytes it came in."""
    result = msgspec.json.decode((await client.request("tools/list")).raw, type=dict[str, msgspec.Raw])["result"]
    tools = msgspec.json.decode(msgspec.json.decode(result, type=Members)["tools"], type=list[Members])
    return {msgspec.json.decode(tool["name"], type=str): tool for tool in tools}


def assert_same_but_name(direct: Members, proxied: Members) -> None:
    assert list(direct) == list(proxied)
    assert {key: bytes(value) for key, value in direct.items() if key != "name"} == {
        key: bytes(value) for key, value in proxied.items() if key != "name"
    }


async def raw_answer(client: Client, tool: str, arguments: dict[str, Any]) -> bytes:
    """The result or error object of a call, as it came."""
    answer = await client.call(tool, arguments)
    members = msgspec.json.decode(answer.raw, type=Members)
    return bytes(members["result"] if "result" in members else members["error"])


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_legacy_client_gets_all_that_a_modern_server_would_tell_it_directly(
    transport: str, tmp_path: Path
) -> None:
    with sdk(tmp_path, transport) as peer, Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
        if isinstance(peer, HttpPeer):
            directly: Any = DirectClient(peer.port)
        else:
            directly = StdioClient(peer.command, tmp_path / "direct.log")
        async with directly as direct, gateway.client() as proxied:
            if isinstance(direct, StdioClient):
                await direct.open()
            for tool, arguments in PYTHON_CALLS.items():
                mine = (await proxied.call(f"peer_{tool}", arguments)).message
                theirs = (await direct.call(tool, arguments)).message
                assert_contains(mine, {**theirs, "id": mine["id"]})


@pytest.mark.node
async def test_a_modern_client_gets_a_legacy_servers_answers_marked_complete(tmp_path: Path) -> None:
    with everything(tmp_path, "http") as peer, Gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S) as gateway:
        assert isinstance(peer, HttpPeer)
        async with DirectClient(peer.port) as direct, gateway.modern() as proxied:
            for tool, arguments in EVERYTHING_CALLS.items():
                mine = (await proxied.call(f"peer_{tool}", arguments)).result
                assert mine.pop("resultType") == "complete"
                assert mine == (await direct.call(tool, arguments)).result


def assert_contains(whole: Any, part: Any) -> None:
    """Everything in `part` is in `whole`, however much more there is."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole, f"`{key}` is missing in {json.dumps(whole)[:500]}"
            assert_contains(whole[key], value)
    else:
        assert whole == part
