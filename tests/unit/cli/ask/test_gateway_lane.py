from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.canned import Canned, canned
from tests.support.ports import free_port

from trunkline.cli.ask.gateway_lane import GatewayLane, NotFetched, fetch
from trunkline.core.call import RemoteError
from trunkline.links.http_client import HttpPool, Target


@asynccontextmanager
async def pool_to(url: str, limit_bytes: int = 1000) -> AsyncIterator[HttpPool]:
    pool = HttpPool(Target(url), connect_timeout_s=5, limit_bytes=limit_bytes)
    try:
        yield pool
    finally:
        await pool.close()


async def test_a_page_is_its_status_and_body() -> None:
    async with canned({"/a": (200, b"yes"), "/b": (404, b"")}) as server, pool_to(server.url) as pool:
        assert await fetch(pool, "/a", [(b"x-one", b"1")], 5) == (200, b"yes")
        assert await fetch(pool, "/b", [], 5) == (404, b"")
    assert (server.asked[0].method, server.asked[0].headers["x-one"]) == ("GET", "1")


async def test_a_page_that_does_not_come_says_why() -> None:
    async with canned({"/large": (200, b"x" * 2000)}) as server, pool_to(server.url) as pool:
        with pytest.raises(NotFetched, match=r"within 0\.1 seconds"):
            await fetch(pool, "/never", [], 0.1)
        with pytest.raises(NotFetched):
            await fetch(pool, "/large", [], 5)
    async with pool_to(f"http://127.0.0.1:{free_port()}") as pool:
        with pytest.raises(NotFetched, match="cannot connect"):
            await fetch(pool, "/", [], 5)


def error_page(code: str) -> tuple[int, bytes]:
    error = {"code": 1, "message": "no", "data": {"code": code}}
    return 400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


async def lane_after(server: Canned) -> GatewayLane:
    async with pool_to(server.url) as pool:
        lane = GatewayLane("gateway", lambda _: None, pool, {}, 1000)
        assert isinstance(await lane.ask("server/discover", b"{}", 5), RemoteError)
        await lane.close()
    return lane


@pytest.mark.parametrize(("code", "kept"), [("TL402", True), ("TL325", False), ("TL322", False), ("E1", False)])
async def test_a_refusal_is_kept_unless_it_is_a_part_of_the_handshake(code: str, kept: bool) -> None:
    async with canned({"/": error_page(code)}) as server:
        lane = await lane_after(server)
    assert (lane.refusal is not None) is kept
