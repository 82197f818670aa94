from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.router.fakes import OK, FakeSource, RouterRig, problem_of
from tests.unit.router.virtual_clock import run_with_clock

from trunkline.core.call import Cached, Call, Caller, Failure, NeedsInput, Outcome, RemoteError, Result
from trunkline.core.errors import (
    CANCELLED,
    DEADLINE,
    DRAINING,
    SOURCE_AUTH_REQUIRED,
    SOURCE_DOWN,
    SOURCE_LOST,
    Problem,
)
from trunkline.core.server_request import ServerRequest
from trunkline.core.source import Health
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.mcp.methods import ROOTS_LIST
from trunkline.router.options import CacheRules, NameRules, SourceOptions
from trunkline.router.result_cache import LARGEST_BYTES

ALL = CacheRules(tools=("*",))
ALICE, BOB = Caller("alice"), Caller("bob")
LEGACY, MODERN = "2025-06-18", "2026-07-28"
DEEP = b"[" * 100_000 + b"]" * 100_000


def tool(name: str, annotations: Any = None, **more: Any) -> ToolDefinition:
    definition = {"name": name, **more} if annotations is None else {"name": name, "annotations": annotations, **more}
    return ToolDefinition("s", name, json.dumps(definition).encode())


TOOLS = (tool("read", {"readOnlyHint": True}), tool("look", {"readOnlyHint": True}), tool("write"))


class Server:
    """A router with one source that answers at once; `asked` holds the calls that reached it."""

    def __init__(self, folder: Path, rules: CacheRules | None = ALL, *, version: str = LEGACY, **options: Any) -> None:
        self.rig = RouterRig(folder, **options)
        self.asked: list[Call] = []
        self.outcome: Outcome = OK
        self.version = version
        self.source = self.rig.add("s", state=None, cache=rules)
        self.source.on_submit = self.answer
        self.publish(*TOOLS)
        self.rig.health("s", "ready")
        self.counts: dict[str, int] = {}
        self.rig.events.counted.append(self._count)

    def _count(self, counter: str, source: str, amount: int) -> None:
        assert source == "s"
        self.counts[counter] = self.counts.get(counter, 0) + amount

    def answer(self, call: Call) -> None:
        self.asked.append(call)
        call.finish(self.outcome)

    def hold(self) -> None:
        """Answer nothing by itself from now on; what comes is in `source.held`."""
        self.source.on_submit = self.source.held.append

    def publish(self, *tools: ToolDefinition, **more: Any) -> None:
        self.rig.sinks["s"].publish(Snapshot(tools=tools, protocol_version=self.version, **more))

    def call(self, name: str = "s_read", arguments: Any = None, *, caller: Caller = ALICE, **members: Any) -> Call:
        members = members if arguments is None else {"arguments": arguments, **members}
        return self.rig.call(name, members, caller=caller)

    def is_kept(self, name: str = "s_read", **keys: Any) -> bool:
        """Whether this call is answered without the server."""
        return type(self.call(name, **keys).outcome) is Cached


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Callable[[Path], Any]], None]:
    """Runs a scene under a clock that needs no waiting."""
    return lambda scene: run_with_clock(monkeypatch, scene(tmp_path))


def result(**members: Any) -> Result:
    return Result(json.dumps({"content": [], **members}).encode())


# Whose results are kept -------------------------------------------------------------------------------------------


async def test_nothing_is_kept_unless_the_configuration_says_so(tmp_path: Path) -> None:
    server = Server(tmp_path, rules=None)
    assert [type(server.call().outcome) for _ in range(3)] == [Result] * 3
    assert len(server.asked) == 3
    assert server.counts == {}


async def test_the_second_equal_call_is_answered_without_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.outcome = Result(b'{"content":[{"type":"text","text":"1.0"}], "x":12345678901234567890}')
    first, second = server.call(arguments={"a": 1}), server.call(arguments={"a": 1})
    assert server.asked == [first]
    assert isinstance(second.outcome, Cached)
    assert second.outcome.raw == server.outcome.raw
    assert server.rig.replies == server.rig.ended == [first, second]
    assert server.counts == {"cache_misses": 1, "cache_hits": 1}
    assert (server.rig.router.in_flight, second.timer) == (0, None)


