"""Faults of MCP servers over stdio, each by a real misbehaving process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import (
    ANSWER_TOO_LARGE,
    BROKE_PROTOCOL,
    LOST,
    NOT_STARTED,
    QUEUE_FULL,
    TIMED_OUT,
    TIMED_OUT_UNSENT,
)
from tests.support.gateway import Gateway
from tests.support.processes import alive
from tests.support.scenes import all_of, assert_all_lost, beside_a_slow_call, cancelled_id, held, works_again
from tests.support.servers import StdioFaults
from tests.support.shared_gateway import shared_gateway, visiting
from tests.support.waiting import at_most, until

IGNORED = ["unreadable", "wrong_id", "string_id", "duplicate_keys"]
"""Tools whose answers name no call, so that their calls end at their deadlines."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, StdioFaults]]:
    """One gateway for all that breaks single calls; what breaks a server has its own."""
    folder = tmp_path_factory.mktemp("stdio")
    server = StdioFaults(folder, "s")
    others = [StdioFaults(folder, "noisy", faults=["banner"]), StdioFaults(folder, "loud", faults=["stderr_flood"])]
    brief = {"timeouts": dict.fromkeys(IGNORED, at_most(1))}
    entries = [server.entry(timeout=at_most(20), tools=brief), *(other.entry() for other in others)]
    with shared_gateway(Gateway(folder, *entries)) as gateway:
        yield gateway, server


@pytest.fixture
def gateway(place: tuple[Gateway, StdioFaults]) -> Gateway:
    return place[0]


@pytest.fixture
def server(place: tuple[Gateway, StdioFaults]) -> StdioFaults:
    place[1].forget()
    return place[1]


def faulty_and_good(folder: Path, **options: Any) -> tuple[StdioFaults, StdioFaults]:
    return StdioFaults(folder, "s", **options), StdioFaults(folder, "good")


# Not startable --------------------------------------------------------------------------------------------------------


