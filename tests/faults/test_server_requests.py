"""Server requests when one side disappears: one response, no request left open, no leak."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import HttpClient, encode
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.message_stream import ELICITATION, FORMS, SuspendedCall, asking, own_stream, posting, reply
from tests.support.servers import HttpFaults, StdioFaults, kill
from tests.support.waiting import START_WAIT_S, at_most, until

Server = StdioFaults | HttpFaults
CANCELLED = "notifications/cancelled"
INPUT_REQUIRED = {
    "resultType": "input_required",
    "requestState": "s",
    "inputRequests": {"k": {"method": ELICITATION, "params": {"message": "m", "requestedSchema": {"type": "object"}}}},
}


@contextlib.contextmanager
def over_every_wire(folder: Path, **gateway: Any) -> Iterator[tuple[Gateway, dict[str, Server]]]:
    """A gateway with a server of each kind, by their names there."""
    with (
        HttpFaults(folder, "http") as http,
        HttpFaults(folder, "streams", answers="sse", version="2025-11-25") as streams,
    ):
        servers: dict[str, Server] = {"stdio": StdioFaults(folder, "stdio"), "http": http, "streams": streams}
        entries = [server.entry(timeout=at_most(30)) for server in servers.values()]
        with Gateway(folder, *entries, start_wait=START_WAIT_S, **gateway) as running:
            yield running, servers


async def settled(gateway: Gateway) -> None:
    """Nothing is in flight, and no server runs for a client that is gone."""

    async def nothing() -> bool:
        return not (await gateway.metrics())["trunkline_calls_in_flight{}"]

    await until(nothing, "nothing is in flight")


async def kill_the_last(server: Server) -> None:
    """The process that works for the client, or the whole server where there is only one."""
    if isinstance(server, HttpFaults):
        server.stop()
    else:
        kill(server.pids()[-1])


# The server is gone ---------------------------------------------------------------------------------------------------


async def test_a_killed_server_takes_its_request_back_and_ends_its_call(tmp_path: Path) -> None:
    with over_every_wire(tmp_path) as (gateway, servers):
        for name, server in servers.items():
            client = await gateway.client().open(FORMS)
            async with asking(client, f"{name}_ask") as told:
                question = await told.first(ELICITATION)
                await kill_the_last(server)
                assert (await told.answer())["error"]["data"]["executed"] == "unknown", name
                assert [taken["params"]["requestId"] for taken in told.of(CANCELLED)] == [question["id"]], name
                await reply(client, question, {"action": "accept", "content": {}})
            await settled(gateway)
            await client.delete()
            await client.close()


async def test_a_suspended_call_whose_server_was_killed_ends_once(tmp_path: Path) -> None:
    with over_every_wire(tmp_path) as (gateway, servers):
        client = gateway.modern()
        for name, server in servers.items():
            suspended = await SuspendedCall(client, f"{name}_ask").start()
            await kill_the_last(server)
            await settled(gateway)
            assert (await suspended.retry())["error"]["data"]["executed"] == "unknown", name
            assert "has ended" in (await suspended.retry())["error"]["message"], name
        await client.close()


async def test_a_server_that_hangs_after_it_was_answered_has_its_whole_time_and_no_more(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(tools={"timeouts": {"ask": at_most(2)}}), start_wait=START_WAIT_S) as gateway:
        client = await gateway.client().open(FORMS)
        await client.call("s_echo")  # the client's own server is up
        async with asking(client, "s_ask") as told:
            question = await told.first(ELICITATION)
            pid = server.pids()[-1]
            os.kill(pid, signal.SIGSTOP)
            await reply(client, question, {"action": "accept", "content": {}})
            assert (await told.answer())["error"]["data"]["code"] == "TL305"
        await client.delete()
        await until(lambda: pid not in server.pids(), "the server that hangs is ended")
        await client.close()


# The client is gone ---------------------------------------------------------------------------------------------------


async def test_a_client_that_ends_its_session_meanwhile_is_answered_and_its_server_ends(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(), start_wait=START_WAIT_S) as gateway:
        client = await gateway.client().open(FORMS)
        async with asking(client, "s_ask") as told:
            await told.first(ELICITATION)
            assert len(server.pids()) == 2
            assert (await client.delete()).status == 200
            assert (await told.answer())["error"]["data"]["code"] == "TL310"
        await until(lambda: len(server.pids()) == 1, "its server ends")
        await settled(gateway)
        await client.close()


async def test_a_dropped_connection_takes_nothing_back(tmp_path: Path) -> None:
    with over_every_wire(tmp_path) as (gateway, servers):
        for name, server in servers.items():
            client = await gateway.client().open(FORMS)
            async with own_stream(client):
                async with asking(client, f"{name}_ask") as told:
                    question = await told.first(ELICITATION)
                assert server.events("cancelled") == [], name
                await reply(client, question, {"action": "accept", "content": {}})
                await settled(gateway)
                assert server.events("cancelled") == [], name
            await client.delete()
            await client.close()


async def test_clients_that_are_never_heard_of_again_hold_nothing(tmp_path: Path) -> None:
    with over_every_wire(tmp_path, limits={"server_request_seconds": 1, "source_session_idle": 1}) as (
        gateway,
        servers,
    ):
        clients: list[HttpClient] = []
        for name in servers:
            clients += [gateway.modern(), await gateway.client().open(FORMS)]
            await SuspendedCall(clients[-2], f"{name}_ask").start()
            async with asking(clients[-1], f"{name}_ask") as told:
                await told.first(ELICITATION)
        await settled(gateway)
        await until(lambda: len(servers["stdio"].pids()) == 1, "its servers end")
        for client in clients:
            await client.close()


@pytest.mark.law
async def test_the_end_of_input_leaves_no_server_that_waits_for_an_answer(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    async with stdio_gateway(tmp_path, server.entry()) as client:
        await client.open(FORMS)
        client.send(encode({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "s_ask"}}))
        await until(lambda: [note for note in client.notices if note["method"] == ELICITATION], "it is asked")
        client.end_input()
        assert await client.wait() == 0
    await until(lambda: not server.pids(), "no server is left")


# The gateway ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["TERM", "INT"])
@pytest.mark.law
async def test_a_gateway_that_ends_waits_for_nobody_who_is_away_and_answers_who_is_there(
    tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    old, new = StdioFaults(tmp_path, "old"), StdioFaults(tmp_path, "new", era="modern")
    with Gateway(tmp_path, old.entry(), new.entry(), start_wait=START_WAIT_S) as gateway:
        client, modern = await gateway.client().open(FORMS), gateway.modern()
        raw = base64.b64encode(json.dumps(INPUT_REQUIRED).encode()).decode()
        wanted = {"notifications": {"toolsListChanged": True}}
        async with asking(client, "new_verbatim", result=raw) as rounds:
            await rounds.first(ELICITATION)
            async with posting(modern, "subscriptions/listen", wanted) as listening:
                await listening.first("notifications/subscriptions/acknowledged")
                await SuspendedCall(modern, "old_ask").start()
                gateway.process.send_signal(sent)
                assert gateway.process.wait(at_most(20)) == status
                assert "error" in await rounds.answer()
                assert (await listening.answer())["result"]["resultType"] == "complete"
        await modern.close()
        await client.close()
    assert not old.pids()
    assert not new.pids()


@pytest.mark.law
async def test_a_killed_gateway_leaves_no_server_that_waits_for_an_answer(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(), start_wait=START_WAIT_S) as gateway:
        modern = gateway.modern()
        await SuspendedCall(modern, "s_ask").start()
        assert len(server.pids()) == 2
        gateway.kill()
        await until(lambda: not server.pids(), "no server is left")
        await modern.close()
