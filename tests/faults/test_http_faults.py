"""Faults of MCP servers over HTTP, each by a real misbehaving process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
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
from tests.support.scenes import all_of, beside_a_slow_call, cancelled_id, held, works_again
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import at_most, until

Servers = dict[str, HttpFaults]
EITHER = {BROKE_PROTOCOL, LOST}
"""Where the wire and the protocol break together, both names are honest; what counts is `executed: unknown`."""
OLD = {"transport": "sse", "version": "2024-11-05"}
SERVERS: dict[str, dict[str, Any]] = {
    "json": {},
    "sse": {"answers": "sse"},
    "modern": {"era": "modern"},
    "old": OLD,
    "trap": {},
}
BRIEF = at_most(1)
"""The timeout of the sources `brief_json`, `brief_old` and so on, which lead to the same servers."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Servers]]:
    """One gateway for all that breaks single calls; what breaks a server has its own."""
    folder = tmp_path_factory.mktemp("http")
    servers = {name: HttpFaults(folder, name, **options) for name, options in SERVERS.items() if name != "json"}
    servers["json"] = HttpFaults(folder, "json", redirect_to=servers["trap"].url)
    with ExitStack() as running:
        for server in servers.values():
            running.enter_context(server)
        usual = [server.entry(timeout=at_most(50)) for name, server in servers.items() if name != "trap"]
        brief = {f"brief_{name}": servers[name].entry(timeout=BRIEF)[name] for name in ("json", "modern", "old")}
        yield running.enter_context(shared_gateway(Gateway(folder, *usual, brief))), servers


@pytest.fixture
def gateway(place: tuple[Gateway, Servers]) -> Gateway:
    return place[0]


@pytest.fixture
def servers(place: tuple[Gateway, Servers]) -> Servers:
    for server in place[1].values():
        server.forget()
    return place[1]


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


@pytest.mark.law
async def test_servers_that_fail_their_handshake_are_refused_and_others_work(tmp_path: Path) -> None:
    good, trap = StdioFaults(tmp_path, "good"), HttpFaults(tmp_path, "trap")
    faulty = [
        HttpFaults(tmp_path, fault, faults=[fault], redirect_to=trap.url)
        for fault in ("mute", "html_502", "redirect", "unauthorized")
    ]
    with ExitStack() as running:
        for server in (trap, *faulty):
            running.enter_context(server)
        entries = [server.entry(start_timeout=at_most(2)) for server in faulty]
        async with running.enter_context(Gateway(tmp_path, *entries, good.entry())).client() as client:
            for server in faulty[:-1]:
                assert (await client.call(f"{server.name}.echo")).situation in NOT_STARTED, server.name
                assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            answer = await client.call("unauthorized.echo")
            assert answer.situation == AUTH_REQUIRED
            assert answer.error["data"]["hint"]
    assert not trap.events("request")


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
    brief = {"timeouts": {"hang": at_most(1)}}
    with (
        HttpFaults(tmp_path, answers=answers) as server,
        Gateway(tmp_path, server.entry(tools=brief), limits={"in_flight_per_source": 1}) as gateway,
    ):
        async with gateway.client() as client:
            assert (await client.call("h_hang")).situation == TIMED_OUT
            await server.wait_for("cancelled", requestId=cancelled_id(server, "hang"))
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}


async def test_a_hanging_call_of_a_modern_server_is_cancelled_by_closing_its_stream(
    gateway: Gateway, servers: Servers
) -> None:
    server = servers["modern"]
    async with visiting(gateway) as client:
        assert (await client.call("brief_modern_hang")).situation == TIMED_OUT
        await server.wait_for("closed", id=cancelled_id(server, "hang"))
        assert (await client.call("modern_echo", {"a": 1})).structured == {"a": 1}
    assert not server.events("header_mismatch")
    assert not server.events("initialize")


