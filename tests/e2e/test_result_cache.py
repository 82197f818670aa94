"""The result cache through the whole gateway: what reaches the server, and what clients of both eras get."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.client import HttpClient
from tests.support.gateway import Gateway
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import until

ERAS = ["legacy", "modern"]


def client_of(gateway: Gateway, era: str) -> HttpClient:
    return gateway.modern() if era == "modern" else gateway.client()


def outcomes(gateway: Gateway, tool: str) -> list[str]:
    """How the calls of one tool ended, as the log has them."""
    lines = [json.loads(line) for line in gateway.log.splitlines() if line.startswith("{")]
    return [line["outcome"] for line in lines if line["event"] == "call" and line["tool"] == tool]


def verbatim(**result: Any) -> dict[str, str]:
    """Arguments that make the server answer with exactly this."""
    return {"result": base64.b64encode(json.dumps(result).encode()).decode()}


@contextmanager
def server_of_each_era(folder: Path, **keys: Any) -> Iterator[tuple[list[HttpFaults], Gateway]]:
    """Named after their eras."""
    with (
        HttpFaults(folder, "legacy", era="legacy") as legacy,
        HttpFaults(folder, "modern", era="modern") as modern,
        Gateway(folder, legacy.entry(**keys), modern.entry(**keys)) as gateway,
    ):
        yield [legacy, modern], gateway


@pytest.mark.parametrize("client_era", ERAS)
async def test_nothing_is_kept_by_default(tmp_path: Path, client_era: str) -> None:
    with server_of_each_era(tmp_path) as (servers, gateway):
        async with client_of(gateway, client_era) as client:
            for server in servers:
                for count in (1, 2, 3):
                    assert (await client.call(f"{server.name}_fancy")).text == "fancy"
                    assert len(server.calls("fancy")) == count
        await until(lambda: outcomes(gateway, "fancy") == ["ok"] * 6, "all calls are in the log")
        assert not any("cache_" in name for name in await gateway.metrics())


@pytest.mark.parametrize("client_era", ERAS)
async def test_the_server_is_asked_once_until_something_may_have_changed(tmp_path: Path, client_era: str) -> None:
    with server_of_each_era(tmp_path, cache={"tools": ["*"]}) as (servers, gateway):
        async with client_of(gateway, client_era) as client:
            for server in servers:
                await is_asked_once(client, server)
        expected = ["ok", "cached", "cached", "ok", "ok"] * 2
        await until(lambda: outcomes(gateway, "fancy") == expected, "the log tells which calls were answered here")
        for server in servers:
            assert await gateway.counted("cache_hits", server.name) == 2
            assert await gateway.counted("cache_misses", server.name) == 3


async def is_asked_once(client: HttpClient, server: HttpFaults) -> None:
    fancy, echo = f"{server.name}_fancy", f"{server.name}_echo"
    first, second, third = [await client.call(fancy, {"n": 1}) for _ in range(3)]
    assert first.result == second.result == third.result
    assert len({answer.id for answer in (first, second, third)}) == 3
    assert len(server.calls("fancy")) == 1
    await client.call(fancy, {"n": 2})
    assert len(server.calls("fancy")) == 2
    await client.call(echo)
    await client.call(echo)
    assert len(server.calls("echo")) == 2
    await client.call(fancy, {"n": 1})
    assert len(server.calls("fancy")) == 3


@pytest.mark.parametrize("client_era", ERAS)
async def test_clients_of_the_other_era_get_kept_results_in_their_own_form(tmp_path: Path, client_era: str) -> None:
    with (
        HttpFaults(tmp_path) as server,
        Gateway(tmp_path, server.entry(sessions="shared", cache={"tools": ["fancy"]})) as gateway,
    ):
        async with gateway.client() as legacy, gateway.modern() as modern:
            first, other = (legacy, modern) if client_era == "legacy" else (modern, legacy)
            await first.call("h_fancy")
            await other.call("h_fancy")
            assert len(server.calls("fancy")) == 1
            assert "resultType" not in (await legacy.call("h_fancy")).result
            assert (await modern.call("h_fancy")).result["resultType"] == "complete"


@pytest.mark.law
async def test_clients_with_a_server_each_get_what_their_own_server_said(tmp_path: Path) -> None:
    server = StdioFaults(tmp_path)
    with Gateway(tmp_path, server.entry(cache={"assume_read_only": ["pid"]})) as gateway:
        async with gateway.client() as one, gateway.client() as two:
            pids = [(await client.call("s_pid")).structured["pid"] for client in (one, two, one, two)]
        assert pids[:2] == pids[2:]
        assert pids[0] != pids[1]
        assert len(server.calls("pid")) == 2


@pytest.mark.parametrize("server_era", ERAS)
async def test_a_results_own_lifetime_is_honoured_and_counts_down(tmp_path: Path, server_era: str) -> None:
    with (
        HttpFaults(tmp_path, era=server_era) as server,
        Gateway(tmp_path, server.entry(cache={"assume_read_only": ["verbatim"]})) as gateway,
    ):
        async with gateway.modern() as client:
            for asked in (verbatim(content=[], ttlMs=0), verbatim(content=[], isError=True)):
                before = len(server.calls())
                await client.call("h_verbatim", asked)
                await client.call("h_verbatim", asked)
                assert len(server.calls()) == before + 2
            lasting = verbatim(content=[], ttlMs=40_000, cacheScope="private")
            assert (await client.call("h_verbatim", lasting)).result["ttlMs"] == 40_000

            async def counts_down() -> bool:
                return 0 < (await client.call("h_verbatim", lasting)).result["ttlMs"] < 40_000

            before = len(server.calls())
            await until(counts_down, "the result says how much of its time is left")
            assert len(server.calls()) == before
            brief = verbatim(content=[], ttlMs=100)
            before = len(server.calls())

            async def asked_again() -> bool:
                await client.call("h_verbatim", brief)
                return len(server.calls()) >= before + 2

            await until(asked_again, "the server is asked again once the result is too old")


async def test_what_is_kept_is_given_while_the_server_is_away_and_not_when_it_is_back(tmp_path: Path) -> None:
    with (
        HttpFaults(tmp_path) as server,
        Gateway(tmp_path, server.entry(cache={"tools": ["fancy"]})) as gateway,
    ):
        async with gateway.modern() as client:
            await client.call("h_fancy")
            server.stop()
            assert (await client.call("h_fancy")).text == "fancy"
            assert (await client.call("h_fancy", {"other": 1})).failed
            assert (await client.call("h_fancy")).text == "fancy"
            assert len(server.calls("fancy")) == 1
            server.start()

            async def asked_again() -> bool:
                await client.call("h_fancy")
                return len(server.calls("fancy")) == 2

            await until(asked_again, "the server is asked again", 30)
