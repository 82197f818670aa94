"""Faults of MCP servers over stdio, each by a real misbehaving process: the column S of the fault matrix."""

from __future__ import annotations

import asyncio
import sys
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
from tests.support.scenes import all_of, assert_all_lost, beside_a_slow_call, cancelled_id, works_again
from tests.support.servers import StdioFaults
from tests.support.waiting import until


def faulty_and_good(folder: Path, **options: Any) -> tuple[StdioFaults, StdioFaults]:
    return StdioFaults(folder, "s", **options), StdioFaults(folder, "good")


# Not startable --------------------------------------------------------------------------------------------------------


async def test_a_command_that_does_not_exist_is_refused_by_name_and_others_work(tmp_path: Path) -> None:
    _, good = faulty_and_good(tmp_path)
    missing = {"missing": {"kind": "mcp_stdio", "command": str(tmp_path / "no-such-program")}}
    with Gateway(tmp_path, missing, good.entry()) as gateway:
        async with gateway.client() as client:
            refused = await client.call("missing.anything")
            assert refused.situation in NOT_STARTED
            assert "missing" in refused.error["message"]
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            assert "good_echo" in await client.tool_names()


@pytest.mark.parametrize("fault", ["exit", "exit_in_handshake", "mute", "mute_initialize"])
async def test_a_server_that_fails_to_start_is_refused_and_others_work(tmp_path: Path, fault: str) -> None:
    server, good = faulty_and_good(tmp_path, faults=[fault])
    with Gateway(tmp_path, server.entry(start_timeout=2), good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            assert (await client.call("s.echo")).situation in NOT_STARTED
            assert (await client.call("good_echo", {"a": 2})).structured == {"a": 2}


async def test_a_server_that_is_slow_to_start_is_waited_for(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path, start_delay=2)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_a_server_that_ignores_the_probe_for_the_new_protocol_is_used_with_the_old(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path, faults=["ignore_discover"])
    with Gateway(tmp_path, server.entry(timeout=30)) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_a_tool_list_without_end_neither_blocks_nor_floods(tmp_path: Path) -> None:
    server, good = faulty_and_good(tmp_path, faults=["endless_lists"])
    with Gateway(tmp_path, server.entry(start_timeout=3), good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}
            assert len(await client.tools()) < 5_000
            await until(lambda: len(server.messages()) > 2, "the list was asked for")
            assert (await client.call("good_echo", {"a": 2})).structured == {"a": 2}


# Hangs and crashes ----------------------------------------------------------------------------------------------------


async def test_a_hanging_call_times_out_is_cancelled_and_frees_its_slot(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(timeout=1), limits={"in_flight_per_source": 1}) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_hang")).situation == TIMED_OUT
            await server.wait_for("cancelled", requestId=cancelled_id(server, "hang"))
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
    assert len(server.events("cancelled")) == 1


@pytest.mark.parametrize("quietly", [True, False], ids=["exit 0", "killed"])
async def test_a_crash_fails_every_call_on_that_server_and_no_other(tmp_path: Path, quietly: bool) -> None:
    server, good = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(), good.entry()) as gateway:
        async with gateway.client() as client:
            beside = asyncio.ensure_future(client.call("good_sleep", {"seconds": 2}))
            lost = [asyncio.ensure_future(client.call("s_sleep", {"seconds": 30})) for _ in range(4)]
            await server.wait_for("call", count=4, tool="sleep")
            crashed = await client.call("s_crash", {"quietly": quietly})
            assert_all_lost([crashed, *await all_of(lost)])
            await works_again(client, "s")
            assert (await beside).text == "slept"


@pytest.mark.parametrize("when", ["before", "middle", "after"])
async def test_a_call_that_was_lost_is_never_sent_again(tmp_path: Path, when: str) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_crash", {"when": when, "nonce": "n"})).situation == LOST
            await works_again(client, "s")
    assert len(server.calls("crash")) == 1


async def test_a_crash_is_seen_although_a_grandchild_holds_the_pipes(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            grandchild = (await client.call("s_spawn", {"setsid": True})).structured["pid"]
            assert (await client.call("s_crash")).situation == LOST
            await until(lambda: not alive(grandchild), "the grandchild of the crashed server is gone")
            await works_again(client, "s")


@pytest.mark.parametrize("tool", ["half", "fin", "rst"])
async def test_an_output_that_ends_loses_the_call_and_the_next_one_works(tmp_path: Path, tool: str) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call(f"s_{tool}")).situation == LOST
            await works_again(client, "s")


@pytest.mark.slow
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
async def test_a_broken_answer_fails_its_call_and_nothing_else(tmp_path: Path, tool: str) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(timeout=5)) as gateway:
        async with gateway.client() as client:
            broken, slow = await beside_a_slow_call(client, server, client.call(f"s_{tool}"), name="s")
            assert broken.situation == BROKE_PROTOCOL
            assert slow.text == "slept"
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
        assert await gateway.counted("protocol_errors", "s") == 1