@pytest.mark.parametrize(
    "annotations, rules, kept",
    [
        ({"readOnlyHint": True}, CacheRules(tools=("th*",)), True),
        ({"readOnlyHint": True}, CacheRules(tools=("other", "s_thing")), False),
        ({"readOnlyHint": True}, CacheRules(assume_read_only=("other",)), False),
        ({"readOnlyHint": False}, ALL, False),
        ({"readOnlyHint": "true"}, ALL, False),
        ({"readOnlyHint": None}, ALL, False),
        ({"idempotentHint": True}, ALL, False),
        ("readOnlyHint", ALL, False),
        (None, ALL, False),
        (None, CacheRules(assume_read_only=("thing",)), True),
        ({"readOnlyHint": False}, CacheRules(assume_read_only=("th?ng",)), True),
    ],
)
async def test_a_tool_is_named_and_says_that_it_only_reads_or_is_vouched_for(
    tmp_path: Path, annotations: Any, rules: CacheRules, kept: bool
) -> None:
    server = Server(tmp_path, rules)
    server.publish(tool("thing", annotations))
    server.call("s_thing")
    assert server.is_kept("s_thing") == kept


@pytest.mark.parametrize(
    "definition, kept",
    [
        (b'{"name":"t","annotations":{"r\\u0065adOnlyHint": true, "title": "T"}}', True),
        (b'{"name":"t","annotations":{"readonlyhint":true}}', False),
        (b'{"name":"t","readOnlyHint":true}', False),
        (b'{"name":"t","annotations":null}', False),
        (b'{"name":"t","annotations":{"x":%b}}' % DEEP, False),
    ],
)
async def test_however_a_definition_is_written_it_is_read_as_servers_mean_it(
    tmp_path: Path, definition: bytes, kept: bool
) -> None:
    server = Server(tmp_path)
    server.publish(ToolDefinition("s", "t", definition))
    server.call("s_t")
    assert server.is_kept("s_t") == kept


async def test_what_took_an_answer_of_the_client_is_not_given_again(tmp_path: Path) -> None:
    server = Server(tmp_path)

    def ask(call: Call) -> None:
        server.asked.append(call)
        ServerRequest("s", ROOTS_LIST, b"{}", lambda ending, raw: call.finish(OK) and None, (call,)).answer(b"{}")

    server.source.on_submit = ask
    for _ in range(2):
        server.rig.call("s_read", {"arguments": {}})
    assert len(server.asked) == 2


async def test_patterns_mean_the_servers_own_names(tmp_path: Path) -> None:
    server = Server(tmp_path, None)
    options = {"timeout_s": 1.0, "grace_s": 1.0, "cache": CacheRules(tools=("read",))}
    rules = NameRules(prefix="files", rename={"read": "get"})
    server.rig.router.registry.update("s", SourceOptions(rules=rules, **options))
    server.call("files_get")
    assert server.is_kept("s.read")


# Who gets them ----------------------------------------------------------------------------------------------------


@pytest.mark.law
async def test_what_one_principal_was_told_is_not_told_to_another(tmp_path: Path) -> None:
    server = Server(tmp_path)
    assert not server.is_kept(caller=ALICE)
    assert not server.is_kept(caller=BOB)
    assert len(server.asked) == 2
    assert server.is_kept(caller=ALICE)
    assert server.is_kept(caller=BOB)


@pytest.mark.law
@pytest.mark.parametrize(
    "scope, shared", [("public", True), ("private", False), ("PUBLIC", False), ("", False), (None, False)]
)
async def test_only_a_result_that_calls_itself_public_is_shared(tmp_path: Path, scope: Any, shared: bool) -> None:
    server = Server(tmp_path)
    server.outcome = result(cacheScope=scope)
    server.call(caller=Caller("alice", "one"))
    assert server.is_kept(caller=Caller("bob", "two")) == shared


