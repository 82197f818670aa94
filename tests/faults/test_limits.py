"""Servers that exceed their `limits`: they are ended and restarted, and the log says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import prying_server
from tests.support.answers import Answer
from tests.support.child_trees import new_mark, survivors
from tests.support.client import Client
from tests.support.gateway import Gateway
from tests.support.plugin_rig import jobs_entry
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits need /proc")
OVER = "TL208"


MARK = new_mark()


def greedy(name: str, limits: dict[str, int], **keys: Any) -> dict[str, dict[str, Any]]:
    args = [prying_server.__file__, f"{MARK}-{name}"]
    return {name: {"kind": "mcp_stdio", "command": sys.executable, "args": args, "limits": limits, **keys}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    small = {"memory_mb": 150, "processes": 8}
    sources = greedy("shared", small, sessions="shared") | greedy("own", small) | greedy("free", {})
    sources |= jobs_entry(limits={"memory_mb": 8})
    folder = tmp_path_factory.mktemp("limits")
    with shared_gateway(Gateway(folder, sources, meta_tools=True)) as gateway:
        yield gateway


def code(answer: Answer) -> str:
    return answer.error["data"]["code"]


def is_logged(gateway: Gateway, *parts: str) -> bool:
    """In one line. Lines are written a moment later."""
    return any(all(part in line for part in parts) for line in gateway.log.splitlines())


async def pid_of(client: Client, server: str) -> str:
    """Of a server that answers; empty where it does not."""
    answer = await client.call(f"{server}_eat", {"mb": 1})
    return "" if answer.failed else answer.text


async def test_a_server_that_takes_too_much_memory_is_ended_and_told_and_comes_back(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        before = await pid_of(client, "shared")
        lost = await client.call("shared_eat", {"mb": 300, "then_s": 600})
        assert (code(lost), lost.error["data"]["executed"]) == (OVER, "unknown")
        assert "`limits.memory_mb` is 150" in lost.error["message"]
        assert await until(lambda: pid_of(client, "shared"), "it is up again") != before
        told = (await client.call("server_health", {"server": "shared"})).text
        assert OVER in told, "the health says so although it is up again"
    await until(lambda: is_logged(gateway, OVER, '"warning"'), "the log has it")


async def test_a_server_that_starts_too_many_processes_is_ended_with_all_of_them(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        lost = await client.call("own_spread", {"processes": 30, "then_s": 600})
        assert code(lost) == OVER
        assert "`limits.processes` is 8" in lost.error["message"]
        await until(lambda: pid_of(client, "own"), "the next call has a server again")
        await until(lambda: len(survivors(f"{MARK}-own")) <= 2, "what it had started is gone")  # for all, for this one
    await until(lambda: is_logged(gateway, OVER, "own"), "the log has it")


@pytest.mark.parametrize("how", ["wiped", "unreadable"])
@pytest.mark.parametrize(
    ("key", "asked"), [("memory_mb", {"count": 1, "mb": 300}), ("processes", {"count": 15, "mb": 1})]
)
async def test_daemons_that_hide_count_for_their_server_beside_others(
    how: str, key: str, asked: dict[str, int], gateway: Gateway
) -> None:
    async with visiting(gateway) as client:
        await until(lambda: pid_of(client, "own"), "it is up")
        lost = await client.call("own_hide", {"how": how, **asked, "then_s": 600})
        assert code(lost) == OVER
        assert f"`limits.{key}`" in lost.error["message"]
        await until(lambda: pid_of(client, "own"), "the next call has a server again")
        await until(lambda: len(survivors(f"{MARK}-own")) <= 2, "what it had started is gone")


async def test_memory_that_processes_share_counts_once(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        asked = {"mb": 60, "processes": 6, "then_s": 1.5}  # resident in all of them together: more than 400
        assert (await client.call("own_share", asked)).text.isdigit()


async def test_a_server_without_limits_takes_what_it_likes(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("free_eat", {"mb": 200, "then_s": 1})).text.isdigit()


async def test_a_plugin_has_limits_too(gateway: Gateway) -> None:
    async with visiting(gateway) as client:

        async def told() -> bool:
            return OVER in (await client.call("server_health", {"server": "jobs"})).text

        await until(told, "it is over its limits as soon as it runs")
