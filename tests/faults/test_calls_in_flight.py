"""Calls in flight: progress, cancellation, clients that disconnect, and limits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.answers import CLIENT_LIMIT, QUEUE_FULL, TIMED_OUT, Answer
from tests.support.client import HttpClient, call_params, encode
from tests.support.gateway import Gateway
from tests.support.scenes import all_of, cancelled_id, held
from tests.support.servers import HttpFaults, Records, StdioFaults
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import at_most, until

CANCELLED = (499, "TL310")
KINDS = ["stdio", "http", "modern"]
Servers = dict[str, StdioFaults | HttpFaults]
every_kind = pytest.mark.parametrize("kind", KINDS)


@contextlib.contextmanager
def one_of_every_kind(folder: Path) -> Iterator[Servers]:
    stdio, http, modern = (
        StdioFaults(folder, "stdio"),
        HttpFaults(folder, "http"),
        HttpFaults(folder, "modern", era="modern"),
    )
    with http, modern:
        yield {"stdio": stdio, "http": http, "modern": modern}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Servers]]:
    """A server of every kind, also under the names `brief_…` with a short timeout and `shared_…` for all clients."""
    folder = tmp_path_factory.mktemp("flight")
    with one_of_every_kind(folder) as servers:
        sources = {}
        for kind, server in servers.items():
            sources[kind] = server.entry(timeout=at_most(30))[kind]
            sources[f"brief_{kind}"] = server.entry(timeout=at_most(1))[kind]
            sources[f"shared_{kind}"] = server.entry(timeout=at_most(30), sessions="shared")[kind]
        with shared_gateway(Gateway(folder, sources)) as gateway:
            yield gateway, servers


@pytest.fixture
def gateway(place: tuple[Gateway, Servers]) -> Gateway:
    return place[0]


@pytest.fixture
def servers(place: tuple[Gateway, Servers]) -> Servers:
    for server in place[1].values():
        server.forget()
    return place[1]


async def hears_of_cancellation(server: Records, kind: str, tool: str = "hang") -> None:
    """By a message with the right id, or on a modern HTTP server by the end of the stream."""
    if kind == "modern":
        await server.wait_for("closed", id=cancelled_id(server, tool))
    else:
        await server.wait_for("cancelled", requestId=cancelled_id(server, tool))


# Progress -------------------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("token", ["mine", 7, "7"])
async def test_progress_arrives_in_order_under_the_callers_own_token(
    gateway: Gateway, kind: str, token: object
) -> None:
    async with visiting(gateway) as client:
        answer = await client.call(f"{kind}_progress", {"steps": 4}, meta={"progressToken": token})
        assert answer.text == "done"
        params = [notice["params"] for notice in answer.notices]
        assert [each["progress"] for each in params] == [1, 2, 3, 4]
        assert {(type(each["progressToken"]), each["progressToken"]) for each in params} == {(type(token), token)}
        assert params[0]["message"] == "step 1"


@every_kind
async def test_progress_is_not_sent_to_a_client_that_did_not_ask(gateway: Gateway, kind: str) -> None:
    async with visiting(gateway) as client:
        answer = await client.call(f"{kind}_progress", {"steps": 2})
        assert answer.text == "done"
        assert not answer.notices


async def test_two_calls_with_one_progress_token_are_kept_apart(gateway: Gateway) -> None:
    async with visiting(gateway) as one, visiting(gateway) as two:
        meta = {"progressToken": "same"}
        steps = [{"steps": 2}, {"steps": 5}]
        first, second = await all_of(
            client.call("shared_stdio_progress", step, meta=meta)
            for client, step in zip((one, two), steps, strict=True)
        )
        assert [notice["params"]["progress"] for notice in first.notices] == [1, 2]
        assert [notice["params"]["progress"] for notice in second.notices] == [1, 2, 3, 4, 5]


async def all_are_up(client: HttpClient, prefix: str = "") -> None:
    """What a client's own servers need to start counts towards the timeout of a call."""

    async def answer() -> bool:
        return not any(answer.failed for answer in await all_of(client.call(f"{prefix}{kind}_echo") for kind in KINDS))

    await until(answer, "a server of every kind answers")


async def test_progress_keeps_a_call_alive_beyond_its_timeout(gateway: Gateway) -> None:
    steps = {"steps": 8, "interval": at_most(0.2)}
    async with visiting(gateway) as client:
        await all_are_up(client, "brief_")
        calls = (client.call(f"brief_{kind}_progress", steps, meta={"progressToken": kind}) for kind in KINDS)
        assert [answer.text for answer in await all_of(calls)] == ["done"] * len(KINDS)