@pytest.mark.parametrize("tool", ["unreadable", "wrong_id", "string_id"])
async def test_an_answer_that_names_no_call_is_ignored_until_the_deadline(tmp_path: Path, tool: str) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(timeout=2)) as gateway:
        async with gateway.client() as client:
            ignored, slow = await beside_a_slow_call(client, server, client.call(f"s_{tool}"), name="s")
            assert ignored.situation == TIMED_OUT
            assert slow.text == "slept"
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
        counter = "noise_lines" if tool == "unreadable" else "unmatched_answers"
        assert await gateway.counted(counter, "s") == 1


async def test_an_answer_with_two_ids_goes_to_nobody(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(timeout=2)) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_duplicate_keys")).situation in {BROKE_PROTOCOL, TIMED_OUT}
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


@pytest.mark.parametrize(
    ("tool", "text"), [("twice", "first"), ("wrong_then_right", "right"), ("id_last", '"id":1'), ("noise", "quiet")]
)
async def test_an_answer_among_strays_is_found(tmp_path: Path, tool: str, text: str) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            for _ in range(3):
                assert (await client.call(f"s_{tool}")).text == text
                assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_banners_and_blank_lines_are_ignored(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path, faults=["banner"])
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
            assert (await client.call("s_noise")).text == "quiet"
        assert await gateway.counted("noise_lines", "s") > 0


async def test_notifications_between_do_not_disturb_the_answer(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            answer = await client.call("s_notes", meta={"progressToken": "mine"})
            assert answer.text == "noted"
            assert not [notice for notice in answer.notices if notice["method"] == "notifications/progress"]


# Size and flow --------------------------------------------------------------------------------------------------------


async def test_an_answer_over_the_limit_is_refused_and_the_server_is_usable_again(tmp_path: Path) -> None:
    server, good = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(), good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_huge")).situation == ANSWER_TOO_LARGE
            await works_again(client, "s")
            assert (await client.call("good_echo", {"a": 1})).structured == {"a": 1}


async def test_an_answer_over_the_limit_whose_id_comes_last_is_refused_too(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_huge_id_last")).situation in {ANSWER_TOO_LARGE, LOST}
            await works_again(client, "s")


async def test_an_answer_just_under_the_limit_arrives_whole(tmp_path: Path) -> None:
    server, _ = faulty_and_good(tmp_path)
    size = 15 * 1024 * 1024
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert len((await client.call("s_blob", {"bytes": size})).text) == size


@pytest.mark.parametrize("faults", [["stderr_flood"], []], ids=["at start", "in a call"])
async def test_a_flood_on_stderr_blocks_nothing(tmp_path: Path, faults: list[str]) -> None:
    server, _ = faulty_and_good(tmp_path, faults=faults)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_stderr_flood")).text == "flooded"
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


JUNK = "import os\nwhile True: os.write(1, b'x\\n' * 30000)\n"


async def test_a_server_that_prints_without_end_holds_up_nobody_else(tmp_path: Path) -> None:
    good = StdioFaults(tmp_path, "good")
    junk = {"junk": {"kind": "mcp_stdio", "command": sys.executable, "args": ["-c", JUNK], "start_timeout": 60}}
    with Gateway(tmp_path, junk, good.entry(timeout=5)) as gateway:
        async with gateway.client() as client:
            for number in range(100):
                assert (await client.call("good_echo", {"n": number})).structured == {"n": number}


@pytest.mark.slow
async def test_a_server_that_stops_reading_holds_up_nobody_else(tmp_path: Path) -> None:
    server, good = faulty_and_good(tmp_path)
    with Gateway(tmp_path, server.entry(timeout=3), good.entry()) as gateway:
        async with gateway.client() as client:
            assert (await client.call("s_deaf")).text == "deaf now"
            big = {"x": "x" * 1_000_000}
            stuck = [asyncio.ensure_future(client.call("s_echo", big)) for _ in range(8)]
            for number in range(20):
                assert (await client.call("good_echo", {"n": number})).structured == {"n": number}
            allowed = {TIMED_OUT, TIMED_OUT_UNSENT, QUEUE_FULL, LOST, *NOT_STARTED}
            assert {answer.situation for answer in await all_of(stuck)} <= allowed


@pytest.mark.parametrize("options", [{"faults": ["slicer"]}, {"latency": [0.3, 0.2]}], ids=["slicer", "latency"])
async def test_a_slow_wire_is_no_fault(tmp_path: Path, options: dict[str, Any]) -> None:
    server, _ = faulty_and_good(tmp_path, **options)
    with Gateway(tmp_path, server.entry()) as gateway:
        async with gateway.client() as client:
            answers = await all_of(client.call("s_echo", {"n": number}) for number in range(4))
            assert [answer.structured["n"] for answer in answers] == [0, 1, 2, 3]


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
