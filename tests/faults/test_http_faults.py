"""Faults of MCP servers over HTTP, each by a real misbehaving process: the column H of the fault matrix."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import (
    ANSWER_TOO_LARGE,
    AUTH_REQUIRED,
    BROKE_PROTOCOL,
    LOST,
    NOT_STARTED,
    TIMED_OUT,
)
from tests.support.gateway import Gateway
from tests.support.ports import free_port
from tests.support.processes import peak_memory_mib
from tests.support.scenes import all_of, beside_a_slow_call, cancelled_id, works_again
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import until

EITHER = {BROKE_PROTOCOL, LOST}
"""Where the wire and the protocol break together, both names are honest; what counts is `executed: unknown`."""


# Not reachable --------------------------------------------------------------------------------------------------------


async def test_a_refused_connection_is_refused_by_name_and_others_work(tmp_path: Path) -> None:
    good = StdioFaults(tmp_path, "good")
    nobody = {"nobody": {"kind": "mcp_http", "url": f"http://127.0.0.1:{free_port()}/mcp"}}
    with Gateway(tmp_path, nobody, good.entry()) as gateway:
        async with gateway.client() as client:
            refused = await client.call("nobody.anything")
            assert refused.situation in NOT_STARTED
            assert "nobody" in refused.error["message"]
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("fault", ["mute", "html_502", "redirect"])
async def test_a_server_that_fails_its_handshake_is_refused_and_others_work(tmp_path: Path, fault: str) -> None:
    good = StdioFaults(tmp_path, "good")
    with HttpFaults(tmp_path, "trap") as trap, HttpFaults(tmp_path, faults=[fault], redirect_to=trap.url) as server:
        with Gateway(tmp_path, server.entry(start_timeout=2), good.entry()) as gateway:
            async with gateway.client() as client:
                assert (await client.call("h.echo")).situation in NOT_STARTED
                assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
        assert not trap.events("request")


async def test_a_server_that_wants_a_login_says_so(tmp_path: Path) -> None:
    with (
        HttpFaults(tmp_path, faults=["unauthorized"]) as server,
        Gateway(tmp_path, server.entry()) as gateway,
    ):
        async with gateway.client() as client:
            answer = await client.call("h.echo")
            assert answer.situation == AUTH_REQUIRED
            assert answer.error["data"]["hint"]


async def test_a_server_that_comes_up_later_is_found(tmp_path: Path) -> None:
    server = HttpFaults(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h.echo")).situation in NOT_STARTED
            with server:
                await works_again(client, "h")


# Hangs and broken connections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_a_hanging_call_times_out_is_cancelled_and_frees_its_slot(tmp_path: Path, answers: str) -> None:
    with (
        HttpFaults(tmp_path, answers=answers) as server,
        Gateway(tmp_path, server.entry(timeout=1), limits={"in_flight_per_source": 1}) as gateway,
    ):
        async with gateway.client() as client:
            assert (await client.call("h_hang")).situation == TIMED_OUT
            await server.wait_for("cancelled", requestId=cancelled_id(server, "hang"))
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}


async def test_a_hanging_call_of_a_modern_server_is_cancelled_by_closing_its_stream(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, era="modern") as server, Gateway(tmp_path, server.entry(timeout=1)) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_hang")).situation == TIMED_OUT
            await server.wait_for("closed", id=cancelled_id(server, "hang"))
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
        assert not server.events("header_mismatch")
        assert not server.events("initialize")


@pytest.mark.parametrize("tool", ["slow_headers", "slow_body"])
async def test_a_reply_that_trickles_for_ever_times_out(tmp_path: Path, tool: str) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry(timeout=2)) as gateway:
        async with gateway.client() as client:
            assert (await client.call(f"h_{tool}")).situation == TIMED_OUT
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("tool", ["rst", "fin", "half"])
async def test_a_broken_connection_loses_that_call_only(tmp_path: Path, tool: str, era: str) -> None:
    with HttpFaults(tmp_path, era=era) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            lost, slow = await beside_a_slow_call(client, server, client.call(f"h_{tool}"), name="h")
            assert lost.situation == LOST
            assert slow.text == "slept"
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
        assert len(server.calls(tool)) == 1


@pytest.mark.parametrize("tool", ["sse_reset", "sse_no_reply"])
async def test_a_stream_that_ends_without_the_answer_loses_that_call_only(tmp_path: Path, tool: str) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            lost, slow = await beside_a_slow_call(client, server, client.call(f"h_{tool}"), name="h")
            assert lost.situation in EITHER
            assert slow.text == "slept"
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
        assert len(server.calls(tool)) == 1


async def test_a_crash_loses_the_calls_in_flight_and_a_restart_is_found(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            sleeping = [asyncio.ensure_future(client.call("h_sleep", {"seconds": 30})) for _ in range(3)]
            await server.wait_for("call", count=3, tool="sleep")
            server.restart()
            assert {answer.situation for answer in await all_of(sleeping)} == {LOST}
            await works_again(client, "h")
        assert len(server.calls("sleep")) == 3


async def test_connections_that_a_server_closes_between_calls_cost_no_call(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, faults=["hang_up_idle"]) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            for number in range(5):
                assert (await client.call("h_echo", {"n": number})).structured == {"n": number}
                await asyncio.sleep(0.05)  # the server's FIN is on its way: what matters is the next call


# Wrong replies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", ["json", "sse"])
@pytest.mark.parametrize(
    "tool", ["bad_json", "unreadable", "bad_utf8", "deep", "nan", "no_result", "wrong_id", "string_id"]
)
async def test_a_broken_answer_fails_its_call_at_once(tmp_path: Path, tool: str, answers: str) -> None:
    with HttpFaults(tmp_path, answers=answers) as server, Gateway(tmp_path, server.entry(timeout=50)) as gateway:
        async with gateway.client() as client:
            broken, slow = await beside_a_slow_call(client, server, client.call(f"h_{tool}"), name="h")
            assert broken.situation in (EITHER if answers == "sse" and tool.endswith("_id") else {BROKE_PROTOCOL})
            assert slow.text == "slept"
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("tool", ["html_200", "html_502", "redirect", "empty_200", "accepted"])
async def test_a_reply_of_the_wrong_kind_fails_its_call_only(tmp_path: Path, tool: str) -> None:
    with HttpFaults(tmp_path, "trap") as trap, HttpFaults(tmp_path, redirect_to=trap.url) as server:
        with Gateway(tmp_path, server.entry(timeout=50)) as gateway:
            async with gateway.client() as client:
                wrong, slow = await beside_a_slow_call(client, server, client.call(f"h_{tool}"), name="h")
                assert wrong.situation in EITHER
                assert slow.text == "slept"
                assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
        assert not trap.events("request"), "a redirect was followed"
        assert len(server.calls(tool)) == 1


async def test_a_call_refused_for_want_of_a_login_did_not_run(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_unauthorized")).situation == AUTH_REQUIRED


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_an_answer_over_the_limit_is_refused(tmp_path: Path, answers: str) -> None:
    with HttpFaults(tmp_path, answers=answers) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            refused, slow = await beside_a_slow_call(client, server, client.call("h_huge"), name="h")
            assert refused.situation == ANSWER_TOO_LARGE
            assert slow.text == "slept"
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_an_answer_just_under_the_limit_arrives_whole(tmp_path: Path, answers: str) -> None:
    size = 15 * 1024 * 1024
    with HttpFaults(tmp_path, answers=answers) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert len((await client.call("h_blob", {"bytes": size})).text) == size


async def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_gzip_bomb")).situation in {ANSWER_TOO_LARGE, BROKE_PROTOCOL}
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
            assert peak_memory_mib(gateway.process.pid) < 300


@pytest.mark.parametrize("answers", ["json", "sse"])
@pytest.mark.parametrize("options", [{"faults": ["slicer"]}, {"latency": [0.3, 0.2]}], ids=["slicer", "latency"])
async def test_a_slow_wire_is_no_fault(tmp_path: Path, options: dict[str, Any], answers: str) -> None:
    with HttpFaults(tmp_path, answers=answers, **options) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            replies = await all_of(client.call("h_echo", {"n": number}) for number in range(4))
            assert [answer.structured["n"] for answer in replies] == [0, 1, 2, 3]


# Sessions -------------------------------------------------------------------------------------------------------------


async def test_a_lost_session_is_replaced_and_the_refused_call_runs_once(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_forget_session")).text == "forgotten"
            assert (await client.call("h_nonce", {"nonce": "n1"})).text == "n1"
        assert server.steps() == [("start", "n1"), ("done", "n1")]
        assert len(server.calls("nonce")) == 1


async def test_a_restarted_server_gets_a_new_session_and_the_call_runs_once(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
            server.restart()
            await works_again(client, "h")
            assert (await client.call("h_nonce", {"nonce": "n1"})).text == "n1"
        assert server.steps() == [("start", "n1"), ("done", "n1")]


@pytest.mark.parametrize("faults", [["sessionless"], ["no_get"], ["sessionless", "no_get"]])
async def test_a_plain_server_without_sessions_or_stream_works(tmp_path: Path, faults: list[str]) -> None:
    with HttpFaults(tmp_path, faults=faults) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}


async def test_the_sessions_of_a_gateway_are_ended_with_it(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server:
        with Gateway(tmp_path, server.entry()) as gateway:
            async with gateway.client() as client:
                await client.call("h_echo")
        opened = {event["session"] for event in server.events("initialize")}
        await until(lambda: opened <= {event["session"] for event in server.events("deleted")}, "DELETE was sent")


async def test_a_changed_tool_set_is_passed_on(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with gateway.client() as client, client.listen() as stream:
            await until(lambda: [e for e in server.events("request") if e["method"] == "GET"], "the gateway listens")
            await client.call("h_grow", {"name": "extra"})
            assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"

            async def changed() -> bool:
                return "h_extra" in await client.tool_names()

            await until(changed, "the list has the new tool")


# The transport of 2024-11-05 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["auto", "sse"])
async def test_an_old_server_is_found_and_used(tmp_path: Path, transport: str) -> None:
    with (
        HttpFaults(tmp_path, transport="sse", version="2024-11-05") as server,
        Gateway(tmp_path, server.entry(transport=transport)) as gateway,
    ):
        async with gateway.client() as client:
            answers = await all_of(client.call("h_echo", {"n": number}) for number in range(4))
            assert [answer.structured["n"] for answer in answers] == [0, 1, 2, 3]


@pytest.mark.parametrize("tool", ["rst", "fin", "half"])
async def test_an_old_server_whose_stream_breaks_loses_what_was_in_flight(tmp_path: Path, tool: str) -> None:
    with (
        HttpFaults(tmp_path, transport="sse", version="2024-11-05") as server,
        Gateway(tmp_path, server.entry()) as gateway,
    ):
        async with gateway.client() as client:
            lost, slow = await beside_a_slow_call(client, server, client.call(f"h_{tool}"), name="h", seconds=30)
            assert lost.situation == LOST
            assert slow.situation == LOST
            await works_again(client, "h")


async def test_an_old_server_hears_of_a_cancelled_call(tmp_path: Path) -> None:
    with (
        HttpFaults(tmp_path, transport="sse", version="2024-11-05") as server,
        Gateway(tmp_path, server.entry(timeout=1)) as gateway,
    ):
        async with gateway.client() as client:
            assert (await client.call("h_hang")).situation == TIMED_OUT
            await server.wait_for("cancelled", requestId=cancelled_id(server, "hang"))