async def test_progress_for_ever_ends_at_the_absolute_limit(tmp_path: Path) -> None:
    with one_of_every_kind(tmp_path) as servers:
        entries = [server.entry(timeout=at_most(1)) for server in servers.values()]
        with Gateway(tmp_path, *entries, limits={"call_seconds": at_most(3)}) as gateway:
            async with gateway.client() as client:
                await all_are_up(client)
                endless, began = {"interval": 0.1}, time.monotonic()
                answers = await all_of(
                    client.call(f"{kind}_progress_forever", endless, meta={"progressToken": 1}) for kind in KINDS
                )
                assert time.monotonic() - began >= at_most(3)
                for kind, answer in zip(KINDS, answers, strict=True):
                    assert answer.situation == TIMED_OUT, kind
                    assert answer.notices, kind
                    await hears_of_cancellation(servers[kind], kind, "progress_forever")


# Cancellation ---------------------------------------------------------------------------------------------------------


@every_kind
async def test_a_cancelled_call_is_answered_once_and_its_server_is_told(
    gateway: Gateway, servers: Servers, kind: str
) -> None:
    async with visiting(gateway) as client:
        hanging = asyncio.ensure_future(client.call(f"{kind}_hang", id="to-cancel"))
        await servers[kind].wait_for("call", tool="hang")
        assert (await client.cancel("to-cancel")).status == 202
        assert (await hanging).situation[:2] == CANCELLED
        await hears_of_cancellation(servers[kind], kind)
        assert (await client.call(f"{kind}_echo", {"a": 1})).structured == {"a": 1}


async def test_a_cancellation_that_names_the_wrong_type_of_id_cancels_nothing(
    gateway: Gateway, servers: Servers
) -> None:
    server = servers["stdio"]
    async with visiting(gateway) as client:
        sleeping = asyncio.ensure_future(client.call("stdio_sleep", {"seconds": 0.5}, id=41))
        await server.wait_for("call", tool="sleep")
        await client.cancel("41")
        await client.cancel(999)
        assert (await sleeping).text == "slept"
        assert cancelled_id(server, "sleep") not in [event["requestId"] for event in server.events("cancelled")]


async def test_an_answer_after_the_cancellation_is_dropped(gateway: Gateway, servers: Servers) -> None:
    async with visiting(gateway) as client:
        late = asyncio.ensure_future(client.call("stdio_late", {"after": 0.2}, id=5))
        await servers["stdio"].wait_for("call", tool="late")
        await client.cancel(5)
        assert (await late).situation[:2] == CANCELLED
        again = await client.call("stdio_sleep", {"seconds": 0.5}, id=5)
        assert again.text == "slept", "the late answer went to a new call with the same id"


@pytest.mark.law
@every_kind
async def test_a_cancellation_that_races_the_answer_leaves_exactly_one_outcome(gateway: Gateway, kind: str) -> None:
    rng = random.Random(20261115)
    async with visiting(gateway) as client:

        async def race(number: int) -> Answer:
            call = asyncio.ensure_future(client.call(f"{kind}_late", {"seconds": 0.02}, id=f"race-{number}"))
            await asyncio.sleep(rng.uniform(0, 0.04))
            await client.cancel(f"race-{number}")
            return await call

        outcomes = await all_of(race(number) for number in range(60))
        for outcome in outcomes:
            assert outcome.situation[:2] == CANCELLED if outcome.failed else outcome.text == "late"
        assert (await client.call(f"{kind}_echo", {"a": 1})).structured == {"a": 1}


# Clients that leave ---------------------------------------------------------------------------------------------------


@every_kind
async def test_a_modern_client_that_leaves_cancels_its_call(gateway: Gateway, servers: Servers, kind: str) -> None:
    async with gateway.modern() as client, gateway.modern() as other:
        async with client.start_call(f"{kind}_hang", {}):
            await servers[kind].wait_for("call", tool="hang")
        await hears_of_cancellation(servers[kind], kind)
        assert (await other.call(f"{kind}_echo", {"a": 1})).structured == {"a": 1}


