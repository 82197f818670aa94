"""`trunkline stdio` that joins a running gateway: everything a client does, with the servers of that gateway."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.answers import CLIENT_LIMIT
from tests.support.attached import AttachedClient, attached, client_of, joined, modern_meta
from tests.support.client import call_params, encode
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.processes import PROC, descendants, peak_memory_mib
from tests.support.scenes import all_of, cancelled_id
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import START_WAIT_S, until

TOKEN = "t0ken-of-the-clients"
MIB = 1024 * 1024


class Place:
    """A gateway that no test changes, with a server over stdio (`s`) and one over HTTP (`h`), a session per client."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.server = StdioFaults(folder, "s")
        over_http = stack.enter_context(HttpFaults(folder, "h"))
        entries = [self.server.entry(sessions="per_client"), over_http.entry(sessions="per_client")]
        self.gateway = stack.enter_context(shared_gateway(Gateway(folder, *entries, start_wait=START_WAIT_S)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path_factory.mktemp("place"), stack)


@asynccontextmanager
async def at(place: Place, folder: Path) -> AsyncIterator[AttachedClient]:
    """A client, open."""
    async with attached(folder, place.gateway) as client:
        await client.open()
        yield client


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


async def test_a_gateway_is_joined_by_its_socket_which_is_named_or_found(tmp_path: Path) -> None:
    server, path = StdioFaults(tmp_path, "s"), tmp_path / "gw.sock"
    with Gateway(tmp_path, server.entry(), socket=str(path)) as gateway:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for how, choice in {"named": ["--socket", str(path)], "found": ["-c", str(gateway.config)]}.items():
            async with client_of([TRUNKLINE, "stdio", *choice], tmp_path, how) as client:
                await client.open()
                assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}, how
                assert (await client.modern_call("s_echo", {"a": 2})).structured == {"a": 2}, how
            (line,) = client.noted("attached")
            assert str(path) in line["message"], how
    assert not path.exists()


async def test_a_url_without_its_path_will_do(place: Place, tmp_path: Path) -> None:
    async with attached(tmp_path, f"http://localhost:{place.gateway.port}") as client:
        await client.open()
        assert not (await client.call("s_echo")).failed


# Messages ------------------------------------------------------------------------------------------------------------


async def test_a_ping_before_the_handshake_is_answered(place: Place, tmp_path: Path) -> None:
    async with attached(tmp_path, place.gateway) as client:
        assert (await client.request("ping")).result == {}
        await client.open()
        assert (await client.request("ping")).result == {}


async def test_messages_pass_byte_for_byte(place: Place, tmp_path: Path) -> None:
    odd = '{"content":[],"structuredContent":{"n":12345678901234567890.0100,"é":"\\u00e9\\ud83d\\ude00","b":1,"a":2}}'
    async with at(place, tmp_path) as client:
        given = base64.b64encode(odd.encode()).decode()
        answer = await client.call("h_verbatim", {"result": given})
        assert answer.raw == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (answer.id, odd.encode())
        streamed = await client.call("h_verbatim", {"result": given, "progress_first": True}, meta={"progressToken": 1})
        assert streamed.raw == b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (streamed.id, odd.encode())
        pretty = base64.b64encode(b'{\n  "content": [],\r\n  "x": "\\n"\n}').decode()
        answer = await client.call("h_verbatim", {"result": pretty})
        assert answer.raw.count(b"\n") == 1
        assert answer.result == {"content": [], "x": "\n"}
        raw = '{"jsonrpc": "2.0",  "method":"tools/call", "id":"ü","params":{"arguments":{"x":1e2},"name":"h_wire"}}'
        waiting = client.expect("ü")
        client.send(raw.encode())
        assert b'"arguments":{"x":1e2}' in base64.b64decode((await waiting).text)


async def test_large_results_and_requests_pass(place: Place, tmp_path: Path) -> None:
    async with at(place, tmp_path) as client:
        for era in (client.call, client.modern_call):
            assert (await era("s_blob", {"bytes": 3 * MIB})).text == "x" * 3 * MIB
            assert (await era("s_echo", {"text": "y" * 2 * MIB})).structured["text"] == "y" * 2 * MIB


async def test_progress_arrives_before_the_answer(place: Place, tmp_path: Path) -> None:
    async with at(place, tmp_path) as client:
        answer = await client.call("s_progress", {"steps": 3}, meta={"progressToken": "p"})
        steps = [notice["params"]["progress"] for notice in answer.notices if "progress" in notice["method"]]
        assert steps == [1, 2, 3]
        modern = call_params("s_progress", {"steps": 2}, {"progressToken": 7})
        answer = await client.modern_request("tools/call", modern)
        assert [notice["params"]["progressToken"] for notice in answer.notices] == [7, 7]


async def test_a_call_that_is_taken_back_stops_at_the_server_and_is_not_answered(place: Place, tmp_path: Path) -> None:
    server = place.server
    async with at(place, tmp_path) as client:
        for number, call in ((900, client.call), (901, client.modern_call)):
            called, told = len(server.calls("hang")), len(server.events("cancelled"))
            hanging = asyncio.ensure_future(call("s_hang", id=number))
            await server.wait_for("call", called + 1, tool="hang")
            client.cancel(number)
            cancelled = (await server.wait_for("cancelled", told + 1))[-1]
            assert cancelled["requestId"] == cancelled_id(server, "hang")
            assert not (await call("s_echo")).failed
            assert client.answers_for(number) == 0
            hanging.cancel()


