"""Progress, cancellation, clients that leave, and limits: what happens between a call and its answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.answers import CLIENT_LIMIT, QUEUE_FULL, TIMED_OUT, Answer
from tests.support.client import call_params, encode
from tests.support.gateway import Gateway
from tests.support.scenes import all_of, cancelled_id
from tests.support.servers import HttpFaults, Records, StdioFaults
from tests.support.waiting import until

CANCELLED = (499, "TL310")
KINDS = ["stdio", "http", "http modern"]


@contextlib.contextmanager
def serving(folder: Path, kind: str) -> Iterator[StdioFaults | HttpFaults]:
    """A server named `x` of any kind."""
    if kind == "stdio":
        yield StdioFaults(folder, "x")
        return
    with HttpFaults(folder, "x", era="modern" if kind.endswith("modern") else "legacy") as server:
        yield server


async def hears_of_cancellation(server: Records, kind: str, tool: str = "hang") -> None:
    """By a message with the right id, or on a modern HTTP server by the end of the stream."""
    if kind == "http modern":
        await server.wait_for("closed", id=cancelled_id(server, tool))
    else:
        await server.wait_for("cancelled", requestId=cancelled_id(server, tool))


# Progress -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("token", ["mine", 7, "7"])
async def test_progress_arrives_in_order_under_the_callers_own_token(tmp_path: Path, kind: str, token: object) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            answer = await client.call("x_progress", {"steps": 4}, meta={"progressToken": token})
            assert answer.text == "done"
            params = [notice["params"] for notice in answer.notices]
            assert [each["progress"] for each in params] == [1, 2, 3, 4]
            assert {(type(each["progressToken"]), each["progressToken"]) for each in params} == {(type(token), token)}
            assert params[0]["message"] == "step 1"


@pytest.mark.parametrize("kind", KINDS)
async def test_progress_is_not_sent_to_a_client_that_did_not_ask(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            answer = await client.call("x_progress", {"steps": 2})
            assert answer.text == "done"
            assert not answer.notices


async def test_two_calls_with_one_progress_token_are_kept_apart(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with gateway.client() as one, gateway.client() as two:
            meta = {"progressToken": "same"}
            first, second = await all_of(
                [one.call("x_progress", {"steps": 2}, meta=meta), two.call("x_progress", {"steps": 5}, meta=meta)]
            )
            assert [notice["params"]["progress"] for notice in first.notices] == [1, 2]
            assert [notice["params"]["progress"] for notice in second.notices] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
async def test_progress_keeps_a_call_alive_beyond_its_timeout(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry(timeout=1)) as gateway:
        async with gateway.client() as client:
            steps = {"steps": 8, "interval": 0.3}
            assert (await client.call("x_progress", steps, meta={"progressToken": 1})).text == "done"


@pytest.mark.parametrize("kind", KINDS)
async def test_progress_for_ever_ends_at_the_absolute_limit(tmp_path: Path, kind: str) -> None:
    with (
        serving(tmp_path, kind) as server,
        Gateway(tmp_path, server.entry(timeout=1), limits={"call_seconds": 3}) as gateway,
    ):
        async with gateway.client() as client:
            answer = await client.call("x_progress_forever", {"interval": 0.1}, meta={"progressToken": 1})
            assert answer.situation == TIMED_OUT
            assert len(answer.notices) > 12
            await hears_of_cancellation(server, kind, "progress_forever")


# Cancellation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_call_is_answered_once_and_its_server_is_told(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            hanging = asyncio.ensure_future(client.call("x_hang", id="to-cancel"))
            await server.wait_for("call", tool="hang")
            assert (await client.cancel("to-cancel")).status == 202
            assert (await hanging).situation[:2] == CANCELLED
            await hears_of_cancellation(server, kind)
            assert (await client.call("x_echo", {"a": 1})).structured == {"a": 1}


async def test_a_cancellation_that_names_the_wrong_type_of_id_cancels_nothing(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            sleeping = asyncio.ensure_future(client.call("x_sleep", {"seconds": 1}, id=41))
            await server.wait_for("call", tool="sleep")
            await client.cancel("41")
            await client.cancel(999)
            assert (await sleeping).text == "slept"
    assert not server.events("cancelled")


async def test_an_answer_after_the_cancellation_is_dropped(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            late = asyncio.ensure_future(client.call("x_late", {"after": 0.2}, id=5))
            await server.wait_for("call", tool="late")
            await client.cancel(5)
            assert (await late).situation[:2] == CANCELLED
            again = await client.call("x_sleep", {"seconds": 0.5}, id=5)
            assert again.text == "slept", "the late answer went to a new call with the same id"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancellation_that_races_the_answer_leaves_exactly_one_outcome(tmp_path: Path, kind: str) -> None:
    rng = random.Random(20261115)
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:

            async def race(number: int) -> Answer:
                call = asyncio.ensure_future(client.call("x_late", {"seconds": 0.02}, id=f"race-{number}"))
                await asyncio.sleep(rng.uniform(0, 0.04))
                await client.cancel(f"race-{number}")
                return await call

            outcomes = await all_of(race(number) for number in range(60))
            for outcome in outcomes:
                assert outcome.situation[:2] == CANCELLED if outcome.failed else outcome.text == "late"
            assert (await client.call("x_echo", {"a": 1})).structured == {"a": 1}


# Clients that leave ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_modern_client_that_leaves_cancels_its_call(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.modern() as client, gateway.modern() as other:
            async with client.start_call("x_hang", {}):
                await server.wait_for("call", tool="hang")
            await hears_of_cancellation(server, kind)
            assert (await other.call("x_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_legacy_client_whose_connection_drops_cancels_nothing(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            params = call_params("x_nonce", {"nonce": "kept", "delay": 1}, None)
            body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            async with client.start_post(body):
                await server.wait_for("call", tool="nonce")
            await until(lambda: ("done", "kept") in server.steps(), "the call ran to its end")
            assert (await client.call("x_echo", {"a": 1})).structured == {"a": 1}
    assert not server.events("cancelled")
    assert not server.events("closed")


@pytest.mark.parametrize("kind", KINDS)
async def test_ending_a_session_cancels_what_it_had_in_flight(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with gateway.client() as client, gateway.client() as other:
            hanging = asyncio.ensure_future(client.call("x_hang"))
            staying = asyncio.ensure_future(other.call("x_sleep", {"seconds": 1}))
            await server.wait_for("call", tool="hang")
            await server.wait_for("call", tool="sleep")
            assert (await client.delete()).status in (200, 204)
            assert (await hanging).situation[:2] == CANCELLED
            await hears_of_cancellation(server, kind)
            assert (await staying).text == "slept"


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


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(tmp_path: Path, kind: str) -> None:
    limits = {"in_flight_per_source": 1, "queue_per_source": 1}
    with serving(tmp_path, kind) as server, Gateway(tmp_path, server.entry(), limits=limits) as gateway:
        async with gateway.client() as client:
            first = asyncio.ensure_future(client.call("x_sleep", {"seconds": 2}))
            await server.wait_for("call", tool="sleep")
            waiting = [asyncio.ensure_future(client.call("x_echo", {"n": number})) for number in range(4)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answers = await all_of(waiting)
            refused = [answer for answer in answers if answer.failed]
            assert len(refused) == 3
            assert {answer.situation for answer in refused} == {QUEUE_FULL}
            assert all(answer.error["data"]["retryable"] for answer in refused)
            assert (await first).text == "slept"
    assert len(server.calls()) == 2


async def test_one_client_with_too_many_calls_does_not_take_the_others_places(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path, "x")
    keys = server.entry(sessions="shared")
    with Gateway(tmp_path, keys, limits={"in_flight_per_client": 3}) as gateway:
        async with gateway.client() as greedy, gateway.client() as modest:
            held = [asyncio.ensure_future(greedy.call("x_sleep", {"seconds": 2})) for _ in range(3)]
            await server.wait_for("call", count=3, tool="sleep")
            assert (await greedy.call("x_echo")).situation == CLIENT_LIMIT
            assert (await modest.call("x_echo", {"a": 1})).structured == {"a": 1}
            assert [answer.text for answer in await all_of(held)] == ["slept"] * 3
