"""Faults of HTTP services, each by a real misbehaving process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.answers import ANSWER_TOO_LARGE, BROKE_PROTOCOL, LOST, NOT_STARTED, TIMED_OUT
from tests.support.gateway import Gateway
from tests.support.processes import peak_memory_mib
from tests.support.scenes import all_of, beside_a_slow_call
from tests.support.servers import StdioFaults
from tests.support.services import TOKEN, ServiceProcess
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import at_most, until

ECHO = {"text": "hello"}
Place = tuple[Gateway, ServiceProcess, ServiceProcess]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One gateway for all that breaks single calls, its service, and one that nobody may be led to."""
    folder = tmp_path_factory.mktemp("services")
    with (
        ServiceProcess(folder, "trap") as trap,
        ServiceProcess(folder, redirect_to=trap.endpoint) as service,
        ServiceProcess(folder, "sliced", sliced=True) as sliced,
        shared_gateway(
            Gateway(folder, service.entry(timeout=at_most(30)), sliced.entry(timeout=at_most(30)))
        ) as gateway,
    ):
        yield gateway, service, trap


@pytest.fixture
def gateway(place: Place) -> Gateway:
    return place[0]


@pytest.fixture
def service(place: Place) -> ServiceProcess:
    place[1].forget()
    return place[1]


async def test_a_service_that_is_not_there_is_refused_by_name_and_others_work(tmp_path: Path) -> None:
    good, nobody = StdioFaults(tmp_path, "good"), ServiceProcess(tmp_path)
    with Gateway(tmp_path, nobody.entry(declare=[{"name": "echo"}]), good.entry()) as gateway:
        async with gateway.client() as client:
            refused = await client.call("svc_echo", ECHO)
            assert refused.situation in NOT_STARTED
            assert "svc" in refused.error["message"]
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            with nobody:
                await until(lambda: works(client), "the service was found", 30)


async def works(client) -> bool:
    answer = await client.call("svc_echo", ECHO)
    assert not answer.failed or answer.executed == "no", answer.raw
    return not answer.failed


@pytest.mark.parametrize("tool", ["hang", "slow_body"])
async def test_a_call_that_hangs_times_out_closes_its_connection_and_frees_its_slot(tmp_path: Path, tool: str) -> None:
    brief = {"timeouts": {tool: at_most(1)}}
    with (
        ServiceProcess(tmp_path) as service,
        Gateway(tmp_path, service.entry(tools=brief), limits={"in_flight_per_source": 1}) as gateway,
    ):
        async with gateway.client() as client:
            assert (await client.call(f"svc_{tool}")).situation == TIMED_OUT
            if tool == "hang":
                await service.wait_for("cancelled")
            assert (await client.call("svc_echo", ECHO)).text == "hello"


@pytest.mark.parametrize("tool", ["rst", "fin", "half"])
async def test_a_broken_connection_loses_that_call_only(gateway: Gateway, service: ServiceProcess, tool: str) -> None:
    async with visiting(gateway) as client:
        lost = await beside_a_slow_call(client, service, client.call(f"svc_{tool}"), name="svc")
        assert lost.situation == LOST
        assert (await client.call("svc_echo", ECHO)).text == "hello"
    assert len(service.calls(tool)) == 1


@pytest.mark.parametrize("tool", ["bad_utf8", "deep", "nan", "empty"])
async def test_an_answer_that_cannot_be_read_fails_that_call_at_once(
    gateway: Gateway, service: ServiceProcess, tool: str
) -> None:
    async with visiting(gateway) as client:
        broken = await beside_a_slow_call(client, service, client.call(f"svc_{tool}"), name="svc")
        assert broken.situation == BROKE_PROTOCOL


@pytest.mark.parametrize("tool", ["huge", "gzip_bomb"])
async def test_an_answer_that_is_too_large_is_dropped_without_filling_memory(tmp_path: Path, tool: str) -> None:
    with ServiceProcess(tmp_path) as service, Gateway(tmp_path, service.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("svc_echo", ECHO)).text == "hello"
            before = peak_memory_mib(gateway.process.pid)
            assert (await client.call(f"svc_{tool}")).situation == ANSWER_TOO_LARGE
            assert peak_memory_mib(gateway.process.pid) - before < 64
            assert (await client.call("svc_echo", ECHO)).text == "hello"


async def test_one_byte_at_a_time_is_as_good_as_any(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("sliced_echo", ECHO)).text == "hello"


@pytest.mark.law
async def test_a_redirect_is_not_followed(gateway: Gateway, place: Place) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("svc_redirect")).result["isError"] is True
    assert not place[2].events("request")


@pytest.mark.law
async def test_a_service_that_is_killed_loses_what_it_had_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service, Gateway(tmp_path, service.entry()) as gateway:
        async with gateway.client() as client:
            calls = [asyncio.ensure_future(client.call("svc_sleep", {"seconds": 60})) for _ in range(5)]
            await service.wait_for("call", 5)
            service.stop()
            assert {(await call).situation for call in calls} == {LOST}
            assert (await client.call("svc_echo", ECHO)).executed == "no"
            service.start()
            await until(lambda: works(client), "it works again", 30)
        assert len(service.calls("sleep")) == 5


async def test_a_client_that_goes_away_ends_its_calls_at_the_service(gateway: Gateway, service: ServiceProcess) -> None:
    async with gateway.modern() as client:
        call = asyncio.ensure_future(client.call("svc_hang"))
        await service.wait_for("call")
        call.cancel()
        await asyncio.wait([call])
        await service.wait_for("cancelled")


async def test_more_calls_than_connections_all_get_their_answer(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        answers = await all_of(client.call("svc_echo", {"text": f"n{n}"}) for n in range(200))
        assert [answer.text for answer in answers] == [f"n{n}" for n in range(200)]


@pytest.mark.law
async def test_no_secret_is_in_the_log_or_in_what_clients_are_told(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service, Gateway(tmp_path, service.entry(), log={"level": "debug"}) as gateway:
        async with gateway.client() as client:
            results = [(await client.call(f"svc_{tool}")).raw for tool in ("leak", "fail", "half", "empty")]
            assert all(TOKEN.encode() not in raw for raw in results)
        session_ids = {call["session"] for call in service.calls()}
        assert TOKEN not in gateway.log
        assert all(session not in gateway.log for session in session_ids)
