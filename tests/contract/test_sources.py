"""The contract between MCP sources and the router, for every transport and protocol era."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

from tests.contract.stage import (
    NAME,
    VARIANTS,
    Variant,
    over,
    play,
    problem,
    received,
    staged,
    structured,
    value,
)
from tests.support.fault.tools import FANCY
from tests.support.waiting import until

from trunkline.core.call import RemoteError, Result
from trunkline.core.errors import DEADLINE, SOURCE_DOWN, SOURCE_LOST, UNKNOWN_TOOL
from trunkline.sources import KINDS

pytest_generate_tests = over("variant", VARIANTS)
ODD = b'{"z":1.10,"big":123456789012345678901234567890,"far":1e400,"u":"\\u00e9\xc3\xa9\\/","e":{},"n":[null, true]}'


def test_tools_are_offered_as_their_server_defined_them(tmp_path: Path, variant: Variant, loop: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            await stage.ready()
            assert FANCY.replace(b'"fancy"', b'"x_fancy"', 1) in stage.listing
            snapshot = stage.gateway.router.catalog.snapshot(NAME)
            assert snapshot is not None
            assert json.loads(snapshot.server_info)["name"] == "fault"
            assert snapshot.protocol_version == (
                "2026-07-28" if variant.modern else variant.options.get("version", "2025-06-18")
            )
            assert snapshot.warnings == ()
            assert stage.states == ["ready"]

    play(loop, scene())


def test_arguments_results_and_errors_pass_byte_for_byte(tmp_path: Path, variant: Variant, loop: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            request = received(await stage.call("wire", ODD, meta={"vendor/x": b"[1.50]"}))
            assert b'"arguments":' + ODD in request
            assert json.loads(request)["params"]["name"] == "wire"
            assert b'"vendor/x":[1.50]' in request
            outcome = await stage.call("verbatim", {"result": base64.b64encode(ODD).decode()})
            assert isinstance(outcome, Result)
            assert bytes(outcome.raw) == ODD
            refused = await stage.call("refuse")
            assert isinstance(refused, RemoteError)
            error = {"code": -32050, "message": "refused by the tool", "data": {"why": ["because", 1.5]}}
            assert json.loads(bytes(refused.raw)) == error
            assert value(await stage.call("fail"))["isError"] is True
            assert len(value(await stage.call("blob", {"bytes": 1_000_000}))["content"][0]["text"]) == 1_000_000
            assert problem(await stage.call("no_such_tool")).code is UNKNOWN_TOOL

    play(loop, scene())


def test_many_calls_are_in_flight_at_once_and_nobody_gets_anothers_answer(
    tmp_path: Path, variant: Variant, loop: str
) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            calls = [stage.start("nonce", {"nonce": f"n{n}", "delay": 0.01}, session=f"s{n % 3}") for n in range(60)]
            await until(lambda: all(call.done for call in calls), "all are answered", 30)
            for number, call in enumerate(calls):
                assert call.outcome is not None
                assert structured(call.outcome)["nonce"] == f"n{number}"
            assert sorted(nonce for step, nonce in stage.server.steps() if step == "done") == sorted(
                f"n{number}" for number in range(60)
            )

    play(loop, scene())


def test_progress_arrives_in_order_before_the_answer(tmp_path: Path, variant: Variant, loop: str) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            seen: list[float] = []
            outcome = await stage.call(
                "progress",
                {"steps": 4},
                on_notification=lambda _, params: seen.append(json.loads(bytes(params))["progress"]),
            )
            assert value(outcome)["content"][0]["text"] == "done"
            assert seen == [1, 2, 3, 4]
            assert value(await stage.call("progress", {"steps": 1}))["content"][0]["text"] == "done"

    play(loop, scene())


def test_a_call_nobody_waits_for_is_cancelled_at_the_server_and_no_other(
    tmp_path: Path, variant: Variant, loop: str
) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant, tools={"timeouts": {"hang": 0.5}}) as stage:
            await stage.call("echo")  # a server of this session's own is up, and its deadlines are the calls' alone
            slow = stage.start("gate", {"path": str(tmp_path / "gate")})
            cancelled = stage.start("sleep", {"seconds": 60})
            late = stage.start("hang")
            for tool in ("gate", "sleep"):
                await stage.server.wait_for("call", tool=tool)
            await stage.server.wait_for("call", tool="hang")
            cancelled.cancel("the caller left")
            await until(lambda: late.done, "the deadline is past")
            assert late.outcome is not None
            assert (problem(late.outcome).code, problem(late.outcome).executed) == (DEADLINE, "unknown")
            ids = {cancelled.upstream_id, late.upstream_id}
            if variant.modern and variant.transport == "http":
                await stage.server.wait_for("closed", count=2)
                assert {event["id"] for event in stage.server.events("closed")} == ids
            else:
                await stage.server.wait_for("cancelled", count=2)
                assert {event["requestId"] for event in stage.server.events("cancelled")} == ids
            assert not slow.done
            (tmp_path / "gate").touch()
            await until(lambda: slow.done, "the other one ends by itself")
            assert slow.outcome is not None
            assert value(slow.outcome)["content"][0]["text"] == "let through"
            assert stage.state == "ready"

    play(loop, scene())


def test_a_changed_list_is_followed(tmp_path: Path, variant: Variant, loop: str) -> None:
    quiet = variant.transport == "http" and (variant.modern or "no_get" in variant.options.get("faults", ()))

    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            await stage.ready()
            if variant.transport == "http" and not quiet:
                await until(lambda: any(e["method"] == "GET" for e in stage.server.events("request")), "it listens")
            await stage.call("grow", {"name": "newcomer"}, session=None)
            if quiet:
                return  # such a server has no way to tell; the one that has is in test_modern_list_changes.py
            await until(lambda: b'"x_newcomer"' in stage.listing, "the new tool is listed")
            assert structured(await stage.call("newcomer", {"a": 1}, session=None)) == {"a": 1}
            assert stage.states == ["ready"]

    play(loop, scene())


def test_a_killed_server_fails_what_it_had_and_works_again_once_it_is_back(
    tmp_path: Path, variant: Variant, loop: str
) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            await stage.ready()
            in_flight = [stage.start("hang", session=session) for session in (None, "one")]
            await stage.server.wait_for("call", count=2, tool="hang")
            stage.kill_server()
            await until(lambda: all(call.done for call in in_flight), "both are answered")
            for call in in_flight:
                assert call.outcome is not None
                assert (problem(call.outcome).code, problem(call.outcome).executed) == (SOURCE_LOST, "unknown")
            stage.start_server()

            async def answers() -> bool:
                outcomes = [await stage.call("echo", {"again": 1}, session=session) for session in (None, "one")]
                for outcome in outcomes:
                    assert isinstance(outcome, Result) or problem(outcome).executed == "no", "nothing is lost any more"
                return all(isinstance(outcome, Result) for outcome in outcomes)

            await until(answers, "it works again", 30)
            assert stage.server.calls("hang")[2:] == [], "what was lost is not tried again"
            await until(lambda: stage.state == "ready", "it is ready again")

    play(loop, scene())


def test_state_belongs_to_a_session_where_the_server_keeps_any(tmp_path: Path, variant: Variant, loop: str) -> None:
    shared = variant.modern or variant.keys.get("sessions") == "shared"

    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            for _ in range(2):
                await stage.call("counter", {"add": 1}, session="one")
            await stage.call("counter", {"add": 5}, session="two")
            counts = {name: structured(await stage.call("counter", session=name))["count"] for name in ("one", "two")}
            assert counts == ({"one": 7, "two": 7} if shared else {"one": 2, "two": 5})
            without = structured(await stage.call("counter", session=None))["count"]
            assert without == (7 if shared else 0)
            if shared:
                return
            stage.gateway.router.registry.forget("one")
            assert structured(await stage.call("counter", session="one"))["count"] == 0, "it begins anew"
            assert structured(await stage.call("counter", session="two"))["count"] == 5, "the other is untouched"
            if variant.transport == "http":
                await stage.server.wait_for("deleted")

    play(loop, scene())


def test_a_server_that_is_not_there_is_down_with_a_reason_until_it_is(
    tmp_path: Path, variant: Variant, loop: str
) -> None:
    async def scene() -> None:
        keys = {"command": str(tmp_path / "not-yet")} if variant.transport == "stdio" else {}
        async with staged(tmp_path, variant, up=False, **keys) as stage:
            early = stage.start("echo", {"early": 1})
            await until(lambda: stage.state == "down", "it is down")
            await until(lambda: early.done, "the call that waited is refused")
            assert early.outcome is not None
            refusal = problem(early.outcome)
            assert (refusal.code, refusal.executed, refusal.source) == (SOURCE_DOWN, "no", NAME)
            assert stage.healths[-1].reason
            if variant.transport == "stdio":
                program = tmp_path / "not-yet"
                program.write_text(f'#!/bin/sh\nexec {stage.server.command[0]} "$@"\n')
                program.chmod(0o755)
            else:
                stage.start_server()
            await stage.ready()
            assert structured(await stage.call("echo", {"late": 1})) == {"late": 1}

    play(loop, scene())


def test_ending_in_the_middle_of_everything_leaves_nothing_and_answers_everyone(
    tmp_path: Path, variant: Variant, loop: str
) -> None:
    async def scene() -> None:
        async with staged(tmp_path, variant) as stage:
            await stage.ready()
            calls = [stage.start("hang", session=session) for session in (None, "one", "two")]
            await stage.server.wait_for("call", count=3, tool="hang")
            calls += [stage.start("echo", session="three"), stage.start("not_known_yet")]
            await asyncio.sleep(0)
        assert all(call.done for call in calls)

    play(loop, scene())


def test_every_kind_that_speaks_mcp_has_a_part_in_this_suite() -> None:
    played = {"mcp_stdio" if variant.transport == "stdio" else "mcp_http" for variant in VARIANTS}
    assert played == {kind for kind in KINDS if kind.startswith("mcp_")}