async def test_a_call_that_is_taken_back_at_once_never_runs_on(tmp_path: Path) -> None:
    """The cancellation goes out in the same moment as its request, on a connection of its own."""
    server = StdioFaults(tmp_path, "s")
    async with joined(tmp_path, server, in_flight=3) as client:
        for era, meta in {"legacy": None, "modern": modern_meta()}.items():
            for number in range(6):
                call = {"jsonrpc": "2.0", "id": f"c{number}-{era}", "method": "tools/call"}
                client.send(encode({**call, "params": call_params("s_hang", {}, meta)}))
                client.cancel(f"c{number}-{era}")

            async def all_are_free() -> bool:
                """None of them holds a place of the three any more."""
                answers = await all_of(client.call("s_sleep", {"seconds": 0.1}) for _ in range(3))
                return not any(answer.failed for answer in answers)

            await until(all_are_free, f"what was taken back is over ({era})")
        assert not [line for line in client.lines if b'"id":"c' in line]


async def test_notifications_arrive_in_both_eras(tmp_path: Path) -> None:
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


async def test_many_calls_at_once_get_each_their_own_answer(place: Place, tmp_path: Path) -> None:
    async with at(place, tmp_path) as client:
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


async def test_whoever_writes_everything_at_once_is_answered_in_full(place: Place, tmp_path: Path) -> None:
    async with attached(tmp_path, place.gateway) as client:
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


NONSENSE = {
    b"not json": -32700,
    b"[]": -32600,
    b'{"jsonrpc":"2.0","id":5}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"no/such"}': -32601,
}


async def test_nonsense_is_answered_and_the_conversation_goes_on(place: Place, tmp_path: Path) -> None:
    async with at(place, tmp_path) as client:
        for line, code in NONSENSE.items():
            waiting = client.expect(5 if b'"id":5' in line else None)
            client.send(line)
            assert (await waiting).error["code"] == code, line
            assert (await client.request("ping")).result == {}, line


# The token -----------------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_the_token_comes_from_the_environment_or_the_file_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        url, file = ["--url", f"http://127.0.0.1:{gateway.port}/mcp"], ["-c", str(gateway.config)]
        for source, choice in {"file": [*url, *file], "found": file, "environment": url}.items():
            if source == "environment":
                monkeypatch.setenv("TRUNKLINE_TOKEN", TOKEN)
            async with client_of([TRUNKLINE, "stdio", *choice], tmp_path, source) as client:
                await client.open()
                assert not (await client.call("s_echo")).failed, source
                if PROC.is_dir():
                    assert TOKEN.encode() not in (PROC / str(client.process.pid) / "cmdline").read_bytes(), source
            assert TOKEN not in client.log, source


@pytest.mark.law
async def test_a_token_that_is_missing_or_wrong_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        for given in ("", "wrong-token"):
            monkeypatch.setenv("TRUNKLINE_TOKEN", given)
            async with attached(tmp_path, gateway, name=f"with-{given}") as client:
                answer = await client.request("initialize", {"protocolVersion": "2025-06-18"})
                assert answer.situation == (401, "TL401", "no"), given
                assert "TRUNKLINE_TOKEN" in answer.error["data"]["hint"]
                assert (await client.modern_call("s_echo")).situation == (401, "TL401", "no"), given
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
            answers = [client.expect(number) for number in params]
            for number, meta in params.items():
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
                client.send(encode({**call, "params": call_params("s_hang", {}, meta)}))
            await server.wait_for("call", 2, tool="hang")
            client.end_input()
            assert [(await answer).situation for answer in answers] == [(499, "TL310", "unknown")] * 2
            assert await client.wait() == 0
        await server.wait_for("cancelled", 2)

        async def nothing_is_left() -> bool:
            samples = await gateway.metrics()
            return samples["trunkline_sessions{}"] == 0 and samples["trunkline_calls_in_flight{}"] == 0

        await until(nothing_is_left, "the session is gone")


async def test_a_relay_that_is_told_to_end_answers_what_is_in_flight(place: Place, tmp_path: Path) -> None:
    server = place.server
    async with at(place, tmp_path) as client:
        called, told = len(server.calls("hang")), len(server.events("cancelled"))
        hanging = asyncio.ensure_future(client.call("s_hang"))
        await server.wait_for("call", called + 1, tool="hang")
        client.process.send_signal(signal.SIGTERM)
        assert (await hanging).situation[1:] == ("TL310", "unknown")
        assert await client.wait() == 0
        cancelled = (await server.wait_for("cancelled", told + 1))[-1]
        assert cancelled["requestId"] == cancelled_id(server, "hang")


async def test_a_signal_ends_the_relay_and_not_the_gateway(place: Place, tmp_path: Path) -> None:
    for sent, status in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        async with attached(tmp_path, place.gateway, name=sent.name) as client:
            await client.open()
            client.process.send_signal(sent)
            assert await client.wait() == status, sent.name
        assert place.gateway.process.poll() is None, sent.name


async def test_a_hangup_signal_does_not_end_it(place: Place, tmp_path: Path) -> None:
    async with at(place, tmp_path) as client:
        os.kill(client.process.pid, signal.SIGHUP)
        assert (await client.request("ping")).result == {}


async def test_it_ends_when_nobody_reads_its_output_any_more(place: Place, tmp_path: Path) -> None:
    async with at(place, tmp_path) as client:
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
