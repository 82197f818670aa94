"""Requests and results are freed when they end, without waiting for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import until
from tests.unit.frontends.mcp.talks import YES, Modern, legacy, make_modern, modern
from tests.unit.frontends.rig import House, echo, house
from tests.unit.router.fakes import OK

from trunkline.core.call import Call, NeedsInput, Result
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.mcp.calls import RoutedCall

_TIMES = 5


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(here: House) -> int:
    here.rig.ended.clear()  # the tests' own
    return sum(isinstance(one, Call | HttpExchange | Result) for one in gc.get_objects())


async def test_requests_that_were_answered_leave_nothing_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, here.modern() as modern:
        here.source.on_submit = echo
        for client in (legacy, modern):
            await client.call("s_t")
            before = alive(here)
            for _ in range(_TIMES):
                await client.call("s_t", {"a": 1}, meta={"progressToken": 1})
                await client.call("s_unknown")
                await client.request("tools/list")
                await client.request("resources/read", {"uri": "x://1"})
            assert alive(here) <= before


async def test_a_batch_that_was_answered_leaves_nothing_behind(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        client = here.client()
        client.version = "2025-03-26"
        async with client:
            here.source.on_submit = echo
            calls = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"s_t"}}'
            batch = b"[%b,%b]" % (calls % 1, calls % 2)
            assert (await client.post(batch)).body.startswith(b"[")
            before = alive(here)
            for _ in range(_TIMES):
                await client.post(batch)
            assert alive(here) <= before


def routed_alive() -> int:
    return sum(isinstance(one, RoutedCall) for one in gc.get_objects())


async def test_calls_that_asked_a_modern_client_leave_nothing_behind(tmp_path: Path) -> None:
    async def ask(talk: Modern) -> None:
        call, (asking,), result = await talk.suspended()
        retry = talk.retry(result, dict.fromkeys(result["inputRequests"], YES))
        await until(lambda: not call.open_server_requests, "the server has its answer")
        call.finish(OK)
        assert (await retry).result["resultType"] == "complete"
        del asking.server_request  # the tests' own circle

    async with modern(tmp_path) as talk:
        for _ in range(_TIMES):
            await ask(talk)
        assert routed_alive() == 0


async def test_calls_made_again_with_the_answers_of_a_legacy_client_leave_nothing_behind(tmp_path: Path) -> None:
    server_request = b'{"a":{"method":"elicitation/create","params":{"message":"Who?"}}}'
    async with legacy(tmp_path) as talk:
        make_modern(talk.house)
        for _ in range(_TIMES):
            (await talk.call()).finish(
                NeedsInput(b'{"resultType":"input_required","inputRequests":%b}' % server_request)
            )
            talk.send({"id": (await talk.next())["id"], "result": YES})
            (await talk.held()).finish(OK)
            assert "result" in await talk.next()
            talk.calls.clear()
        assert routed_alive() == 0