@pytest.mark.parametrize("tool", ["slow_headers", "slow_body"])
async def test_a_reply_that_trickles_for_ever_times_out(gateway: Gateway, tool: str) -> None:
    async with visiting(gateway) as client:
        assert (await client.call(f"brief_json_{tool}")).situation == TIMED_OUT
        assert (await client.call("json_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("name", ["json", "modern"])
@pytest.mark.parametrize("tool", ["rst", "fin", "half"])
async def test_a_broken_connection_loses_that_call_only(
    gateway: Gateway, servers: Servers, tool: str, name: str
) -> None:
    async with visiting(gateway) as client:
        lost = await beside_a_slow_call(client, servers[name], client.call(f"{name}_{tool}"), name=name)
        assert lost.situation == LOST
        assert (await client.call(f"{name}_echo", {"a": 1})).structured == {"a": 1}
    assert len(servers[name].calls(tool)) == 1


@pytest.mark.parametrize("tool", ["sse_reset", "sse_no_reply"])
async def test_a_stream_that_ends_without_the_answer_loses_that_call_only(
    gateway: Gateway, servers: Servers, tool: str
) -> None:
    async with visiting(gateway) as client:
        lost = await beside_a_slow_call(client, servers["json"], client.call(f"json_{tool}"), name="json")
        assert lost.situation in EITHER
        assert (await client.call("json_echo", {"a": 1})).structured == {"a": 1}
    assert len(servers["json"].calls(tool)) == 1


async def test_a_crash_loses_the_calls_in_flight_and_a_restart_is_found(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            sleeping = [asyncio.ensure_future(client.call("h_hang")) for _ in range(3)]
            await server.wait_for("call", count=3, tool="hang")
            server.restart()
            assert {answer.situation for answer in await all_of(sleeping)} == {LOST}
            await works_again(client, "h")
        assert len(server.calls("hang")) == 3


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
async def test_a_broken_answer_fails_its_call_at_once(
    gateway: Gateway, servers: Servers, tool: str, answers: str
) -> None:
    async with visiting(gateway) as client:
        broken = await beside_a_slow_call(client, servers[answers], client.call(f"{answers}_{tool}"), name=answers)
        assert broken.situation in (EITHER if answers == "sse" and tool.endswith("_id") else {BROKE_PROTOCOL})
        assert (await client.call(f"{answers}_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.law
@pytest.mark.parametrize("tool", ["html_200", "html_502", "redirect", "empty_200", "accepted"])
async def test_a_reply_of_the_wrong_kind_fails_its_call_only(gateway: Gateway, servers: Servers, tool: str) -> None:
    async with visiting(gateway) as client:
        wrong = await beside_a_slow_call(client, servers["json"], client.call(f"json_{tool}"), name="json")
        assert wrong.situation in EITHER
        assert (await client.call("json_echo", {"a": 1})).structured == {"a": 1}
    assert not servers["trap"].events("request"), "a redirect was followed"
    assert len(servers["json"].calls(tool)) == 1


async def test_a_call_refused_for_want_of_a_login_did_not_run(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("json_unauthorized")).situation == AUTH_REQUIRED


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_an_answer_over_the_limit_is_refused(gateway: Gateway, servers: Servers, answers: str) -> None:
    async with visiting(gateway) as client:
        refused = await beside_a_slow_call(client, servers[answers], client.call(f"{answers}_huge"), name=answers)
        assert refused.situation == ANSWER_TOO_LARGE
        assert (await client.call(f"{answers}_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_an_answer_just_under_the_limit_arrives_whole(gateway: Gateway, answers: str) -> None:
    size = 15 * 1024 * 1024
    async with visiting(gateway) as client:
        assert len((await client.call(f"{answers}_blob", {"bytes": size})).text) == size


async def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_gzip_bomb")).situation in {ANSWER_TOO_LARGE, BROKE_PROTOCOL}
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
            assert peak_memory_mib(gateway.process.pid) < 300


async def test_a_slow_wire_is_no_fault(tmp_path: Path) -> None:
    habits: dict[str, dict[str, Any]] = {"sliced": {"faults": ["slicer"]}, "late": {"latency": [0.3, 0.2]}}
    servers = [
        HttpFaults(tmp_path, f"{habit}_{answers}", answers=answers, **options)
        for habit, options in habits.items()
        for answers in ("json", "sse")
    ]
    with ExitStack() as running:
        for server in servers:
            running.enter_context(server)
        gateway = running.enter_context(Gateway(tmp_path, *(server.entry(timeout=at_most(30)) for server in servers)))
        async with gateway.client() as client:
            asked = [(server.name, number) for server in servers for number in range(4)]
            replies = await all_of(client.call(f"{name}_echo", {name: number}) for name, number in asked)
            assert [answer.structured for answer in replies] == [{name: number} for name, number in asked]


# Sessions -------------------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_a_lost_session_is_replaced_and_the_refused_call_runs_once(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_forget_session")).text == "forgotten"
            assert (await client.call("h_nonce", {"nonce": "n1"})).text == "n1"
        assert server.steps() == [("start", "n1"), ("done", "n1")]
        assert len(server.calls("nonce")) == 1


@pytest.mark.law
async def test_a_restarted_server_gets_a_new_session_and_the_call_runs_once(tmp_path: Path) -> None:
    with HttpFaults(tmp_path) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
            server.restart()
            await works_again(client, "h")
            assert (await client.call("h_nonce", {"nonce": "n1"})).text == "n1"
        assert server.steps() == [("start", "n1"), ("done", "n1")]


async def test_plain_servers_without_sessions_or_stream_work(tmp_path: Path) -> None:
    faults = {"bare": ["sessionless"], "mute": ["no_get"], "plain": ["sessionless", "no_get"]}
    with ExitStack() as running:
        servers = [running.enter_context(HttpFaults(tmp_path, name, faults=has)) for name, has in faults.items()]
        gateway = running.enter_context(Gateway(tmp_path, *(server.entry() for server in servers)))
        async with gateway.client() as client:
            for name in faults:
                assert (await client.call(f"{name}_echo", {name: 1})).structured == {name: 1}


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


async def test_an_old_server_is_found_and_used(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "auto", **OLD) as server:
        named = {"sse": server.entry(transport="sse")["auto"]}
        with Gateway(tmp_path, server.entry(transport="auto"), named) as gateway:
            async with gateway.client() as client:
                asked = [(name, number) for name in ("auto", "sse") for number in range(4)]
                answers = await all_of(client.call(f"{name}_echo", {name: number}) for name, number in asked)
                assert [answer.structured for answer in answers] == [{name: number} for name, number in asked]


@pytest.mark.parametrize("tool", ["rst", "fin", "half"])
async def test_an_old_server_whose_stream_breaks_loses_what_was_in_flight(
    gateway: Gateway, servers: Servers, tool: str
) -> None:
    async with visiting(gateway) as client:
        async with held(client, servers["old"], "old") as slow:
            assert (await client.call(f"old_{tool}")).situation == LOST
            assert (await slow).situation == LOST
        await works_again(client, "old")


async def test_an_old_server_hears_of_a_cancelled_call(gateway: Gateway, servers: Servers) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("brief_old_hang")).situation == TIMED_OUT
        await servers["old"].wait_for("cancelled", requestId=cancelled_id(servers["old"], "hang"))
