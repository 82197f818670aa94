from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.router.fakes import OK, RouterRig, full_snapshot, problem_of, tools_snapshot
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Call, Caller, Request
from trunkline.core.errors import (
    DEADLINE,
    DRAINING,
    NAME_COLLISION,
    PARSE_ERROR,
    QUEUE_FULL,
    SOURCE_DISABLED,
    SOURCE_DOWN,
    UNKNOWN_TOOL,
    Phase,
)
from trunkline.core.events import LogEvent
from trunkline.router.catalog import Catalog
from trunkline.router.options import NameRules
from trunkline.router.router import tool_params

Scene = Callable[[Callable[..., RouterRig]], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Runs a scene under a clock that needs no waiting; `rig` makes a router in it."""

    def run(scene: Scene) -> None:
        rigs: list[RouterRig] = []

        def rig(**options: Any) -> RouterRig:
            rigs.append(RouterRig(tmp_path, **options))
            return rigs[-1]

        async def main() -> None:
            await scene(rig)
            for made in rigs:
                made.router.registry.close()

        run_with_clock(monkeypatch, main())

    return run


class Wire:
    """What has a call in the fakes' stead, so that it counts as sent."""

    def __init__(self, phase: Phase = "sent") -> None:
        self.phase = phase
        self.abandoned: list[Request] = []

    def abandon(self, request: Request) -> None:
        self.abandoned.append(request)

    def phase_of(self, request: Request) -> Phase:
        return self.phase


def sends(call: Call) -> Wire:
    wire = Wire()
    call.upstream = wire
    return wire


# One call ------------------------------------------------------------------------------------------------------------


def test_a_call_goes_to_its_source_under_the_servers_own_name(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        source = here.add("s", "a.b")
        call = here.call("s_a_b", {"name": "s_a_b", "arguments": {"x": 1}, "_meta": {"y": 2}, "extra": [1]})
        assert source.held == [call]
        assert bytes(call.params) == b'{"name":"a.b","arguments":{"x":1},"extra":[1]}'
        assert (call.source, call.tool, call.method) == ("s", "a.b", "tools/call")
        call.finish(OK)
        assert here.replies == [call]
        assert here.ended == [call]

    play(scene)


def test_an_answer_before_the_call_returns_is_delivered_once(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t").on_submit = lambda call: call.finish(OK) and None
        call = here.call("s_t")
        assert call.done
        assert here.replies == [call]
        await asyncio.sleep(100)
        assert here.replies == [call]
        assert here.ended == [call]

    play(scene)


def test_an_unknown_tool_is_refused_at_once(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t")
        for name, why in (
            ("s_nothing", ""),
            ("nothing", ""),
            ("else.t", " (no server `else`)"),
            ("trunkline.else.t", " (no server `else`)"),
            ("", ""),
        ):
            problem = problem_of(here.call(name))
            assert (problem.code, problem.message) == (UNKNOWN_TOOL, f"Unknown tool: {name}{why}")
            assert problem.executed == "no", name

    play(scene)


def test_a_reply_that_fails_is_noted_and_hurts_nobody_else(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        notes: list[LogEvent] = []
        here.events.noted.append(notes.append)
        source = here.add("s", "t")

        def broken(call: Call) -> None:
            raise ValueError("a bug")

        call = here.call("s_t", reply=broken)
        other = here.call("s_t")
        call.finish(OK)
        other.finish(OK)
        assert here.ended == [call, other]
        assert here.router.in_flight == 0
        assert source.held == [call, other]
        assert any("a bug" in note.message for note in notes)

    play(scene)


def test_arguments_too_deep_to_be_written_on_one_line_are_refused(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        sources = {"starting": here.add("starting", state="starting"), "ready": here.add("ready", "t")}
        deep = {"arguments": msgspec.Raw(b"{\n}"), "x": msgspec.Raw(b"\n" + b"[" * 5000 + b"]" * 5000)}
        for name, source in sources.items():
            call = here.router.call_tool(Caller(), f"{name}_t", deep, here.replies.append)
            other = here.call(f"{name}_t")
            here.publish(name, "t")
            here.health(name, "ready")
            assert (problem_of(call).code, problem_of(call).executed) == (PARSE_ERROR, "no"), name
            assert source.held == [other], name

    play(scene)


# Waiting -------------------------------------------------------------------------------------------------------------


def test_a_known_tool_of_a_starting_server_waits_for_it(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        source = here.add("s", "t", state="starting")
        call = here.call("s_t")
        await asyncio.sleep(30)
        assert not call.done
        here.health("s", "ready")
        assert source.held == [call]
        call.finish(OK)

    play(scene)


def test_a_name_of_a_server_that_has_not_said_what_it_offers_waits(play: Callable[[Scene], None]) -> None:
    names = ("s_t", "s.t", "s:t", "s__t", "trunkline.s_t")

    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig(in_flight_per_source=len(names), queue_per_source=len(names))
        source = here.add("s", state="starting")
        calls = {name: here.call(name) for name in names}
        await asyncio.sleep(30)
        assert not [name for name, call in calls.items() if call.done]
        here.publish("s", "t")
        here.health("s", "ready")
        assert source.held == list(calls.values())
        for call in source.held:
            call.finish(OK)

    play(scene)


def test_a_name_that_turns_out_to_be_unknown_is_refused_then(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", state="starting")
        call = here.call("s_t")
        here.publish("s", "other")
        assert problem_of(call).code is UNKNOWN_TOOL

    play(scene)


def test_a_call_that_is_taken_back_while_its_name_is_unknown_is_let_go(play: Callable[[Scene], None]) -> None:
    class Watched(dict):
        """Parameters with weak references."""

    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", state="starting")
        members = Watched(arguments=msgspec.Raw(b"{}"))
        call = here.router.call_tool(Caller(), "s_t", members, lambda _: None)
        kept = weakref.ref(members)
        del members
        gc.collect()
        assert kept() is not None
        call.cancel("not needed any more")
        gc.collect()
        assert kept() is None

    play(scene)


def test_a_name_no_starting_server_can_have_does_not_wait(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", state="starting")
        assert problem_of(here.call("u_t")).code is UNKNOWN_TOOL

    play(scene)


def test_a_server_that_fails_to_start_refuses_the_calls_that_waited_for_it(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", state="starting")
        calls = [here.call("s_t"), here.call("s.u")]
        here.health("s", "down", "no such file")
        for call in [*calls, here.call("s_t")]:
            problem = problem_of(call)
            assert problem.code is SOURCE_DOWN
            assert problem.message == "Server s is down: no such file"
            assert (problem.source, problem.executed) == ("s", "no")

    play(scene)


def test_the_wait_for_a_server_counts_towards_the_tools_own_deadline(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        source = here.add("s", state="starting", timeout_s=60.0, timeouts_s={"slow": 300.0, "quick": 5.0})
        slow, quick = here.call("s_slow"), here.call("s_quick")
        await asyncio.sleep(50)
        here.publish("s", "slow", "quick")
        here.health("s", "ready")
        assert (problem_of(quick).code, problem_of(quick).executed) == (DEADLINE, "no")
        assert source.held == [slow]
        await asyncio.sleep(245)
        assert not slow.done
        await asyncio.sleep(6)
        assert "after 300 seconds" in problem_of(slow).message

    play(scene)


def test_a_waiting_call_passes_its_deadline_unexecuted(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t", state="starting", timeout_s=7.0)
        here.add("u", state="starting", timeout_s=9.0)
        known, unknown = here.call("s_t"), here.call("u_t")
        await asyncio.sleep(10)
        for call, seconds in ((known, 7), (unknown, 9)):
            problem = problem_of(call)
            assert problem.code is DEADLINE
            assert problem.message == f"Tool execution timed out after {seconds} seconds"
            assert (problem.phase, problem.executed, problem.retryable) == ("queued", "no", True)
        here.publish("u", "t")
        here.health("u", "ready")
        assert here.sources["u"].held == []

    play(scene)


def test_more_calls_than_may_wait_are_refused(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig(queue_per_source=2)
        here.add("s", "t", state="starting")
        calls = [here.call("s_t") for _ in range(3)]
        assert [call.done for call in calls] == [False, False, True]
        assert problem_of(calls[2]).code is QUEUE_FULL
        for call in calls:
            call.cancel("the end")

    play(scene)


def test_a_disabled_server_refuses_by_name(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", state=None, enabled=False)
        problem = problem_of(here.call("s_t"))
        assert (problem.code, problem.source) == (SOURCE_DISABLED, "s")
        assert "configuration" in problem.message

    play(scene)


def test_draining_refuses_what_waits_and_what_comes_whatever_its_name(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t", state="starting")
        here.add("u", state="starting")
        running = here.add("r", "t")
        in_flight = here.call("r_t")
        waiting = [here.call("s_t"), here.call("u_anything"), here.call("u.x")]
        here.router.drain()
        later = [here.call("s_t"), here.call("u_anything"), here.call("r_t")]
        assert {problem_of(call).code for call in waiting + later} == {DRAINING}
        assert running.held == [in_flight]
        assert not in_flight.done
        in_flight.finish(OK)
        assert here.router.in_flight == 0

    play(scene)


# Deadlines -----------------------------------------------------------------------------------------------------------


def test_a_sent_call_that_passes_its_deadline_may_have_run_and_is_abandoned(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t", timeouts_s={"t": 2.5})
        call = here.call("s_t")
        wire = sends(call)
        await asyncio.sleep(3)
        problem = problem_of(call)
        assert problem.message == "Tool execution timed out after 2.5 seconds"
        assert (problem.phase, problem.executed, problem.retryable) == ("sent", "unknown", False)
        assert wire.abandoned == [call]
        assert not call.finish(OK)
        assert here.replies == [call]

    play(scene)


def test_progress_extends_a_call_but_not_past_its_absolute_end(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig(call_s=100.0)
        here.add("s", "t", timeout_s=10.0)
        seen: list[tuple[str, Any]] = []
        call = here.call("s_t", on_notification=lambda method, params: seen.append((method, params)))
        sends(call)
        assert call.wants_progress
        assert call.on_notification is not None
        for step in range(11):
            await asyncio.sleep(9)
            assert not call.done, f"ended after {step}"
            call.notify("notifications/progress", b"{}")
        assert len(seen) == 11
        await asyncio.sleep(0.9)
        assert not call.done
        await asyncio.sleep(0.2)
        assert "after 100 seconds" in problem_of(call).message

    play(scene)


def test_a_call_whose_progress_stops_ends_one_timeout_later(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t", timeout_s=10.0)
        call = here.call("s_t", on_notification=lambda method, params: None)
        sends(call)
        assert call.on_notification is not None
        await asyncio.sleep(8)
        call.notify("notifications/progress", b"{}")
        await asyncio.sleep(9)
        assert not call.done
        await asyncio.sleep(2)
        assert "after 18 seconds" in problem_of(call).message

    play(scene)


def test_an_answered_call_leaves_no_timer_behind(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t")
        call = here.call("s_t")
        call.finish(OK)
        await asyncio.sleep(1000)
        assert call.outcome is OK
        assert here.replies == [call]

    play(scene)


# Lists ---------------------------------------------------------------------------------------------------------------


def listed_after(here: RouterRig) -> list[float]:
    times: list[float] = []
    loop = asyncio.get_running_loop()
    start = loop.time()
    here.router.when_published(lambda: times.append(round(loop.time() - start, 3)))
    return times


def test_a_first_list_waits_for_servers_that_are_not_known_but_not_for_long(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig(start_wait_s=1.5)
        here.add("s", state="starting")
        first, second = listed_after(here), listed_after(here)
        await asyncio.sleep(1.4)
        assert first == []
        await asyncio.sleep(5)
        assert (first, second) == ([1.5], [1.5])
        assert listed_after(here) == [0]

    play(scene)


def test_a_list_comes_as_soon_as_every_server_has_been_heard_of(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", state="starting")
        here.add("u", state="starting")
        here.add("off", state=None, enabled=False)
        times = listed_after(here)
        here.publish("s", "t")
        assert times == []
        here.health("u", "down", "gone")
        assert times == [0]
        await asyncio.sleep(10)
        assert times == [0]

    play(scene)


def test_cached_definitions_are_listed_at_once(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        earlier = rig()
        earlier.add("s", "t", fingerprint="one")
        here = rig()
        here.add("s", state="starting", fingerprint="one")
        assert listed_after(here) == [0]
        assert b'"s_t"' in here.router.catalog.listing
        assert not here.call("s_t").done
        other = rig()
        other.add("s", state="starting", fingerprint="another")
        assert listed_after(other) == []
        assert other.router.catalog.listing == b"[]"

    play(scene)


def test_a_disabled_server_shows_nothing_even_if_it_is_cached(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        rig().add("s", "t", fingerprint="one")
        here = rig()
        here.add("s", state=None, enabled=False, fingerprint="one")
        assert here.router.catalog.listing == b"[]"

    play(scene)


def test_tools_of_a_lost_server_stay_listed_for_its_grace_period(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t", grace_s=60.0)
        here.health("s", "starting", "lost")
        await asyncio.sleep(30)
        here.health("s", "down", "still")
        await asyncio.sleep(29)
        assert b'"s_t"' in here.router.catalog.listing
        await asyncio.sleep(2)
        assert here.router.catalog.listing == b"[]"
        assert problem_of(here.call("s_t")).code is SOURCE_DOWN
        here.health("s", "ready")
        assert b'"s_t"' in here.router.catalog.listing
        await asyncio.sleep(200)
        assert b'"s_t"' in here.router.catalog.listing

    play(scene)


def test_a_server_that_is_back_within_the_grace_period_never_left_the_list(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        here.add("s", "t", grace_s=60.0)
        for _ in range(5):
            here.health("s", "down", "flaps")
            await asyncio.sleep(50)
            assert b'"s_t"' in here.router.catalog.listing
            here.health("s", "ready")
            await asyncio.sleep(50)
            assert b'"s_t"' in here.router.catalog.listing

    play(scene)


def test_changes_are_told_and_a_collision_is_noted_once(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        changes: list[int] = []
        notes: list[LogEvent] = []
        here.router.registry.on_list_changed.append(lambda: changes.append(1))
        here.events.noted.append(notes.append)
        here.add("a_b", "c")
        here.add("a", "b_c")
        assert changes
        here.router.report_collisions()
        here.publish("a", "b_c", "more")
        here.router.report_collisions()
        collisions = [note for note in notes if dict(note.fields).get("code") == NAME_COLLISION.id]
        assert len(collisions) == 1

    play(scene)


def test_a_prompt_and_a_resource_that_lose_their_names_are_noted_too(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        notes: list[LogEvent] = []
        here.events.noted.append(notes.append)
        for source, prompt in (("a_b", "c"), ("a", "b_c")):
            here.add(source)
            here.sinks[source].publish(full_snapshot(source, prompts=[prompt], resources=["x:1"]))
        here.router.report_collisions()
        assert sum(note.event == "names" for note in notes) == 2

    play(scene)


def test_a_state_dir_that_cannot_be_written_is_noted_and_nothing_else(
    play: Callable[[Scene], None], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")

    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = RouterRig(tmp_path / "file")
        notes: list[LogEvent] = []
        here.events.noted.append(notes.append)
        here.add("s", "t")
        assert [note.event for note in notes] == ["cache"]
        assert b'"s_t"' in here.router.catalog.listing

    play(scene)


def test_forgetting_a_session_reaches_every_source(play: Callable[[Scene], None]) -> None:
    async def scene(rig: Callable[..., RouterRig]) -> None:
        here = rig()
        sources = [here.add("a", "t"), here.add("b", "t", state="down")]
        here.router.registry.forget("session")
        assert [source.forgotten for source in sources] == [["session"], ["session"]]

    play(scene)


# Parameters for the source -------------------------------------------------------------------------------------------


def params_for(**members: bytes) -> bytes:
    catalog = Catalog("prefixed", 48, lambda: None)
    catalog.add_source("s", NameRules(prefix="s"))
    catalog.replace("s", tools_snapshot("s", "t"))
    entry = catalog.find("s_t")
    assert entry is not None
    return tool_params(entry, {name: msgspec.Raw(value) for name, value in members.items()})


def test_arguments_travel_byte_for_byte() -> None:
    odd = b'{"z":1.10,"a":1e400,"b":123456789012345678901234567890,"e":"\\u00e9\\/", "s" : [ ] }'
    assert params_for(name=b'"s_t"', arguments=odd) == b'{"name":"t","arguments":%b}' % odd


def test_line_breaks_between_tokens_do_not() -> None:
    assert params_for(arguments=b'{"a":\r\n[1,\n2.50]}', x=b"[\n]") == b'{"name":"t","arguments":{"a":[1,2.50]},"x":[]}'


def test_no_second_name_passes_in_another_spelling() -> None:
    assert params_for(name=b'"s_t"', Name=b'"other"', NAME=b"1", Arguments=b"{}", _Meta=b"{}") == b'{"name":"t"}'


def test_a_call_without_arguments_has_none() -> None:
    assert params_for() == b'{"name":"t"}'


@pytest.mark.parametrize("name", ["github_a", "github.a", "github:a", "gh_a", "trunkline.gh_a"])
async def test_a_server_that_never_told_its_tools_is_named_as_the_reason_whatever_its_prefix(
    tmp_path: Path, name: str
) -> None:
    rig = RouterRig(tmp_path)
    rig.add("github", state="down", rules=NameRules(prefix="gh"))
    assert problem_of(rig.call(name)).code is SOURCE_DOWN
    assert problem_of(rig.call("other_a")).code is UNKNOWN_TOOL
