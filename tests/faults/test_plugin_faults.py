"""Plugins that crash, hang, lie or disconnect: what callers get, and that other calls are unaffected."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.plugin_rig import FaultyPlugin, House, ended, housed, problem, text, value
from tests.support.servers import kill
from tests.support.waiting import at_most, until

from trunkline.core.call import Call, Result
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    DEADLINE,
    REQUEST_TOO_LARGE,
    SOURCE_DOWN,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
)
from trunkline.router.status import server_statuses
from trunkline.runtime import server_lifecycle
from trunkline.sdk.plugin_v1 import Operation, OperationInput, encode_operations


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def works_again(house: House) -> None:
    """Nothing is lost from now on: a call works, or was not sent."""

    async def answers() -> bool:
        outcome = await house.call("echo", {"text": "again"})
        assert isinstance(outcome, Result) or problem(outcome).executed == "no", outcome
        return isinstance(outcome, Result)

    await until(answers, "it works again", 30)


# Starting -------------------------------------------------------------------------------------------------------------


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "exits": ({"exit": 1, "stderr": "no licence\n"}, "exited with status 1 before it said where it listens"),
    "go_plugin_2": ({"handshake": "2|1|unix|{socket}|grpc|"}, "go-plugin version `2`"),
    "protocol_7": ({"handshake": "1|7|unix|{socket}|grpc|"}, "version `7` of the plugin protocol"),
    "netrpc": ({"handshake": "1|1|unix|{socket}|netrpc|"}, "it speaks `netrpc`"),
    "short": ({"handshake": "1|1|unix|{socket}"}, "it speaks `netrpc`"),
    "certificate": ({"handshake": "1|1|unix|{socket}|grpc|MIIB"}, "sent a certificate"),
    "anywhere": ({"handshake": "1|1|tcp|0.0.0.0:{port}|grpc|"}, "where other machines could reach it"),
    "nowhere": ({"handshake": "1|1|unix|{folder}/nothing|grpc|"}, "is not there"),
    "pipe": ({"handshake": "1|1|pipe|{socket}|grpc|"}, "unknown network `pipe`"),
    "long": ({"handshake": "1|1|tcp|10.0.0.1" + "0" * 60_000 + ":1|grpc|"}, "is not an address"),
    "no_info": ({"mute": ["GetInfo"]}, "its `GetInfo` failed: gRPC status OK: there is no message in the answer"),
    "no_list": ({"mute": ["ListOperations"]}, "its `ListOperations` failed: gRPC status OK: there is no message"),
    "no_init": ({"init": "fail"}, "its `Init` failed: gRPC status UNKNOWN: plugin init failed: [31mno licence"),
    "no_service": ({"missing": ["plugin.v1.PluginService"]}, "its `GetInfo` failed: gRPC status UNIMPLEMENTED"),
    "bad_info": (
        {"info": b64(b"\x0a\x05abc")},
        "its answer to `GetInfo` cannot be read: it ends in the middle of a field",
    ),
    "bad_list": ({"operations": b64(b"\x0a\x01\xff")}, "its answer to `ListOperations` cannot be read"),
}
SLOW: dict[str, tuple[dict[str, Any], str]] = {
    "silent": ({"handshake": ""}, f"not ready after {at_most(10):g} s: waited for the line on stdout"),
    "hanging": ({"init": "hang"}, f"not ready after {at_most(10):g} s: waited for `Init`"),
}


@pytest.mark.parametrize(("plugins", "seconds"), [(UNUSABLE, 60), (SLOW, 10)], ids=["unusable", "slow"])
async def test_those_that_cannot_be_used_are_down_with_the_reason_and_others_are_not(
    tmp_path: Path, plugins: dict[str, tuple[dict[str, Any], str]], seconds: float
) -> None:
    bad = [FaultyPlugin(tmp_path, name, **options) for name, (options, _) in plugins.items()]
    entries = [plugin.entry(start_timeout=at_most(seconds)) for plugin in bad]
    async with housed(tmp_path, *entries, FaultyPlugin(tmp_path, "good").entry()) as house:
        await house.is_in("ready", "good")
        for name, (_, words) in plugins.items():
            reasons = await until(lambda name=name: reasons_of(house, name), f"{name} is down", 30)
            assert words in reasons[0], name
            assert problem(await house.call("echo", source=name)).executed == "no", name
            assert text(await house.call("echo", {"text": "hi"}, source="good")) == "hi"


def reasons_of(house: House, name: str) -> list[str]:
    """Why it was down, each time so far: it is tried again meanwhile."""
    return [health.reason for source, health in house.healths if source == name and health.state == "down"]


async def test_last_words_of_one_that_ended_are_shown(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path, exit=4, stderr="the disk is full\n").entry()) as house:
        health = await house.is_in("down")
        assert health.stderr_tail == "the disk is full"
        assert "the disk is full" in health.hint


async def test_what_is_printed_before_the_handshake_is_passed_over_and_counted(tmp_path: Path) -> None:
    banner = ["", "Welcome!", "12|what is this", "x" * 100_000]
    async with housed(tmp_path, FaultyPlugin(tmp_path, before=banner).entry()) as house:
        await house.is_in("ready")
        assert house.counts["noise_lines"] == 3  # an empty line is none


@pytest.mark.law
async def test_a_socket_elsewhere_is_used_only_if_nobody_else_can_use_it(tmp_path: Path) -> None:
    private = FaultyPlugin(tmp_path, socket_folder=str(tmp_path))
    async with housed(tmp_path, private.entry()) as house:
        await house.is_in("ready")
    public = FaultyPlugin(tmp_path, "q", socket_folder=str(tmp_path), socket_mode=0o777)
    (tmp_path / "plugin").unlink(missing_ok=True)
    async with housed(tmp_path, public.entry()) as house:
        assert "other users could use its socket" in (await house.is_in("down", "q")).reason


async def test_one_that_listens_on_loopback_is_used(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path, handshake="1|1|tcp|127.0.0.1:{port}|grpc|").entry()) as house:
        await house.is_in("ready")
        assert text(await house.call("echo", {"text": "over tcp"})) == "over tcp"


async def test_operations_that_cannot_be_mapped_are_left_out_loudly_and_the_others_work(tmp_path: Path) -> None:
    bad = Operation("since", "", (OperationInput("day", "date\x1b[2J"),))
    listed = b64(encode_operations([Operation("echo", "Give it back"), bad]))
    async with housed(tmp_path, FaultyPlugin(tmp_path, operations=listed).entry()) as house:
        health = await house.is_in("degraded")
        assert (
            "TL211: the operation `since` is not offered: its input `day` has the unknown type `date[2J`"
            in health.reason
        )
        assert any(note.startswith("warning: TL211: the operation `since`") for note in house.notes)
        status = next(status for status in server_statuses(house.gateway.router) if status.name == "p")
        assert len(status.warnings) == 1
        assert text(await house.call("echo", {"text": "hi"})) == "hi"


async def test_all_operations_that_are_left_out_are_counted(tmp_path: Path) -> None:
    listed = b64(
        encode_operations([Operation(f"bad{number}", "", (OperationInput("x", "?"),)) for number in range(50)])
    )
    async with housed(tmp_path, FaultyPlugin(tmp_path, operations=listed).entry()) as house:
        assert (await house.is_in("degraded")).reason == "50 operations are not offered"


# Calls ----------------------------------------------------------------------------------------------------------------


async def test_one_that_hangs_is_ended_at_its_deadline_and_its_context_cancelled(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry(timeout=at_most(2))) as house:
        await house.is_in("ready")
        late = problem(await house.call("hang"))
        assert (late.code, late.executed) == (DEADLINE, "unknown")
        await plugin.wait_for("cancelled", tool="hang")
        assert text(await house.call("echo", {"text": "fine"})) == "fine"


@pytest.mark.law
async def test_a_crash_fails_all_calls_in_flight_and_the_next_one_works(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        others = [house.begin("hang") for _ in range(5)]
        await plugin.wait_for("call", 5, tool="hang")
        for call in (house.begin("crash"), *others):
            lost = problem(await ended(call))
            assert (lost.code, lost.executed) == (SOURCE_LOST, "unknown")
        await works_again(house)
        assert len(plugin.calls("crash")) == 1
        assert house.health().restarts == 1
        assert "about to die" in house.health().stderr_tail


async def test_an_answer_that_breaks_off_in_the_middle_is_lost_and_the_plugin_stays(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        lost = problem(await house.call("half"))
        assert (lost.code, lost.executed) == (SOURCE_LOST, "unknown")
        await works_again(house)
        assert house.health().restarts == 0
        assert len(plugin.events("start")) == 1


@pytest.mark.law
async def test_calls_after_a_lost_connection_go_over_the_next_one(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        for _ in range(20):
            calls: list[Call] = []

            def call_ten_times(lost: Call, calls: list[Call] = calls) -> None:
                calls += [house.begin("echo", {"text": f"n{n}"}) for n in range(10)]

            waiting = house.begin("hang", reply=call_ten_times)
            await house.call("drop")
            assert problem(await ended(waiting)).code is SOURCE_LOST
            assert [text(await ended(call)) for call in calls] == [f"n{n}" for n in range(10)]
        assert len(plugin.events("start")) == 1


async def test_one_that_calls_itself_unavailable_is_still_called(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path, health=-1)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        for _ in range(2):
            assert problem(await house.call("status", {"code": "UNAVAILABLE"})).code is SOURCE_LOST
            assert text(await house.call("echo", {"text": "fine"})) == "fine"
        assert len(plugin.events("start")) == 1


BAD_VALUES = {
    "no JSON": b"{nope",
    "two values": b'1,"x":2',
    "not UTF-8": b'"\xff"',
    "NaN": b"NaN",
    "nothing": b"",
    "too deep": b"[" * 100_000 + b"]" * 100_000,
}


async def test_a_value_that_is_no_json_fails_that_call_alone(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        await house.is_in("ready")
        for what, raw in BAD_VALUES.items():
            bad, good = house.begin("data", {"data": {"key": b64(raw)}}), house.begin("echo", {"text": "fine"})
            broken = problem(await ended(bad))
            assert (broken.code, broken.executed) == (SOURCE_PROTOCOL, "unknown"), what
            assert "`key`" in broken.message
            assert text(await ended(good)) == "fine"
        assert house.health().state == "ready"


async def test_an_answer_that_is_no_message_fails_that_call_alone(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        await house.is_in("ready")
        for raw in (b"\x0a\x05abc", b"\x12\x01\xff", b"\xff" * 20):
            broken = problem(await house.call("garbage", {"bytes": b64(raw)}))
            assert (broken.code, broken.executed) == (SOURCE_PROTOCOL, "unknown")
            assert text(await house.call("echo", {"text": "fine"})) == "fine"


STATUSES = {
    "INTERNAL": SOURCE_PROTOCOL,
    "UNKNOWN": SOURCE_PROTOCOL,
    "UNIMPLEMENTED": SOURCE_PROTOCOL,
    "CANCELLED": SOURCE_PROTOCOL,
    "PERMISSION_DENIED": SOURCE_PROTOCOL,
    "UNAVAILABLE": SOURCE_LOST,
    "RESOURCE_EXHAUSTED": ANSWER_TOO_LARGE,
    "DEADLINE_EXCEEDED": DEADLINE,
}


async def test_a_status_is_told_with_the_plugins_words(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        await house.is_in("ready")
        details = "its reason \x1b[2J" + "x" * 4000
        for status, code in STATUSES.items():
            failed = problem(await house.call("status", {"code": status, "details": details}))
            assert (failed.code, failed.executed) == (code, "unknown")
            assert f"gRPC status {status}: its reason [2Jxxx" in failed.message
            assert len(failed.message) < 2300


async def test_messages_over_the_limit_are_refused_and_the_plugin_goes_on(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry(), limits={"message_bytes": 1 << 20}) as house:
        await house.is_in("ready")
        assert len(text(await house.call("big", {"size": 1_000_000}))) == 1_000_000
        large = problem(await house.call("big", {"size": 2_000_000}))
        assert (large.code, large.executed) == (ANSWER_TOO_LARGE, "unknown")
        calls = len(plugin.calls())
        unsent = problem(await house.call("echo", {"text": "x" * 2_000_000}))
        assert (unsent.code, unsent.executed) == (REQUEST_TOO_LARGE, "no")
        assert text(await house.call("echo", {"text": "fine"})) == "fine"
        assert len(plugin.calls()) == calls + 1
        assert len(plugin.events("start")) == 1


async def test_a_failure_is_a_result_with_its_words(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
        await house.is_in("ready")
        failed = value(await house.call("fail"))
        assert failed == {"content": [{"type": "text", "text": "it did not work"}], "isError": True}


async def test_what_a_plugin_writes_never_blocks_it(tmp_path: Path) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path, stderr_bytes=1_000_000).entry()) as house:
        await house.is_in("ready")
        assert text(await house.call("noise")) == "made noise"  # ten megabytes each on stdout and stderr
        assert text(await house.call("echo", {"text": "fine"})) == "fine"


async def test_an_answer_without_a_message_is_said_at_once(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path, mute=["Execute"])
    async with housed(tmp_path, plugin.entry()) as house:
        failure = problem(await house.call("echo"))
        assert (failure.code, failure.executed) == (SOURCE_PROTOCOL, "unknown")
        assert "there is no message in the answer" in failure.message


@pytest.mark.parametrize("habit", ["slice", "latency"])
async def test_bytes_that_come_slowly_or_one_by_one_are_fine(tmp_path: Path, habit: str) -> None:
    async with housed(tmp_path, FaultyPlugin(tmp_path, proxy=habit).entry()) as house:
        await house.is_in("ready")
        calls = [house.begin("echo", {"text": f"{n}" * 50}) for n in range(5)]
        assert [text(await ended(call)) for call in calls] == [f"{n}" * 50 for n in range(5)]


async def test_one_that_stops_reading_holds_up_nobody_else(tmp_path: Path) -> None:
    deaf, good = FaultyPlugin(tmp_path), FaultyPlugin(tmp_path, "good")
    async with housed(tmp_path, deaf.entry(timeout=at_most(1)), good.entry()) as house:
        await house.is_in("ready")
        await house.is_in("ready", "good")
        await house.call("deaf")
        stuck = [house.begin("echo", {"text": "x" * 100_000}) for _ in range(20)]
        assert text(await house.call("echo", {"text": "hi"}, source="good")) == "hi"
        for call in stuck:
            assert problem(await ended(call)).code is DEADLINE


# Life and death -------------------------------------------------------------------------------------------------------


async def test_one_that_is_killed_while_idle_is_started_again(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        kill(plugin.pids()[0])
        await plugin.wait_for("start", 2)
        await house.is_in("ready")
        assert house.health().restarts == 1
        assert text(await house.call("echo", {"text": "back"})) == "back"


@pytest.mark.law
async def test_it_is_asked_to_end_and_ended_if_it_does_not(tmp_path: Path) -> None:
    polite, rude = FaultyPlugin(tmp_path), FaultyPlugin(tmp_path, "rude", term="ignore")
    async with housed(tmp_path, polite.entry(), rude.entry()) as house:
        await house.is_in("ready")
        await house.is_in("ready", "rude")
    for plugin in (polite, rude):
        assert len(plugin.events("shutdown")) == len(plugin.events("controller_shutdown")) == 1
        assert plugin.pids() == []
    assert polite.events("end") and not rude.events("end")


async def test_what_it_prints_by_go_plugins_service_is_kept(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path, prints="printed after the handshake")
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        await plugin.wait_for("stdio")
        await house.call("crash")
        await until(lambda: "printed after the handshake" in house.health().stderr_tail, "it is in its last words")


async def test_one_that_works_between_crashes_is_back_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lifecycle.random, "uniform", lambda low, high: high)  # no wait is short by luck
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")
        for _ in range(server_lifecycle.AT_ONCE):
            assert problem(await house.call("crash")).code is SOURCE_LOST
            assert text(await house.call("echo", {"text": "back"})) == "back"


async def test_a_crash_loop_ends_in_down_and_calls_are_refused_at_once(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path)
    async with housed(tmp_path, plugin.entry()) as house:
        await house.is_in("ready")

        async def crash() -> bool:
            await house.call("crash")
            return house.health().state == "down"

        await until(crash, "it is given a rest", 40)
        refused = problem(await house.call("echo"))
        assert (refused.code, refused.executed) == (SOURCE_DOWN, "no")


@pytest.mark.law
async def test_its_private_folder_is_private_and_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as place:  # a longer path would not be used
        monkeypatch.setattr("tempfile.tempdir", place)
        async with housed(tmp_path, FaultyPlugin(tmp_path).entry()) as house:
            await house.is_in("ready")
            (folder,) = Path(place).iterdir()
            assert folder.stat().st_mode & 0o777 == 0o700
        assert list(Path(place).iterdir()) == []


@pytest.mark.law
async def test_cancelled_while_it_starts_it_leaves_nothing(tmp_path: Path) -> None:
    plugin = FaultyPlugin(tmp_path, init="hang")
    async with housed(tmp_path, plugin.entry()):
        await plugin.wait_for("init")
    assert plugin.pids() == []
