"""Servers that ask their client something, and then one side is gone: one answer, no question left open, no leak."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.client import HttpClient, encode
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.servers import HttpFaults, StdioFaults, kill
from tests.support.told import ELICITATION, FORMS, Parked, asking, own_stream, posting, reply
from tests.support.waiting import at_most, until

Server = StdioFaults | HttpFaults
CANCELLED = "notifications/cancelled"
INPUT_REQUIRED = {
    "resultType": "input_required",
    "requestState": "s",
    "inputRequests": {"k": {"method": ELICITATION, "params": {"message": "m", "requestedSchema": {"type": "object"}}}},
}


@pytest.fixture(params=["stdio", "http", "streams"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "stdio":
        yield StdioFaults(tmp_path, "s")
        return
    options = {"answers": "sse", "version": "2025-11-25"} if request.param == "streams" else {}
    with HttpFaults(tmp_path, "s", **options) as over_http:
        yield over_http


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


async def test_a_killed_server_takes_its_question_back_and_ends_its_call(tmp_path: Path, server: Server) -> None:
    with Gateway(tmp_path, server.entry(), start_wait=10) as gateway:
        client = await gateway.client().open(FORMS)
        async with asking(client, "s_ask") as told:
            question = await told.first(ELICITATION)
            await kill_the_last(server)
            assert (await told.answer())["error"]["data"]["executed"] == "unknown"
            assert [taken["params"]["requestId"] for taken in told.of(CANCELLED)] == [question["id"]]
            await reply(client, question, {"action": "accept", "content": {}})
        await settled(gateway)
        await client.delete()
        await client.close()


async def test_a_parked_call_whose_server_was_killed_ends_once(tmp_path: Path, server: Server) -> None:
    with Gateway(tmp_path, server.entry(), start_wait=10) as gateway:
        client = gateway.modern()
        parked = await Parked(client, "s_ask").park()
        await kill_the_last(server)
        await settled(gateway)
        assert (await parked.come_back())["error"]["data"]["executed"] == "unknown"
        assert "is over" in (await parked.come_back())["error"]["message"]
        await client.close()


async def test_a_server_that_hangs_after_it_was_answered_has_its_whole_time_and_no_more(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(timeout=2), start_wait=10) as gateway:
        client = await gateway.client().open(FORMS)
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
    with Gateway(tmp_path, server.entry(), start_wait=10) as gateway:
        client = await gateway.client().open(FORMS)
        async with asking(client, "s_ask") as told:
            await told.first(ELICITATION)
            assert len(server.pids()) == 2
            assert (await client.delete()).status == 200
            assert (await told.answer())["error"]["data"]["code"] == "TL310"
        await until(lambda: len(server.pids()) == 1, "its server ends")
        await settled(gateway)
        await client.close()


async def test_a_dropped_connection_takes_nothing_back(tmp_path: Path, server: Server) -> None:
    with Gateway(tmp_path, server.entry(), start_wait=10) as gateway:
        client = await gateway.client().open(FORMS)
        async with own_stream(client):
            async with asking(client, "s_ask") as told:
                question = await told.first(ELICITATION)
            assert server.events("cancelled") == []
            await reply(client, question, {"action": "accept", "content": {}})
            await settled(gateway)
            assert server.events("cancelled") == []
        await client.delete()
        await client.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_is_never_heard_of_again_holds_nothing(tmp_path: Path, server: Server, era: str) -> None:
    with Gateway(tmp_path, server.entry(), start_wait=10, limits={"question_seconds": 1, "lane_idle": 1}) as gateway:
        if era == "modern":
            client: HttpClient = gateway.modern()
            await Parked(client, "s_ask").park()
        else:
            client = await gateway.client().open(FORMS)
            async with asking(client, "s_ask") as told:
                await told.first(ELICITATION)
        await settled(gateway)
        if isinstance(server, StdioFaults):
            await until(lambda: len(server.pids()) == 1, "its server ends")
        await client.close()


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
async def test_a_gateway_that_ends_waits_for_nobody_who_is_away_and_answers_who_is_there(
    tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    old, new = StdioFaults(tmp_path, "old"), StdioFaults(tmp_path, "new", era="modern")
    with Gateway(tmp_path, old.entry(), new.entry(), start_wait=10) as gateway:
        client, modern = await gateway.client().open(FORMS), gateway.modern()
        raw = base64.b64encode(json.dumps(INPUT_REQUIRED).encode()).decode()
        wanted = {"notifications": {"toolsListChanged": True}}
        async with asking(client, "new_verbatim", result=raw) as rounds:
            await rounds.first(ELICITATION)
            async with posting(modern, "subscriptions/listen", wanted) as listening:
                await listening.first("notifications/subscriptions/acknowledged")
                await Parked(modern, "old_ask").park()
                gateway.process.send_signal(sent)
                assert gateway.process.wait(at_most(20)) == status
                assert "error" in await rounds.answer()
                assert (await listening.answer())["result"]["resultType"] == "complete"
        await modern.close()
        await client.close()
    assert not old.pids()
    assert not new.pids()


async def test_a_killed_gateway_leaves_no_server_that_waits_for_an_answer(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "s")
    with Gateway(tmp_path, server.entry(), start_wait=10) as gateway:
        modern = gateway.modern()
        await Parked(modern, "s_ask").park()
        assert len(server.pids()) == 2
        gateway.kill()
        await until(lambda: not server.pids(), "no server is left")
        await modern.close()