@every_kind
async def test_a_legacy_client_whose_connection_drops_cancels_nothing(
    gateway: Gateway, servers: Servers, kind: str
) -> None:
    server = servers[kind]
    async with visiting(gateway) as client:
        params = call_params(f"{kind}_nonce", {"nonce": "kept", "delay": 0.5}, None)
        body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        async with client.start_post(body):
            await server.wait_for("call", tool="nonce")
        await until(lambda: ("done", "kept") in server.steps(), "the call ran to its end")
        assert (await client.call(f"{kind}_echo", {"a": 1})).structured == {"a": 1}
        asked = cancelled_id(server, "nonce")
        assert asked not in [event["requestId"] for event in server.events("cancelled")]
        assert asked not in [event["id"] for event in server.events("closed")]


@every_kind
async def test_ending_a_session_cancels_what_it_had_in_flight(gateway: Gateway, servers: Servers, kind: str) -> None:
    source = f"shared_{kind}"
    async with gateway.client() as client, visiting(gateway) as other:
        hanging = asyncio.ensure_future(client.call(f"{source}_hang"))
        await servers[kind].wait_for("call", tool="hang")
        async with held(other, servers[kind], source) as staying:
            assert (await client.delete()).status in (200, 204)
            assert (await hanging).situation[:2] == CANCELLED
            await hears_of_cancellation(servers[kind], kind)
            assert not staying.done()
        assert staying.result().text == "let through"


@pytest.mark.slow
@pytest.mark.timeout(150)
async def test_a_client_that_reads_too_slowly_is_cut_and_others_are_not(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with gateway.client() as slow, gateway.client() as other:
            params = call_params("x_blob", {"bytes": 12 * 1024 * 1024}, None)
            body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            async with slow.start_post(body) as wire:
                wire.writer.transport.pause_reading()
                await server.wait_for("call", tool="blob")
                for number in range(20):
                    assert (await other.call("x_echo", {"n": number})).structured == {"n": number}
                await until(lambda: not server_side_connections(gateway, wire), "the slow reader is cut", 60)
            assert (await other.call("x_echo", {"a": 1})).structured == {"a": 1}


def server_side_connections(gateway: Gateway, wire: object) -> bool:
    """Whether the gateway still has its end of a client's connection."""
    port = wire.writer.get_extra_info("sockname")[1]  # type: ignore[attr-defined]
    remote = f"{port:04X}"
    lines = Path(f"/proc/{gateway.process.pid}/net/tcp").read_text().splitlines()[1:]
    ours = [line.split() for line in lines]
    established = "01"
    return any(
        parts[1].endswith(f":{gateway.port:04X}") and parts[2].endswith(f":{remote}") and parts[3] == established
        for parts in ours
    )


# Limits ---------------------------------------------------------------------------------------------------------------


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(tmp_path: Path) -> None:
    limits = {"in_flight_per_source": 1, "queue_per_source": 1}
    with one_of_every_kind(tmp_path) as servers:
        entries = [server.entry(timeout=at_most(30)) for server in servers.values()]
        with Gateway(tmp_path, *entries, limits=limits) as gateway:
            async with gateway.client() as client:
                for kind, server in servers.items():
                    await fills_its_queue(client, kind, server)


async def fills_its_queue(client: HttpClient, kind: str, server: Records) -> None:
    async with held(client, server, kind) as first:
        waiting = [asyncio.ensure_future(client.call(f"{kind}_echo", {"n": number})) for number in range(4)]
        await until(lambda: sum(call.done() for call in waiting) == 3, f"three are refused ({kind})")
    refused = [answer for answer in await all_of(waiting) if answer.failed]
    assert [answer.situation for answer in refused] == [QUEUE_FULL] * 3, kind
    assert all(answer.error["data"]["retryable"] for answer in refused)
    assert first.result().text == "let through"
    assert len(server.calls()) == 2


async def test_one_client_with_too_many_calls_does_not_take_the_others_places(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    keys = server.entry(sessions="shared", timeout=at_most(30))
    with Gateway(tmp_path, keys, limits={"in_flight_per_client": 3}) as gateway:
        async with gateway.client() as greedy, gateway.client() as modest:
            async with held(greedy, server, "x") as one, held(greedy, server, "x") as two, held(greedy, server, "x"):
                assert (await greedy.call("x_echo")).situation == CLIENT_LIMIT
                assert (await modest.call("x_echo", {"a": 1})).structured == {"a": 1}
                assert not one.done() and not two.done()
            assert [call.result().text for call in (one, two)] == ["let through"] * 2
