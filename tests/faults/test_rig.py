"""The test clients against the fault servers directly, without a gateway."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import MODERN, HttpClient, ModernClient
from tests.support.http_wire import Wire, request_bytes
from tests.support.processes import alive, descendants
from tests.support.servers import HttpFaults, StdioFaults, kill
from tests.support.stdio_client import StdioClient
from tests.support.waiting import until


def stdio_client(folder: Path, **options: Any) -> tuple[StdioClient, StdioFaults]:
    server = StdioFaults(folder, **options)
    return StdioClient(server.command, folder / "log"), server


async def test_a_stdio_server_answers_calls_and_writes_down_what_it_received(tmp_path: Path) -> None:
    client, server = stdio_client(tmp_path)
    async with client:
        await client.open()
        assert {"echo", "hang", "bad_json", "fancy"} <= await client.tool_names()
        assert (await client.call("echo", {"a": 1})).structured == {"a": 1}
        received = base64.b64decode((await client.call("wire", {"x": 1.10})).text)
        assert received == server.messages()[-1]
        assert (await client.call("refuse")).error["code"] == -32050
        assert (await client.call("nonce", {"nonce": "n1", "delay": 0.01})).text == "n1"
    assert server.steps() == [("start", "n1"), ("done", "n1")]
    assert server.events("eof")


async def test_a_stdio_server_records_the_cancellation_of_a_hanging_call(tmp_path: Path) -> None:
    client, server = stdio_client(tmp_path)
    async with client:
        await client.open()
        hanging = asyncio.ensure_future(client.call("hang", id=77))
        await server.wait_for("call", tool="hang")
        client.cancel(77)
        await server.wait_for("cancelled", requestId=77)
        hanging.cancel()
        assert client.answers_for(77) == 0


@pytest.mark.parametrize("fault", ["slicer", "stderr_flood", "ignore_discover"])
async def test_a_stdio_server_with_a_harmless_fault_still_answers(tmp_path: Path, fault: str) -> None:
    client, _ = stdio_client(tmp_path, faults=[fault])
    async with client:
        await client.open()
        assert (await client.call("echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("tool", ["crash", "half", "fin", "rst"])
async def test_a_stdio_server_ends_its_output_when_told_to(tmp_path: Path, tool: str) -> None:
    client, server = stdio_client(tmp_path)
    async with client:
        await client.open()
        with pytest.raises(EOFError):
            await client.call(tool)
        assert client.lines[-1].endswith(b"\n") is (tool != "half")
        for pid in server.pids():
            kill(pid)


async def test_a_spawned_grandchild_outlives_its_server(tmp_path: Path) -> None:
    client, server = stdio_client(tmp_path, faults=["spawn_setsid"])
    async with client:
        await client.open()
        grandchild = server.events("spawned")[0]["child"]
        client.process.kill()
        await client.wait()
        assert alive(grandchild)
        assert grandchild in {process.pid for process in descendants(os.getpid())}
        below = descendants(grandchild)
        kill(grandchild)
        for process in below:
            kill(process.pid)


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_an_http_server_answers_in_both_forms_and_keeps_sessions_apart(tmp_path: Path, answers: str) -> None:
    with HttpFaults(tmp_path, answers=answers) as server:
        async with HttpClient(server.port) as one, HttpClient(server.port) as two:
            assert (await one.call("counter", {"add": 5})).structured == {"count": 5}
            assert (await two.call("counter")).structured == {"count": 0}
            answer = await one.call("progress", {"steps": 2}, meta={"progressToken": "p"})
            assert [notice["params"]["progress"] for notice in answer.notices] == [1, 2]
            assert answer.text == "done"
            assert (await one.delete()).status == 200
            assert (await one.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')).status == 404


async def test_an_http_server_notices_a_client_that_leaves(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, era="modern") as server:
        async with ModernClient(server.port) as client:
            async with client.start_call("hang", {}):
                await server.wait_for("call", tool="hang")
            await server.wait_for("closed")


@pytest.mark.parametrize("era", ["modern", "both"])
async def test_a_modern_server_checks_headers_against_the_body(tmp_path: Path, era: str) -> None:
    with HttpFaults(tmp_path, era=era) as server:
        async with ModernClient(server.port) as client:
            assert MODERN in (await client.request("server/discover")).result["supportedVersions"]
            assert (await client.call("echo", {"a": 1})).result["resultType"] == "complete"
            message = client.message("tools/call", {"name": "echo", "arguments": {}})
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "other"}
            reply = await client.post(json.dumps(message).encode(), headers)
            assert reply.status == 400


async def test_the_old_transport_answers_on_its_stream(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, transport="sse") as server:
        async with await Wire.connect(server.port) as wire, await Wire.connect(server.port) as poster:
            await wire.send(request_bytes("GET", "/sse"))
            stream = wire.events(await wire.read_head())
            endpoint = (await anext(stream)).decode()
            body = b'{"jsonrpc":"2.0","id":5,"method":"ping"}'
            assert (await poster.ask(request_bytes("POST", endpoint, body=body))).status == 202
            assert json.loads(await anext(stream)) == {"jsonrpc": "2.0", "id": 5, "result": {}}
            await stream.aclose()


async def test_the_standalone_stream_tells_of_a_changed_tool_set(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server:
        async with HttpClient(server.port) as client, client.listen() as stream:
            await client.call("grow", {"name": "extra", "lose": "hang"})
            assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
            names = await client.tool_names()
            assert "extra" in names
            assert "hang" not in names


async def test_an_http_server_survives_its_own_faults(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, redirect_to="http://127.0.0.1:9/") as server:
        async with HttpClient(server.port) as client:
            for tool in ("rst", "fin", "half", "slow_headers", "gzip_bomb", "html_502", "redirect", "huge"):
                try:
                    async with asyncio.timeout(1):
                        await client.call(tool)
                except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, ValueError, AssertionError):
                    pass
                assert (await client.call("echo", {"a": 1})).structured == {"a": 1}, tool


async def test_a_restarted_http_server_knows_no_session_and_keeps_its_port(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server:
        async with HttpClient(server.port) as client:
            server.restart()
            await client.close()
            assert (await client.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')).status == 404
            await until(lambda: len(server.events("start")) == 2, "two starts are on record")
