"""`trunkline stdio` that joins a running gateway: everything a client does, with the servers of that gateway."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import stat
from pathlib import Path

import pytest
from tests.support.answers import CLIENT_LIMIT
from tests.support.attached import AttachedClient, attached, client_of, joined, modern_meta
from tests.support.client import call_params, encode
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.processes import PROC, descendants, peak_memory_mib
from tests.support.scenes import all_of, cancelled_id
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import until

TOKEN = "t0ken-of-the-clients"
MIB = 1024 * 1024


# Finding the gateway -------------------------------------------------------------------------------------------------


async def test_clients_that_join_share_the_gateways_processes(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with attached(tmp_path, gateway, name="a") as one, attached(tmp_path, gateway, name="b") as two:
            await one.open()
            await two.open()
            pids = {(await client.call("s_pid")).structured["pid"] for client in (one, two, one)}
            assert len(pids) == 1
            assert pids <= {process.pid for process in gateway.descendants()}
            assert not descendants(one.process.pid)
            assert not descendants(two.process.pid)
    assert len(server.events("start")) == 1


async def test_a_gateway_for_the_same_file_is_found_and_joined(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with client_of([TRUNKLINE, "stdio", "-c", str(gateway.config)], tmp_path) as client:
            await client.open()
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
            assert not descendants(client.process.pid)
        (line,) = client.noted("attached")
        assert f"127.0.0.1:{gateway.port}" in line["message"]
        assert str(gateway.process.pid) in line["message"]
    assert len(server.events("start")) == 1


async def test_alone_starts_servers_of_its_own_beside_a_running_gateway(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        await server.wait_for("start")
        async with client_of([TRUNKLINE, "stdio", "-c", str(gateway.config), "--alone"], tmp_path) as client:
            await client.open()
            assert not (await client.call("s_echo")).failed
            assert descendants(client.process.pid)
    assert len(server.events("start")) == 2


async def test_without_a_gateway_the_client_is_served_by_itself(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        config = gateway.config
    async with client_of([TRUNKLINE, "stdio", "-c", str(config)], tmp_path) as client:
        await client.open()
        assert not (await client.call("s_echo")).failed
        assert descendants(client.process.pid)
    assert not client.noted("attached")


@pytest.mark.parametrize("how", ["named", "found"])
async def test_a_gateway_is_joined_by_its_socket(tmp_path: Path, how: str) -> None:
    server, path = StdioFaults(tmp_path, "s"), tmp_path / "gw.sock"
    with Gateway(tmp_path, server.entry(), socket=str(path)) as gateway:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        choice = ["--socket", str(path)] if how == "named" else ["-c", str(gateway.config)]
        async with client_of([TRUNKLINE, "stdio", *choice], tmp_path) as client:
            await client.open()
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
            assert (await client.modern_call("s_echo", {"a": 2})).structured == {"a": 2}
        (line,) = client.noted("attached")
        assert str(path) in line["message"]
    assert not path.exists()


async def test_a_url_without_its_path_will_do(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as gateway:
        async with attached(tmp_path, f"http://localhost:{gateway.port}") as client:
            await client.open()
            assert not (await client.call("s_echo")).failed


# Messages ------------------------------------------------------------------------------------------------------------


async def test_a_ping_before_the_handshake_is_answered(tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        async with attached(tmp_path, gateway) as client:
            assert (await client.request("ping")).result == {}
            await client.open()
            assert (await client.request("ping")).result == {}


async def test_messages_pass_byte_for_byte(tmp_path: Path) -> None:
    odd = '{"content":[],"structuredContent":{"n":12345678901234567890.0100,"é":"\\u00e9\\ud83d\\ude00","b":1,"a":2}}'
    with HttpFaults(tmp_path, "s") as server:
        async with joined(tmp_path, server) as client:
            given = base64.b64encode(odd.encode()).decode()
            answer = await client.call("s_verbatim", {"result": given})
            assert answer.raw == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (answer.id, odd.encode())
            streamed = await client.call(
                "s_verbatim", {"result": given, "progress_first": True}, meta={"progressToken": 1}
            )
            assert streamed.raw == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (streamed.id, odd.encode())
            pretty = base64.b64encode(b'{\n  "content": [],\r\n  "x": "\\n"\n}').decode()
            answer = await client.call("s_verbatim", {"result": pretty})
            assert answer.raw.count(b"\n") == 1
            assert answer.result == {"content": [], "x": "\n"}
            raw = (
                '{"jsonrpc": "2.0",  "method":"tools/call", "id":"ü","params":{"arguments":{"x":1e2},"name":"s_wire"}}'
            )
            waiting = client.expect("ü")
            client.send(raw.encode())
            assert b'"arguments":{"x":1e2}' in base64.b64decode((await waiting).text)


async def test_large_results_and_requests_pass(tmp_path: Path) -> None:
    async with joined(tmp_path, StdioFaults(tmp_path, "s")) as client:
        for era in (client.call, client.modern_call):
            assert (await era("s_blob", {"bytes": 3 * MIB})).text == "x" * 3 * MIB
            assert (await era("s_echo", {"text": "y" * 2 * MIB})).structured["text"] == "y" * 2 * MIB


async def test_progress_arrives_before_the_answer(tmp_path: Path) -> None:
    async with joined(tmp_path, StdioFaults(tmp_path, "s")) as client:
        answer = await client.call("s_progress", {"steps": 3}, meta={"progressToken": "p"})
        steps = [notice["params"]["progress"] for notice in answer.notices if "progress" in notice["method"]]
        assert steps == [1, 2, 3]
        modern = call_params("s_progress", {"steps": 2}, {"progressToken": 7})
        answer = await client.modern_request("tools/call", modern)
        assert [notice["params"]["progressToken"] for notice in answer.notices] == [7, 7]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_is_taken_back_stops_at_the_server_and_is_not_answered(tmp_path: Path, era: str) -> None:
    server = StdioFaults(tmp_path, "s")
    async with joined(tmp_path, server) as client:
        call = client.call if era == "legacy" else client.modern_call
        hanging = asyncio.ensure_future(call("s_hang", id=900))
        await server.wait_for("call", tool="hang")
        client.cancel(900)
        await server.wait_for("cancelled", requestId=cancelled_id(server, "hang"))
        assert not (await call("s_echo")).failed
        assert client.answers_for(900) == 0
        hanging.cancel()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_is_taken_back_at_once_never_runs_on(tmp_path: Path, era: str) -> None:
    """The cancellation goes out in the same moment as its request, on a connection of its own."""
    server = StdioFaults(tmp_path, "s")
    async with joined(tmp_path, server, in_flight=3) as client:
        for number in range(6):
            params = call_params("s_hang", {}, modern_meta() if era == "modern" else None)
            client.send(encode({"jsonrpc": "2.0", "id": f"c{number}", "method": "tools/call", "params": params}))
            client.cancel(f"c{number}")

        async def all_are_free() -> bool:
            """None of them holds a place of the three any more."""
            answers = await all_of(client.call("s_sleep", {"seconds": 0.1}) for _ in range(3))
            return not any(answer.failed for answer in answers)

        await until(all_are_free, "what was taken back is over")
        assert not [line for line in client.lines if b'"id":"c' in line]


async def test_news_arrive_in_both_eras(tmp_path: Path) -> None:
    async with joined(tmp_path, StdioFaults(tmp_path, "s"), sessions="shared") as client:
        await client.tools()
        wanted = {"notifications": {"toolsListChanged": True}}
        listening = asyncio.ensure_future(client.modern_request("subscriptions/listen", wanted, id="listen"))
        await until(lambda: methods(client, "notifications/subscriptions/acknowledged"), "the subscription is open")
        await client.call("s_grow", {"name": "more"})
        await until(lambda: len(methods(client, "notifications/tools/list_changed")) == 2, "both are told")
        assert "s_more" in await client.tool_names()
        client.cancel("listen")
        assert (await client.request("ping")).result == {}
        assert client.answers_for("listen") == 0
        listening.cancel()


async def test_many_calls_at_once_get_each_their_own_answer(tmp_path: Path) -> None:
    async with joined(tmp_path, StdioFaults(tmp_path, "s")) as client:
        eras = (client.call, client.modern_call)
        answers = await all_of(eras[n % 2]("s_echo", {"n": n}) for n in range(200))
        assert [answer.structured["n"] for answer in answers] == list(range(200))


async def test_more_in_flight_than_allowed_is_refused_by_the_gateways_own_rule(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with joined(tmp_path, server, in_flight=2) as client:
        hanging = [asyncio.ensure_future(client.call("s_hang")) for _ in range(2)]
        await server.wait_for("call", 2, tool="hang")
        assert (await client.call("s_echo")).situation == CLIENT_LIMIT
        for call in hanging:
            call.cancel()


async def test_whoever_writes_everything_at_once_is_answered_in_full(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), start_wait=30) as gateway:
        async with attached(tmp_path, gateway) as client:
            opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            lines = [
                {"id": 1, "method": "initialize", "params": opening},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "tools/list"},
                {"id": 3, "method": "tools/call", "params": call_params("s_echo", {"a": 1}, None)},
            ]
            answers = [client.expect(number) for number in (1, 2, 3)]
            client.send_bytes(b"".join(encode({"jsonrpc": "2.0", **line}) + b"\n" for line in lines))
            client.end_input()
            assert [(await answer).failed for answer in answers] == [False, False, False]
            assert await client.wait() == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":5}', -32600),
        (b'{"jsonrpc":"2.0","id":5,"method":"no/such"}', -32601),
    ],
)
async def test_nonsense_is_answered_and_the_conversation_goes_on(tmp_path: Path, line: bytes, code: int) -> None:
    async with joined(tmp_path, StdioFaults(tmp_path, "s")) as client:
        waiting = client.expect(5 if b'"id":5' in line else None)
        client.send(line)
        assert (await waiting).error["code"] == code
        assert (await client.request("ping")).result == {}


# The token -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["environment", "file", "found"])
async def test_the_token_comes_from_the_environment_or_the_file_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        url = ["--url", f"http://127.0.0.1:{gateway.port}/mcp"]
        if source == "environment":
            monkeypatch.setenv("TRUNKLINE_TOKEN", TOKEN)
        choice = {"environment": url, "file": [*url, "-c", str(gateway.config)], "found": ["-c", str(gateway.config)]}
        async with client_of([TRUNKLINE, "stdio", *choice[source]], tmp_path) as client:
            await client.open()
            assert not (await client.call("s_echo")).failed
            if PROC.is_dir():
                assert TOKEN.encode() not in (PROC / str(client.process.pid) / "cmdline").read_bytes()
        assert TOKEN not in client.log


@pytest.mark.parametrize("given", ["", "wrong-token"])
async def test_a_token_that_is_missing_or_wrong_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("TRUNKLINE_TOKEN", given)
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        async with attached(tmp_path, gateway) as client:
            answer = await client.request("initialize", {"protocolVersion": "2025-06-18"})
            assert answer.situation == (401, "TL401", "no")
            assert "TRUNKLINE_TOKEN" in answer.error["data"]["hint"]
            assert (await client.modern_call("s_echo")).situation == (401, "TL401", "no")
            client.end_input()
            assert await client.wait() == 1
        assert len(client.noted("gateway_lost")) == 1
        assert "wrong-token" not in client.log


# The end -------------------------------------------------------------------------------------------------------------


async def test_the_end_of_input_ends_the_session_and_what_was_in_flight(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            params = {"legacy": None, "modern": modern_meta()}
            for number, meta in params.items():
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
                client.send(encode({**call, "params": call_params("s_hang", {}, meta)}))
            await server.wait_for("call", 2, tool="hang")
            client.end_input()
            assert await client.wait() == 0
        await server.wait_for("cancelled", 2)

        async def nothing_is_left() -> bool:
            samples = await gateway.metrics()
            return samples["trunkline_sessions{}"] == 0 and samples["trunkline_calls_in_flight{}"] == 0

        await until(nothing_is_left, "the session is gone")


async def test_a_relay_that_is_told_to_end_answers_what_is_in_flight(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            hanging = asyncio.ensure_future(client.call("s_hang"))
            (called,) = await server.wait_for("call", tool="hang")
            client.process.send_signal(signal.SIGTERM)
            assert (await hanging).situation[1:] == ("TL310", "unknown")
            assert await client.wait() == 0
            await server.wait_for("cancelled", requestId=called["id"])


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["TERM", "INT"])
async def test_a_signal_ends_the_relay_and_not_the_gateway(tmp_path: Path, sent: int, status: int) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            client.process.send_signal(sent)
            assert await client.wait() == status
        assert gateway.process.poll() is None


async def test_a_hangup_signal_does_not_end_it(tmp_path: Path) -> None:
    async with joined(tmp_path, StdioFaults(tmp_path, "s")) as client:
        os.kill(client.process.pid, signal.SIGHUP)
        assert (await client.request("ping")).result == {}


async def test_it_ends_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as gateway:
        async with attached(tmp_path, gateway) as client:
            await client.open()
            client.stop_reading()
            for number in range(3):
                client.send(encode({"jsonrpc": "2.0", "id": f"x{number}", "method": "ping"}))
            await client.wait()


# Who does not read ---------------------------------------------------------------------------------------------------


async def test_a_client_that_does_not_read_gets_everything_once_it_does(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with joined(tmp_path, server) as client:
        client.pause()
        calls = [asyncio.ensure_future(client.call("s_blob", {"bytes": MIB})) for _ in range(20)]
        flood = asyncio.ensure_future(
            client.call("s_progress", {"steps": 2000, "interval": 0}, meta={"progressToken": 1})
        )
        await server.wait_for("call", 21)
        client.resume()
        assert [len((await call).text) for call in calls] == [MIB] * 20
        assert (await flood).text == "done"
        if PROC.is_dir():
            assert peak_memory_mib(client.process.pid) < 250


def methods(client: AttachedClient, method: str) -> list[object]:
    return [notice for notice in client.notices if notice["method"] == method]
