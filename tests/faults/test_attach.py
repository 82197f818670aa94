"""`trunkline stdio` whose gateway dies, hangs or comes back: the client gets an error at once, and is reconnected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.attached import LOST_GATEWAY, UNREACHABLE, AttachedClient, attached, client_of
from tests.support.client import call_params
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.ports import free_port
from tests.support.scenes import all_of
from tests.support.servers import StdioFaults
from tests.support.waiting import until

CHANGED = "notifications/tools/list_changed"
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
Call = Callable[..., Awaitable[Any]]


def eras(client: AttachedClient) -> dict[str, Call]:
    return {"legacy": client.call, "modern": client.modern_call}


def told_of_changes(client: AttachedClient) -> int:
    return sum(notice["method"] == CHANGED for notice in client.notices)


# A gateway that dies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_gateway_that_is_killed_during_calls_is_reported_at_once(tmp_path: Path, era: str) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            calls = [asyncio.ensure_future(eras(client)[era]("s_hang")) for _ in range(5)]
            await server.wait_for("call", 5, tool="hang")
            gateway.kill()
            answers = await all_of(calls)
            assert {answer.situation for answer in answers} == {LOST_GATEWAY}
            assert f"127.0.0.1:{gateway.port}" in answers[0].error["message"]
            assert "trunkline up" in answers[0].error["data"]["hint"]
            later = [await call(f"s_{tool}") for call in eras(client).values() for tool in ("echo", "hang")]
            later.append(await client.request("tools/list"))
            assert {answer.situation for answer in later} == {UNREACHABLE}
            client.end_input()
            assert await client.wait() == 0
            assert len(client.noted("gateway_lost")) == 1


async def test_a_gateway_that_comes_back_is_joined_again_and_the_client_told_to_look(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            assert not (await client.call("s_echo")).failed
            gateway.kill()
            assert (await client.call("s_echo")).situation == UNREACHABLE
            before = told_of_changes(client)
            gateway.start()
            await until(lambda: told_of_changes(client) > before, "the client is told to look again", 30)
            assert "s_echo" in await client.tool_names()
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
            await until(lambda: len(client.noted("gateway_back")) == 1, "its return is noted")

            await client.call("s_grow", {"name": "more"})
            before = told_of_changes(client)
            await client.call("s_grow", {"name": "more_still"})
            await until(lambda: told_of_changes(client) > before, "news arrive on the stream that was opened again")


@pytest.mark.law
async def test_a_call_right_after_a_restart_is_not_lost(tmp_path: Path) -> None:
    """The new gateway does not know the session, so it ran nothing: the relay opens another and asks again."""
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            os.kill(client.process.pid, signal.SIGSTOP)  # so that it notices nothing before the call
            gateway.kill()
            gateway.start()
            calls = [asyncio.ensure_future(client.call("s_nonce", {"nonce": f"n{number}"})) for number in range(10)]
            modern = asyncio.ensure_future(client.modern_call("s_nonce", {"nonce": "m"}))
            os.kill(client.process.pid, signal.SIGCONT)
            answers = await all_of([*calls, modern])
            ran = [nonce for step, nonce in server.steps() if step == "start"]
            for answer in answers:
                if answer.failed:  # one that went out on a connection of the old gateway: nobody can know
                    assert answer.situation in (LOST_GATEWAY, UNREACHABLE)
            assert len(ran) == len(set(ran))
            assert {answer.text for answer in answers if not answer.failed} <= set(ran)
            assert not (await client.call("s_echo")).failed


@pytest.mark.law
async def test_a_call_after_the_session_is_lost_runs_once(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            gateway.kill()
            assert (await client.call("s_echo")).situation == UNREACHABLE
            gateway.start()
            answers = await all_of(client.call("s_nonce", {"nonce": f"n{number}"}) for number in range(20))
            assert [answer.text for answer in answers] == [f"n{number}" for number in range(20)]
    assert sorted(nonce for step, nonce in server.steps() if step == "done") == sorted(f"n{n}" for n in range(20))


async def test_many_restarts_are_survived(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            for number in range(3):
                assert gateway.terminate() == 0
                assert (await client.call("s_echo")).situation == UNREACHABLE
                gateway.start()
                assert (await client.call("s_echo", {"n": number})).structured == {"n": number}
            await until(lambda: len(client.noted("gateway_lost")) == 3, "each end is noted once")


async def test_a_gateway_that_was_found_and_dies_is_reported_like_one_that_was_named(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with client_of([TRUNKLINE, "stdio", "-c", str(gateway.config)], tmp_path) as client:
            await client.open()
            gateway.kill()
            assert (await client.call("s_echo")).situation == UNREACHABLE
            gateway.start()
            assert not (await client.call("s_echo")).failed


async def test_a_gateway_that_ends_in_order_finishes_what_it_does(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            slow = [asyncio.ensure_future(call("s_sleep", {"seconds": 1})) for call in eras(client).values()]
            wanted = {"notifications": {"toolsListChanged": True}}
            listening = asyncio.ensure_future(client.modern_request("subscriptions/listen", wanted))
            await server.wait_for("call", 2, tool="sleep")
            assert gateway.terminate() == 0
            assert [answer.text for answer in await all_of(slow)] == ["slept", "slept"]
            assert not (await listening).failed
            await until(lambda: client.noted("gateway_lost"), "its end is reported while nobody asks for anything")


async def test_a_gateway_that_stands_still_holds_up_nothing_but_what_it_has(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            gateway.process.send_signal(signal.SIGSTOP)
            try:
                call = asyncio.ensure_future(client.call("s_echo", {"a": 1}))
                client.send(b"nonsense")
                waiting = client.expect(None)
                assert (await waiting).error["code"] == -32700
            finally:
                gateway.process.send_signal(signal.SIGCONT)
            assert (await call).structured == {"a": 1}


async def test_a_call_in_flight_at_the_end_of_input_is_answered_while_the_client_reads(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            call = asyncio.ensure_future(client.call("s_sleep", {"seconds": 2}))
            await server.wait_for("call", tool="sleep")
            client.end_input()
            assert (await call).text == "slept"
            assert await client.wait() == 0


# A gateway that is not there, or none --------------------------------------------------------------------------------


async def told_what_is_wrong(client: AttachedClient, *words: str) -> None:
    """Both eras are told at once, the program ends with 1 when its client leaves, and stderr says it once."""
    initialize = await client.request("initialize", INITIALIZE)
    assert initialize.error["data"]["code"] == "TL207"
    for word in words:
        assert word in initialize.error["message"]
    client.notify("notifications/initialized")
    assert (await client.request("tools/list")).error["data"]["code"] == "TL207"
    assert (await client.modern_request("server/discover")).error["data"]["code"] == "TL207"
    assert (await client.modern_request("tools/call", call_params("x", {}, None))).error["data"]["code"] == "TL207"
    client.end_input()
    assert await client.wait() == 1
    assert len(client.noted("gateway_lost")) == 1


async def test_an_address_where_nobody_listens_is_told_to_the_client(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    async with attached(tmp_path, url) as client:
        await told_what_is_wrong(client, url, "cannot be reached")


async def test_a_host_that_does_not_exist_is_told_to_the_client(tmp_path: Path) -> None:
    async with attached(tmp_path, "http://no-such-host.invalid:4747/mcp") as client:
        await told_what_is_wrong(client, "no-such-host.invalid", "cannot be reached")


async def test_a_socket_where_nobody_listens_is_told_to_the_client(tmp_path: Path) -> None:
    path = tmp_path / "gone.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with client_of([TRUNKLINE, "stdio", "--socket", str(path)], tmp_path) as client:
        await told_what_is_wrong(client, str(path), "cannot be reached")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n<h1>Nope</h1>\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n<h1>Home</h1>\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n[[[[",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n"
        b'{"jsonrpc":"2.0","id":0,"result":{}}',
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\ndata: x\n\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"220 mail.example.com ESMTP\r\n",
        b"\0\xff" * 100,
        b"",
    ],
    ids=["404", "page", "empty", "broken", "other", "stream", "redirect", "204", "503", "smtp", "binary", "nothing"],
)
async def test_what_is_no_gateway_is_told_to_the_client(tmp_path: Path, answer: bytes) -> None:
    async with listening(answer) as port, attached(tmp_path, f"http://127.0.0.1:{port}/mcp") as client:
        await told_what_is_wrong(client, f"127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[int]:
    """Something that answers every connection like this, and closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", free_port())
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_gateway_that_starts_after_its_client_is_joined(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, StdioFaults(tmp_path, "s").entry())
    async with attached(tmp_path, gateway) as client:
        assert (await client.request("initialize", INITIALIZE)).situation == UNREACHABLE
        with gateway:
            await client.open()
            assert not (await client.call("s_echo")).failed
            client.end_input()
            assert await client.wait() == 0


# Usage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "ftp://h/mcp"],
        ["--url", "http://"],
        ["--url", "http://h:99999/"],
        ["--url", "http://h/a b"],
        ["--url", "http://h/", "--alone"],
        ["--url", "http://h/", "--socket", "/s"],
    ],
    ids=str,
)
async def test_an_address_that_cannot_be_one_ends_with_2_and_a_silent_stdout(
    tmp_path: Path, arguments: list[str]
) -> None:
    async with client_of([TRUNKLINE, "stdio", *arguments], tmp_path) as client:
        assert await client.wait() == 2
        assert not client.lines
        assert client.log


@pytest.mark.law
async def test_a_token_that_is_no_token_ends_with_2_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_TOKEN", "s3cret\nInjected: yes")
    async with client_of([TRUNKLINE, "stdio", "--url", "http://127.0.0.1:1/mcp"], tmp_path) as client:
        assert await client.wait() == 2
        assert "s3cret" not in client.log