async def test_servers_that_cannot_start_are_refused_by_name_and_others_work(tmp_path: Path) -> None:
    good = StdioFaults(tmp_path, "good")
    faults = {"gone": "exit", "leaving": "exit_in_handshake", "mute": "mute", "evasive": "mute_initialize"}
    failing = [StdioFaults(tmp_path, name, faults=[fault]).entry(start_timeout=2) for name, fault in faults.items()]
    missing = {"missing": {"kind": "mcp_stdio", "command": str(tmp_path / "no-such-program")}}
    with Gateway(tmp_path, missing, *failing, good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            for name in ("missing", *faults):
                refused = await client.call(f"{name}.echo")
                assert refused.situation in NOT_STARTED, name
                assert name in refused.error["message"]
                assert (await client.call("good_echo", {"a": 2})).structured == {"a": 2}
            assert "good_echo" in await client.tool_names()


async def test_servers_that_are_slow_to_start_or_ignore_the_probe_for_the_new_protocol_are_waited_for(
    tmp_path: Path,
) -> None:
    slow, old = StdioFaults(tmp_path, "slow", start_delay=2), StdioFaults(tmp_path, "old", faults=["ignore_discover"])
    with Gateway(tmp_path, *(server.entry(timeout=at_most(30)) for server in (slow, old))) as gateway:
        async with gateway.client() as client:
            for name in ("slow", "old"):
                assert (await client.call(f"{name}_echo", {name: 1})).structured == {name: 1}


async def test_a_tool_list_without_end_neither_blocks_nor_floods(tmp_path: Path) -> None:
    server, good = faulty_and_good(tmp_path, faults=["endless_lists"])
    with Gateway(tmp_path, server.entry(start_timeout=at_most(3)), good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            assert len(await client.tools()) < 5_000
            await until(lambda: len(server.messages()) > 2, "the list was asked for")
            assert (await client.call("good_echo", {"a": 2})).structured == {"a": 2}


# Hangs and crashes ----------------------------------------------------------------------------------------------------


async def test_a_hanging_call_times_out_is_cancelled_and_frees_its_slot(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    brief = {"timeouts": {"hang": at_most(1)}}
    with Gateway(tmp_path, server.entry(tools=brief), limits={"in_flight_per_source": 1}) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_echo", {"a": 0})).structured == {"a": 0}
            assert (await client.call("s_hang")).situation == TIMED_OUT
            await server.wait_for("cancelled", requestId=cancelled_id(server, "hang"))
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
    assert len(server.events("cancelled")) == 1


async def test_a_crash_fails_every_call_on_that_server_and_no_other(tmp_path: Path) -> None:
    quiet, killed, good = (StdioFaults(tmp_path, name) for name in ("quiet", "killed", "good"))
    with Gateway(tmp_path, quiet.entry(), killed.entry(), good.entry(timeout=at_most(60))) as gateway:
        async with gateway.client() as client, held(client, good, "good") as beside:
            for server in (quiet, killed):
                lost = [asyncio.ensure_future(client.call(f"{server.name}_hang")) for _ in range(4)]
                await server.wait_for("call", count=4, tool="hang")
                crashed = await client.call(f"{server.name}_crash", {"quietly": server is quiet})
                assert_all_lost([crashed, *await all_of(lost)])
                await works_again(client, server.name)
            assert not beside.done()
        assert beside.result().text == "let through"


@pytest.mark.law
async def test_a_call_that_was_lost_is_never_sent_again(tmp_path: Path) -> None:
    servers = [StdioFaults(tmp_path, when) for when in ("before", "middle", "after")]
    with Gateway(tmp_path, *(server.entry() for server in servers)) as gateway:
        async with gateway.client() as client:
            for server in servers:
                crash = {"when": server.name, "nonce": "n"}
                assert (await client.call(f"{server.name}_crash", crash)).situation == LOST, server.name
            for server in servers:
                await works_again(client, server.name)
    assert {server.name: len(server.calls("crash")) for server in servers} == {"before": 1, "middle": 1, "after": 1}


@pytest.mark.law
async def test_a_crash_is_seen_although_a_grandchild_holds_the_pipes(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            grandchild = (await client.call("s_spawn", {"setsid": True})).structured["pid"]
            assert (await client.call("s_crash")).situation == LOST
            await until(lambda: not alive(grandchild), "the grandchild of the crashed server is gone")
            await works_again(client, "s")


async def test_an_output_that_ends_loses_the_call_and_the_next_one_works(tmp_path: Path) -> None:
    endings = ["half", "fin", "rst"]
    with Gateway(tmp_path, *(StdioFaults(tmp_path, how).entry() for how in endings)) as gateway:
        async with gateway.client() as client:
            for how in endings:
                assert (await client.call(f"{how}_{how}")).situation == LOST, how
            for how in endings:
                await works_again(client, how)


@pytest.mark.slow
@pytest.mark.law
async def test_crash_after_crash_leaves_neither_zombies_nor_files_open(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            await works_again(client, "s")
            at_first = len(gateway.descendants())
            for _ in range(5):
                assert (await client.call("s_crash")).situation == LOST
                await works_again(client, "s")
            await until(lambda: not any(process.zombie for process in gateway.descendants()), "no zombies")
            await until(lambda: len(gateway.descendants()) <= at_first + 1, "no more processes than at first")


# Broken messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["bad_json", "bad_utf8", "deep", "nan", "no_result"])
async def test_a_broken_answer_fails_its_call_and_nothing_else(
    gateway: Gateway, server: StdioFaults, tool: str
) -> None:
    before = await gateway.counted("protocol_errors", "s")
    async with visiting(gateway) as client:
        broken = await beside_a_slow_call(client, server, client.call(f"s_{tool}"), name="s")
        assert broken.situation == BROKE_PROTOCOL
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
    assert await gateway.counted("protocol_errors", "s") == before + 1


@pytest.mark.parametrize("tool", IGNORED)
async def test_an_answer_that_names_no_call_is_ignored_until_the_deadline(
    gateway: Gateway, server: StdioFaults, tool: str
) -> None:
    counter = "noise_lines" if tool == "unreadable" else "unmatched_answers"
    before = await gateway.counted(counter, "s")
    async with visiting(gateway) as client:
        ignored = await beside_a_slow_call(client, server, client.call(f"s_{tool}"), name="s")
        if tool == "duplicate_keys":  # two ids: either way it goes to nobody
            assert ignored.situation in {BROKE_PROTOCOL, TIMED_OUT}
        else:
            assert ignored.situation == TIMED_OUT
            assert await gateway.counted(counter, "s") == before + 1
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize(
    ("tool", "text"), [("twice", "first"), ("wrong_then_right", "right"), ("id_last", '"id":1'), ("noise", "quiet")]
)
async def test_an_answer_among_strays_is_found(gateway: Gateway, tool: str, text: str) -> None:
    async with visiting(gateway) as client:
        for _ in range(3):
            assert (await client.call(f"s_{tool}")).text == text
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_banners_and_blank_lines_are_ignored(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("noisy_echo", {"a": 1})).structured == {"a": 1}
        assert (await client.call("noisy_noise")).text == "quiet"
    assert await gateway.counted("noise_lines", "noisy") > 0


async def test_notifications_between_do_not_disturb_the_answer(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        answer = await client.call("s_notes", meta={"progressToken": "mine"})
        assert answer.text == "noted"
        assert not [notice for notice in answer.notices if notice["method"] == "notifications/progress"]


# Size and flow --------------------------------------------------------------------------------------------------------


async def test_an_answer_over_the_limit_is_refused_and_the_server_is_usable_again(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("s_huge")).situation == ANSWER_TOO_LARGE
        await works_again(client, "s")
        assert (await client.call("noisy_echo", {"a": 1})).structured == {"a": 1}


async def test_an_answer_over_the_limit_whose_id_comes_last_is_refused_too(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("s_huge_id_last")).situation in {ANSWER_TOO_LARGE, LOST}
        await works_again(client, "s")


async def test_an_answer_just_under_the_limit_arrives_whole(gateway: Gateway) -> None:
    size = 15 * 1024 * 1024
    async with visiting(gateway) as client:
        assert len((await client.call("s_blob", {"bytes": size})).text) == size


@pytest.mark.parametrize("name", ["loud", "s"], ids=["at start", "in a call"])
async def test_a_flood_on_stderr_blocks_nothing(gateway: Gateway, name: str) -> None:
    async with visiting(gateway) as client:
        assert (await client.call(f"{name}_stderr_flood")).text == "flooded"
        assert (await client.call(f"{name}_echo", {"a": 1})).structured == {"a": 1}


JUNK = "import os\nwhile True: os.write(1, b'x\\n' * 30000)\n"


async def test_a_server_that_prints_without_end_holds_up_nobody_else(tmp_path: Path) -> None:
    good = StdioFaults(tmp_path, "good")
    junk = {"junk": {"kind": "mcp_stdio", "command": sys.executable, "args": ["-c", JUNK], "start_timeout": 60}}
    with Gateway(tmp_path, junk, good.entry()) as gateway:
        async with gateway.client() as client:
            for number in range(100):
                assert (await client.call("good_echo", {"n": number})).structured == {"n": number}


@pytest.mark.slow
async def test_a_server_that_stops_reading_holds_up_nobody_else(tmp_path: Path) -> None:
    server, good = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(timeout=at_most(5)), good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_deaf")).text == "deaf now"
            big = {"x": "x" * 1_000_000}
            stuck = [asyncio.ensure_future(client.call("s_echo", big)) for _ in range(8)]
            for number in range(20):
                assert (await client.call("good_echo", {"n": number})).structured == {"n": number}
            allowed = {TIMED_OUT, TIMED_OUT_UNSENT, QUEUE_FULL, LOST, *NOT_STARTED}
            assert {answer.situation for answer in await all_of(stuck)} <= allowed


async def test_a_slow_wire_is_no_fault(tmp_path: Path) -> None:
    servers = [StdioFaults(tmp_path, "sliced", faults=["slicer"]), StdioFaults(tmp_path, "late", latency=[0.3, 0.2])]
    with Gateway(tmp_path, *(server.entry(timeout=at_most(30)) for server in servers)) as gateway:
        async with gateway.client() as client:
            asked = [(server.name, number) for server in servers for number in range(4)]
            answers = await all_of(client.call(f"{name}_echo", {name: number}) for name, number in asked)
            assert [answer.structured for answer in answers] == [{name: number} for name, number in asked]


async def test_a_changed_tool_set_is_passed_on(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(sessions="shared")) as gateway:
        async with gateway.client() as client, client.listen() as stream:
            await client.call("s_grow", {"name": "extra", "lose": "fail"})
            assert b"notifications/tools/list_changed" in await anext(stream)

            async def changed() -> bool:
                names = await client.tool_names()
                return "s_extra" in names and "s_fail" not in names

            await until(changed, "the list has the new tool and not the old one")
            assert (await client.call("s_extra", {"a": 1})).structured == {"a": 1}
