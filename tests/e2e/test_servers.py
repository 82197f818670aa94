"""Servers on the SDK, on FastMCP and from npm, over stdio, HTTP and the old SSE, behind one gateway.

What they say about their tools and answer to calls arrives byte for byte: compared with asking them directly. And what
goes on during a call goes on through the gateway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.client import Client
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.pairs import IN_FULL
from tests.support.peers.clients import RealClient, connect
from tests.support.peers.direct import DirectClient, DirectModernClient, ModernStdioClient
from tests.support.peers.programs import HttpPeer, Peer, everything, fastmcp, filesystem, sdk
from tests.support.shared_gateway import shared_gateway
from tests.support.stdio_client import StdioClient
from tests.support.waiting import PATIENCE_S, START_WAIT_S, until

Members = dict[str, msgspec.Raw]
Calls = dict[str, dict[str, Any]]
Expected = tuple[dict[str, Members], dict[str, bytes]]
WIRES = ("http", "stdio", "sse")
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
OF_ONE_ALONE = {"get-resource-links"}
"""Their answers name resources: where several servers have the same, only the first keeps its URIs as they are."""


class House:
    """One program on every wire, each named after its wire, and the gateway in front of them.

    `modern` says that it speaks 2026-07-28 with the gateway, unless over SSE, which has no such version.
    """

    def __init__(self, program: str, folder: Path, stack: ExitStack) -> None:
        self.program = program
        self.modern = program != "everything"
        make: Callable[..., Peer] = {"sdk": sdk, "fastmcp": fastmcp, "everything": everything}[program]
        self.peers = {wire: stack.enter_context(make(folder, wire, wire)) for wire in WIRES}
        entries = [peer.entry() for peer in self.peers.values()]
        self.gateway = stack.enter_context(shared_gateway(Gateway(folder, *entries, start_wait=START_WAIT_S)))

    @property
    def calls(self) -> Calls:
        return PYTHON_CALLS if self.modern else EVERYTHING_CALLS

    def calls_of(self, wire: str) -> Calls:
        """What can be compared where all of them are behind one gateway."""
        return {tool: of for tool, of in self.calls.items() if tool not in OF_ONE_ALONE or wire == WIRES[0]}

    def is_modern(self, wire: str) -> bool:
        return self.modern and wire != "sse"

    def directly(self, wire: str, log: Path) -> Client:
        """A client of the server itself; for the one on the old SSE, of the same program on HTTP."""
        peer = self.peers["http" if wire == "sse" else wire]
        if isinstance(peer, HttpPeer):
            return (DirectModernClient if self.is_modern(wire) else DirectClient)(peer.port)
        return (ModernStdioClient if self.is_modern(wire) else StdioClient)(peer.command, log)

    @asynccontextmanager
    async def client(self, log: Path) -> AsyncIterator[RealClient]:
        """An old client of the SDK."""
        async with connect("sdk", "legacy", f"http://127.0.0.1:{self.gateway.port}/mcp", log) as client:
            yield client


def houses(*programs: str) -> Any:
    given = [pytest.param(name, marks=pytest.mark.node if name == "everything" else ()) for name in programs]
    return pytest.mark.parametrize("house", given, indirect=True)


@pytest.fixture(scope="module")
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(request.param, tmp_path_factory.mktemp(request.param), stack)


# Byte for byte --------------------------------------------------------------------------------------------------------


@houses("sdk", "fastmcp", "everything")
@pytest.mark.parametrize("wire", WIRES)
async def test_definitions_and_answers_are_those_of_the_server(wire: str, house: House, tmp_path: Path) -> None:
    calls = house.calls_of(wire)
    async with opened(house.directly(wire, tmp_path / "direct.log")) as direct:
        expected = await raw_tools(direct), await raw_answers(direct, calls)
    async with house.gateway.modern() if house.is_modern(wire) else house.gateway.client() as proxied:
        await assert_same(expected, proxied, wire, calls)


STDIO_FRONTEND = [("sdk", "http"), ("fastmcp", "sse"), ("everything", "stdio"), ("everything", "sse")]
if IN_FULL:
    STDIO_FRONTEND += [(program, wire) for program in ("sdk", "fastmcp", "everything") for wire in WIRES]


@pytest.mark.node
@pytest.mark.parametrize(("house", "wire"), dict.fromkeys(STDIO_FRONTEND), indirect=["house"])
async def test_through_the_stdio_frontend_too(wire: str, house: House, tmp_path: Path) -> None:
    async with opened(house.directly(wire, tmp_path / "direct.log")) as direct:
        expected = await raw_tools(direct), await raw_answers(direct, house.calls)
    plain = stdio_gateway(tmp_path, house.peers[wire].entry(), start_wait=START_WAIT_S)
    kind = ModernStdioClient if house.is_modern(wire) else StdioClient
    async with opened(kind(plain.command, plain.log_path)) as proxied:
        await assert_same(expected, proxied, wire, house.calls)


@pytest.mark.node
async def test_the_reference_server_for_files_too(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "note.txt").write_text("größer\n")
    calls: Calls = {"read_text_file": {"path": str(files / "note.txt")}, "list_directory": {"path": str(files)}}
    calls |= {"read_media_file": {"path": str(files / "missing.png")}, "list_allowed_directories": {}}
    peer = filesystem(tmp_path, files)
    async with opened(StdioClient(peer.command, tmp_path / "direct.log")) as direct:
        expected = await raw_tools(direct), await raw_answers(direct, calls)
    async with opened(stdio_gateway(tmp_path, peer.entry(), start_wait=START_WAIT_S)) as proxied:
        await assert_same(expected, proxied, "peer", calls)
        await files_are_written_and_read(proxied, files)


async def files_are_written_and_read(client: Client, root: Path) -> None:
    long = "größer\n" * 10_000
    written = await client.call("peer_write_file", {"path": str(root / "a.txt"), "content": long})
    assert not written.result.get("isError")
    assert (root / "a.txt").read_text() == long
    assert (await client.call("peer_read_text_file", {"path": str(root / "a.txt")})).text == long
    assert (await client.call("peer_read_text_file", {"path": "/etc/hostname"})).result["isError"]


@asynccontextmanager
async def opened(client: Client) -> AsyncIterator[Client]:
    async with client:
        if isinstance(client, StdioClient):
            await client.open()
        yield client


async def raw_tools(client: Client) -> dict[str, Members]:
    """Every definition by its name: its members in their order, each as the bytes it came in."""
    result = msgspec.json.decode((await client.request("tools/list")).raw, type=dict[str, msgspec.Raw])["result"]
    tools = msgspec.json.decode(msgspec.json.decode(result, type=Members)["tools"], type=list[Members])
    return {msgspec.json.decode(tool["name"], type=str): tool for tool in tools}


async def raw_answers(client: Client, calls: Calls, prefix: str = "") -> dict[str, bytes]:
    """The result or error object of each call, as it came."""
    answers: dict[str, bytes] = {}
    for tool, arguments in calls.items():
        members = msgspec.json.decode((await client.call(f"{prefix}{tool}", arguments)).raw, type=Members)
        answers[tool] = bytes(members["result"] if "result" in members else members["error"])
    return answers


async def assert_same(
    expected: tuple[dict[str, Members], dict[str, bytes]], client: Client, name: str, calls: Calls
) -> None:
    definitions, answers = expected
    proxied = {tool: of for tool, of in (await raw_tools(client)).items() if tool.startswith(f"{name}_")}
    assert list(proxied) == [f"{name}_{tool}" for tool in definitions]
    for tool, definition in definitions.items():
        assert_same_but_name(definition, proxied[f"{name}_{tool}"])
    assert await raw_answers(client, calls, f"{name}_") == answers


def assert_same_but_name(direct: Members, proxied: Members) -> None:
    assert list(direct) == list(proxied)
    assert {key: bytes(value) for key, value in direct.items() if key != "name"} == {
        key: bytes(value) for key, value in proxied.items() if key != "name"
    }


# Between the eras -----------------------------------------------------------------------------------------------------


@houses("sdk")
@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_a_legacy_client_gets_all_that_a_modern_server_would_tell_it_directly(
    wire: str, house: House, tmp_path: Path
) -> None:
    peer = house.peers[wire]
    directly = DirectClient(peer.port) if isinstance(peer, HttpPeer) else StdioClient(peer.command, tmp_path / "log")
    async with opened(directly) as direct, house.gateway.client() as proxied:
        for tool, arguments in PYTHON_CALLS.items():
            mine = (await proxied.call(f"{wire}_{tool}", arguments)).message
            theirs = (await direct.call(tool, arguments)).message
            assert_contains(mine, {**theirs, "id": mine["id"]})


@houses("everything")
async def test_a_modern_client_gets_a_legacy_servers_answers_marked_complete(house: House) -> None:
    peer = house.peers["http"]
    assert isinstance(peer, HttpPeer)
    async with DirectClient(peer.port) as direct, house.gateway.modern() as proxied:
        for tool, arguments in EVERYTHING_CALLS.items():
            mine = (await proxied.call(f"http_{tool}", arguments)).result
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


# During a call --------------------------------------------------------------------------------------------------------


@houses("sdk", "fastmcp")
@pytest.mark.parametrize("wire", WIRES)
async def test_progress_cancellation_and_changes_of_the_list(wire: str, house: House, tmp_path: Path) -> None:
    async with house.client(tmp_path / "client.log") as client:
        await client.names()
        await progress_is_told(client, f"{wire}_work", {"steps": 3}, [1, 2, 3])
        call = asyncio.ensure_future(client.call(f"{wire}_hold", {"name": "one"}))
        await house.peers[wire].journal.wait_for("held one")
        call.cancel()
        await house.peers[wire].journal.wait_for("cancelled one")
        assert not (await client.call(f"{wire}_add", {"a": 1, "b": 2})).is_error
        if (house.program, wire) == ("sdk", "sse"):
            return  # over the old transport the SDK tells nobody that its tools have changed
        client.list_changed.clear()
        await client.call(f"{wire}_grow", {"name": "grown"})
        async with asyncio.timeout(PATIENCE_S):
            await client.list_changed.wait()
        await until(lambda: has_tool(client, f"{wire}_grown"), "the new tool is listed")
        assert (await client.call(f"{wire}_grown")).content[0].text == "grown"


async def progress_is_told(client: RealClient, tool: str, arguments: dict[str, Any], expected: list[float]) -> Any:
    seen: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    result = await client.call(tool, arguments, on_progress)
    await until(lambda: seen == expected, f"all steps of {tool} were reported")
    return result


async def has_tool(client: RealClient, name: str) -> bool:
    return name in await client.names()


@houses("everything")
@pytest.mark.parametrize("wire", WIRES)
async def test_the_reference_servers_progress_image_and_structured_result_arrive(
    wire: str, house: House, tmp_path: Path
) -> None:
    async with house.client(tmp_path / "client.log") as client:
        operation = partial(progress_is_told, client, f"{wire}_trigger-long-running-operation")
        result = await operation({"duration": 0.4, "steps": 4}, [1, 2, 3, 4])
        assert "completed" in result.content[0].text
        image = (await client.call(f"{wire}_get-tiny-image")).content[1]
        assert (image.type, image.mime_type) == ("image", "image/png")
        weather = await client.call(f"{wire}_get-structured-content", {"location": "Chicago"})
        assert weather.structured_content["conditions"]


@houses("sdk")
async def test_a_result_of_megabytes_arrives_whole(house: House) -> None:
    async with house.gateway.client() as client:
        for wire in WIRES:
            assert (await client.call(f"{wire}_blob", {"size": 1_000_000})).text == "é" * 1_000_000, wire