@pytest.mark.law
@pytest.mark.parametrize(
    "version, per_client, shared",
    [(LEGACY, True, False), (LEGACY, False, True), (MODERN, True, True), ("", True, False)],
)
async def test_sessions_share_results_unless_each_has_a_server_that_may_remember_something(
    tmp_path: Path, version: str, per_client: bool, shared: bool
) -> None:
    server = Server(tmp_path, CacheRules(tools=("*",), server_per_client=per_client), version=version)
    server.call(caller=Caller("alice", "one"))
    assert server.is_kept(caller=Caller("alice", "one"))
    assert server.is_kept(caller=Caller("alice", "two")) == shared
    assert server.is_kept(caller=Caller("alice")) == shared
    assert not server.is_kept(caller=Caller("bob", "one"))


# Which calls are equal --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"b": 2, "a": 1}, {"a": 1}, {"a": 1, "b": 2.0}, {}, None])
async def test_other_arguments_are_another_question(tmp_path: Path, arguments: Any) -> None:
    server = Server(tmp_path)
    server.call(arguments={"a": 1, "b": 2})
    assert not server.is_kept(arguments=arguments)
    assert server.is_kept(arguments={"a": 1, "b": 2})


async def test_every_spelling_of_a_name_is_the_same_question(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call("s_read")
    assert all(server.is_kept(name) for name in ("s.read", "s:read", "s__read", "read", "trunkline.s_read"))
    assert not server.is_kept("s_look")


async def test_meta_that_differs_from_call_to_call_is_no_part_of_the_question(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call(_meta={"traceparent": "00-1", "claudecode/toolUseId": "a"})
    assert server.is_kept(_meta={"traceparent": "00-2", "tracestate": "x", "vscode.requestId": "r"})
    assert server.is_kept(name="s_read")


@pytest.mark.law
async def test_what_a_client_says_of_whom_it_asks_for_is_part_of_the_question(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.outcome = result(cacheScope="public")
    ann, ben = {"userId": "ann", "locale": "en"}, {"userId": "ben", "locale": "en"}
    server.call(_meta=ann)
    assert not server.is_kept(_meta=ben)
    assert not server.is_kept()
    assert server.is_kept(_meta=dict(reversed(ann.items())))
    assert server.is_kept(_meta=ann, caller=BOB)


@pytest.mark.parametrize("member", ["inputResponses", "requestState", "task", "InputResponses", "Arguments", "else"])
async def test_a_call_that_says_more_than_a_name_and_arguments_goes_to_the_server(tmp_path: Path, member: str) -> None:
    server = Server(tmp_path)
    assert not server.is_kept(**{member: {}})
    assert not server.is_kept(**{member: {}})
    assert not server.is_kept()
    assert not server.is_kept(**{member: {}})
    assert server.is_kept()
    assert len(server.asked) == 4


async def test_two_equal_calls_at_once_both_go_to_the_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.hold()
    first, second = server.call(), server.call()
    assert server.source.held == [first, second]
    first.finish(result(n=1))
    second.finish(result(n=2))
    third = server.call()
    assert isinstance(third.outcome, Cached)
    assert third.outcome.raw == b'{"content": [], "n": 2}'


# Which results are kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome",
    [
        result(isError=True),
        result(isError="no"),
        result(resultType="input_required", requestState="x"),
        result(resultType="task", taskId="1"),
        result(resultType=None),
        result(ttlMs=0),
        result(ttlMs=-5),
        result(ttlMs=None),
        result(ttlMs="9"),
        result(cacheScope=7),
        Result(b'{"ttlMs":9000,"ttlMs":9000}'),
        Result(b'{"ttlMs":1e999}'),
        Result(b'{"ttlMs":5,"x":1,"x":2}'),
        Result(b'{"is\\u0045rror":true}'),
        Result(b'{"content":%b}' % DEEP),
        Result(b"[]"),
        Result(b'{"content":"%b"}' % (b"x" * LARGEST_BYTES)),
        RemoteError(b'{"code":1,"message":"x"}'),
        NeedsInput(b"{}"),
        Failure(Problem(code=SOURCE_LOST, message="lost")),
    ],
)
async def test_what_is_no_complete_lasting_result_is_not_kept(tmp_path: Path, outcome: Outcome) -> None:
    server = Server(tmp_path)
    server.outcome = outcome
    server.call()
    assert not server.is_kept()


async def test_a_result_that_says_it_is_fine_and_complete_is_kept(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.outcome = result(isError=False, resultType="complete", ttlMs=9000.5, cacheScope="private", _meta={"x": 1})
    server.call()
    assert server.is_kept()
    server.outcome = result(structuredContent={"isError": True, "ttlMs": 0})
    server.call(arguments={"what": "only looks like it"})
    assert server.is_kept(arguments={"what": "only looks like it"})


async def test_a_question_too_large_is_not_kept(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call(arguments={"x": "x" * LARGEST_BYTES})
    assert not server.is_kept(arguments={"x": "x" * LARGEST_BYTES})


async def test_what_is_kept_is_a_copy_and_not_a_part_of_the_servers_message(tmp_path: Path) -> None:
    message = bytearray(b'{"id":1,"result":{"content":[]}}')
    server = Server(tmp_path)
    server.outcome = Result(memoryview(message)[17:-1], bytes(message))
    server.call()
    message[:] = b"x" * len(message)
    again = server.call()
    assert isinstance(again.outcome, Cached)
    assert (type(again.outcome.raw), again.outcome.raw) == (bytes, b'{"content":[]}')
    assert again.outcome.single_line


async def test_a_result_over_several_lines_is_known_to_be_one(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.outcome = Result(b'{"content":\n[]}')
    server.call()
    again = server.call()
    assert isinstance(again.outcome, Cached)
    assert not again.outcome.single_line


# How long ---------------------------------------------------------------------------------------------------------


def test_a_result_is_kept_for_the_ttl_or_its_own_whichever_is_shorter(timed: Callable[..., None]) -> None:
    async def scene(folder: Path) -> None:
        server = Server(folder, CacheRules(tools=("*",), ttl_s=10))
        for own_ttl_ms, lasts_s in ((None, 10), (4000, 4), (4000.5, 4), (60_000, 10), (1e30, 10), (1.7e308, 10)):
            server.outcome = result() if own_ttl_ms is None else result(ttlMs=own_ttl_ms)
            asked = {"arguments": {"ttl": own_ttl_ms}}
            server.call(**asked)
            await asyncio.sleep(lasts_s - 0.1)
            assert server.is_kept(**asked), own_ttl_ms
            await asyncio.sleep(0.2)
            assert not server.is_kept(**asked), own_ttl_ms
            assert server.is_kept(**asked), own_ttl_ms

    timed(scene)


def test_a_result_that_is_given_again_says_how_long_it_still_holds(timed: Callable[..., None]) -> None:
    async def scene(folder: Path) -> None:
        server = Server(folder, CacheRules(tools=("*",), ttl_s=10))
        server.outcome = Result(b'{ "ttlMs": 12000,\n"x": 1.0, "b":{"x" : 12345678901234567890} }')
        server.call()
        await asyncio.sleep(9)
        again = server.call()
        assert isinstance(again.outcome, Cached)
        assert again.outcome.raw == b'{"ttlMs":3000,"x":1.0,"b":{"x" : 12345678901234567890}}'

    timed(scene)


def test_what_is_too_old_and_not_asked_for_makes_room_for_the_next(timed: Callable[..., None]) -> None:
    async def scene(folder: Path) -> None:
        server = Server(folder, CacheRules(tools=("*",), ttl_s=10))
        cache = server.rig.router.cache
        server.call(arguments={"n": 1})
        one = cache.kept_bytes
        server.call(arguments={"n": 2})
        assert cache.kept_bytes == 2 * one
        await asyncio.sleep(11)
        server.call(arguments={"n": 3})
        assert cache.kept_bytes == one

    timed(scene)


async def test_memory_is_bounded_and_what_was_asked_for_longest_ago_goes_first(tmp_path: Path) -> None:
    server = Server(tmp_path, cache_bytes=10_000)
    server.outcome = result(text="x" * 2000)
    for n in range(3):
        server.call(arguments={"n": n})
    assert server.is_kept(arguments={"n": 0})
    server.call(arguments={"n": 3})
    assert [server.is_kept(arguments={"n": n}) for n in (0, 2, 3)] == [True] * 3
    assert not server.is_kept(arguments={"n": 1})
    cache = server.rig.router.cache
    for n in range(100):
        server.call(arguments={"n": n})
        assert cache.kept_bytes <= 10_000
    server.call("s_write")
    assert cache.kept_bytes == 0


# What makes it void -----------------------------------------------------------------------------------------------


async def test_a_call_that_may_change_something_drops_what_is_kept_for_everybody(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call(caller=ALICE)
    server.outcome = result(cacheScope="public")
    server.call(arguments={"public": 1})
    server.call("s_write", caller=BOB)
    assert not server.is_kept(caller=ALICE)
    assert not server.is_kept(arguments={"public": 1})


async def test_a_call_that_only_reads_drops_nothing_whether_it_is_kept_or_not(tmp_path: Path) -> None:
    server = Server(tmp_path, CacheRules(tools=("read",), assume_read_only=("write",)))
    server.call()
    server.call("s_look")
    server.call("s_write")
    assert not server.is_kept("s_look")
    assert server.is_kept()


@pytest.mark.parametrize(
    "end, kept",
    [
        (OK, False),
        (result(isError=True), False),
        (RemoteError(b'{"code":1,"message":"x"}'), False),
        (Failure(Problem(code=SOURCE_LOST, message="lost", executed="unknown")), False),
        (Failure(Problem(code=SOURCE_DOWN, message="down", executed="no")), True),
    ],
)
async def test_a_change_that_may_have_been_made_counts_and_one_that_was_not_does_not(
    tmp_path: Path, end: Outcome, kept: bool
) -> None:
    server = Server(tmp_path)
    server.call()
    server.outcome = end
    server.call("s_write")
    assert server.is_kept() == kept


def test_a_change_that_nobody_waits_for_may_still_be_made(timed: Callable[..., None]) -> None:
    async def scene(folder: Path) -> None:
        server = Server(folder, CacheRules(tools=("*",), ttl_s=1000))
        for code in (DEADLINE, CANCELLED, SOURCE_LOST):
            server.outcome = Failure(Problem(code=code, message="given up", phase="sent", executed="unknown"))
            server.call("s_write")
            server.outcome = OK
            assert not server.is_kept(), code
            await asyncio.sleep(59)
            assert not server.is_kept(), code
            await asyncio.sleep(2)
            assert not server.is_kept(), code
            assert server.is_kept(), code

    timed(scene)


async def test_while_a_change_is_under_way_nothing_is_given_or_kept(tmp_path: Path) -> None:
    server = Server(tmp_path, in_flight_per_source=9)
    server.call()
    server.hold()
    early = server.call(arguments={"early": 1})
    change = server.call("s_write")
    during = server.call()
    assert server.source.held == [early, change, during]
    early.finish(OK)
    during.finish(OK)
    change.finish(OK)
    server.source.on_submit = server.answer
    assert not server.is_kept()
    assert not server.is_kept(arguments={"early": 1})
    assert server.is_kept()


async def test_a_read_that_began_before_a_change_and_ended_after_it_is_not_kept(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.hold()
    read, change = server.call(), server.call("s_write")
    change.finish(OK)
    read.finish(OK)
    server.source.on_submit = server.answer
    assert not server.is_kept()
    assert server.is_kept()


async def test_other_tools_void_what_is_kept_and_the_same_again_do_not(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call()
    server.publish(*TOOLS)
    assert server.is_kept()
    server.publish(*TOOLS, tool("more"))
    assert not server.is_kept()


async def test_a_read_under_way_while_the_tools_change_is_not_kept(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.hold()
    read = server.call()
    server.publish(*TOOLS, tool("more"))
    read.finish(OK)
    assert not server.call().done


async def test_other_rules_void_what_was_kept_under_the_old(tmp_path: Path) -> None:
    server = Server(tmp_path)
    options = {"rules": NameRules(prefix="s"), "timeout_s": 60.0, "grace_s": 60.0}
    update = server.rig.router.registry.update
    server.call()
    update("s", SourceOptions(**options, cache=CacheRules(tools=("*",))))
    assert server.is_kept()
    update("s", SourceOptions(**options, cache=CacheRules(tools=("*",), ttl_s=1)))
    assert not server.is_kept()
    update("s", SourceOptions(**options))
    assert not server.is_kept()


async def test_a_source_that_was_replaced_starts_with_nothing_kept(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call()
    registry, options = server.rig.router.registry, server.rig.router.admissions["s"].options
    late = server.call("s_look", caller=BOB)
    successor = FakeSource()
    sink = registry.replace("s", successor, options)
    assert server.is_kept()
    sink.publish(Snapshot(tools=TOOLS, protocol_version=LEGACY))
    sink.health(Health(state="ready"))
    assert late.done
    assert not server.is_kept()
    assert len(successor.held) == 1


async def test_a_change_under_way_on_a_source_that_was_replaced_still_counts(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.hold()
    change = server.call("s_write")
    successor = FakeSource()
    successor.on_submit = server.answer
    options = server.rig.router.admissions["s"].options
    sink = server.rig.router.registry.replace("s", successor, options)
    sink.publish(Snapshot(tools=TOOLS, protocol_version=LEGACY))
    sink.health(Health(state="ready"))
    assert not server.is_kept()
    assert not server.is_kept()
    change.finish(OK)
    assert not server.is_kept()
    assert server.is_kept()


async def test_a_source_that_was_removed_takes_what_was_kept_with_it(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call()
    server.hold()
    late = server.call("s_look")
    server.rig.router.registry.remove("s")
    late.finish(OK)
    assert server.rig.router.cache.kept_bytes == 0
    assert not server.is_kept()


@pytest.mark.law
async def test_one_clients_own_server_takes_that_clients_results_with_it(tmp_path: Path) -> None:
    server = Server(tmp_path)
    one, two = Caller("alice", "one"), Caller("alice", "two")
    server.call(caller=one)
    server.call(caller=two)
    server.rig.sinks["s"].publish_for("one", None)
    assert not server.is_kept(caller=one)
    assert server.is_kept(caller=two)


async def test_a_read_under_way_while_its_clients_server_changes_is_not_kept(tmp_path: Path) -> None:
    server = Server(tmp_path)
    one = Caller("alice", "one")
    server.hold()
    read = server.call(caller=one)
    server.rig.sinks["s"].publish_for("one", None)
    read.finish(OK)
    assert not server.call(caller=one).done


# Servers that are not well ----------------------------------------------------------------------------------------


async def test_what_is_kept_is_given_while_the_server_is_down_and_not_once_it_is_back(tmp_path: Path) -> None:
    server = Server(tmp_path)
    sink = server.rig.sinks["s"]
    server.call()
    sink.health(Health(state="starting", restarts=1))
    assert server.is_kept()
    sink.health(Health(state="down", restarts=1))
    assert server.is_kept()
    assert problem_of(server.call(arguments={"other": 1})).code is SOURCE_DOWN
    assert problem_of(server.call("s_write")).code is SOURCE_DOWN
    assert server.is_kept()
    sink.health(Health(state="ready", restarts=1))
    assert not server.is_kept()
    assert server.is_kept()
    server.rig.router.registry.close()


async def test_a_server_that_asks_for_a_login_or_a_draining_gateway_gives_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.call()
    server.rig.health("s", "auth_required")
    assert problem_of(server.call()).code is SOURCE_AUTH_REQUIRED
    server.rig.health("s", "ready")
    assert server.is_kept()
    server.rig.router.drain()
    assert problem_of(server.call()).code is DRAINING
    server.rig.router.registry.close()


async def test_a_kept_result_needs_no_place_in_flight_or_in_the_queue(tmp_path: Path) -> None:
    server = Server(tmp_path, in_flight_per_source=1, queue_per_source=1)
    server.call()
    server.hold()
    waiting = [server.call("s_look", caller=Caller(name)) for name in ("a", "b", "c")]
    assert [call.done for call in waiting] == [False, False, True]
    assert server.is_kept()
    assert [call.done for call in waiting] == [False, False, True]
