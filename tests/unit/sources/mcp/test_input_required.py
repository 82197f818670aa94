from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.sources.mcp.memory_session import MemorySession, new_call

from trunkline.core.call import Call, Failure, NeedsInput, Request, Result
from trunkline.core.errors import SOURCE_PROTOCOL

FORM = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": {}}}


def modern_session() -> MemorySession:
    session = MemorySession()
    session.modern = session.has_tasks = True
    return session


def answered(
    session: MemorySession, result: Any, method: str = "tools/call", capabilities: bytes = b'{"elicitation":{}}'
) -> Call:
    call = new_call(None, capabilities=capabilities)
    call.method = method
    session.send(call)
    raw = result if isinstance(result, bytes) else json.dumps({"resultType": "input_required", **result}).encode()
    session.received(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (call.upstream_id, raw))
    return call


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
async def test_a_result_that_asks_for_input_arrives_byte_for_byte(method: str) -> None:
    raw = b'{ "resultType": "input_required","requestState":"\\u00e9","inputRequests":{"a":%b},"x":1.10}'
    raw %= json.dumps(FORM).encode()
    assert answered(modern_session(), raw, method).outcome == NeedsInput(raw)


@pytest.mark.parametrize("result", [{"requestState": ""}, {"inputRequests": {}}, {"inputRequests": {"k": FORM}}])
async def test_either_of_requests_and_state_is_enough(result: dict[str, Any]) -> None:
    assert isinstance(answered(modern_session(), result).outcome, NeedsInput)


@pytest.mark.parametrize(
    ("result", "method"),
    [
        ({}, "tools/call"),
        ({"requestState": 7}, "tools/call"),
        ({"inputRequests": []}, "tools/call"),
        ({"inputRequests": {"a": 1}}, "tools/call"),
        ({"inputRequests": {"a": {}}}, "tools/call"),
        ({"inputRequests": {"a": {"method": "roots/list"}}}, "tools/call"),
        ({"inputRequests": {"a": {"method": "elicitation/create", "params": {"mode": "url"}}}}, "tools/call"),
        ({"inputRequests": {"a": {"method": "tools/call", "params": {}}}}, "tools/call"),
        ({"inputRequests": {str(n): FORM for n in range(1000)}}, "tools/call"),
        ({"requestState": "x"}, "completion/complete"),
        (b'{"resultType":"input_required","requestState":"a","requestState":"b"}', "tools/call"),
    ],
)
async def test_a_result_that_asks_what_it_may_not_fails_the_call(result: Any, method: str) -> None:
    session = modern_session()
    outcome = answered(session, result, method).outcome
    assert isinstance(outcome, Failure)
    assert (outcome.problem.code, outcome.problem.executed) == (SOURCE_PROTOCOL, "unknown")
    assert session.counted == ["protocol_errors"]


@pytest.mark.parametrize(
    "result",
    [
        b'{"resultType":"complete","content":[{"type":"text","text":"input_required"}]}',
        b'{"resultType":"complete","status":"input_required"}',
        b'{"resultType":"vendor","x":"input_required"}',
        b'{"status":"input_required"}',
        b'{"resultType":["input_required"]}',
        b'{"resultType":1e999,"x":"input_required"}',
    ],
)
async def test_anything_else_passes_untouched(result: bytes) -> None:
    outcome = answered(modern_session(), result).outcome
    assert isinstance(outcome, Result)
    assert bytes(outcome.raw) == result


async def test_legacy_servers_have_no_such_results_and_our_own_requests_are_not_asked() -> None:
    assert isinstance(answered(MemorySession(), {"requestState": "x"}).outcome, Result)
    session = modern_session()
    own = Request("tools/call", b"{}", lambda _: None)
    session.send(own)
    session.received(b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"x"}}')
    assert isinstance(own.outcome, Failure)


# Tasks ---------------------------------------------------------------------------------------------------------------

TASK = b'{"resultType":"task","taskId":"1","status":"working"}'
KNOWS_TASKS = b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}'


async def test_a_task_arrives_where_the_client_knows_tasks() -> None:
    outcome = answered(modern_session(), TASK, capabilities=KNOWS_TASKS).outcome
    assert isinstance(outcome, Result)
    assert bytes(outcome.raw) == TASK


@pytest.mark.parametrize(
    ("method", "capabilities"),
    [("tools/call", b"{}"), ("tools/call", b'{"extensions":{"x/y":{}}}'), ("prompts/get", KNOWS_TASKS)],
)
async def test_a_task_that_the_client_cannot_expect_fails_the_call(method: str, capabilities: bytes) -> None:
    session = modern_session()
    outcome = answered(session, TASK, method, capabilities).outcome
    assert isinstance(outcome, Failure)
    assert (outcome.problem.code, outcome.problem.executed) == (SOURCE_PROTOCOL, "unknown")
    assert session.counted == ["protocol_errors"]


@pytest.mark.parametrize(
    "result", [b'{"content":[],"x":"task"}', b'{"resultType":"complete","structuredContent":"task"}']
)
async def test_the_word_alone_makes_no_task(result: bytes) -> None:
    assert isinstance(answered(modern_session(), result).outcome, Result)
    assert isinstance(answered(MemorySession(), TASK).outcome, Result)


async def test_no_spelling_hides_what_a_result_is() -> None:
    asks = b'{"result\\u0054ype":"input_requir\\u0065d","requestState":"x"}'
    assert answered(modern_session(), asks).outcome == NeedsInput(asks)
    assert isinstance(answered(modern_session(), b'{"resultType":"t\\u0061sk","taskId":"1"}').outcome, Failure)
    sloppy = b'{"resultType":"complete","x":"\\u00e9","x":1}'
    assert isinstance(answered(modern_session(), sloppy).outcome, Result)
