from __future__ import annotations

import asyncio
import time

import pytest
from tests.unit.sources.mcp.memory_session import MemorySession, new_call

from trunkline.core.call import STREAM_CLOSED, Call, Failure, Outcome, RemoteError, Request, Result
from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL, GatewayError, Problem


def request_on(session: MemorySession, params: bytes = b"{}") -> tuple[Request, list[Outcome | None]]:
    ends: list[Outcome | None] = []
    request = Request("tools/call", params, lambda ended: ends.append(ended.outcome))
    session.send(request)
    return request, ends


def problem(outcome: Outcome | None) -> Problem:
    assert isinstance(outcome, Failure)
    return outcome.problem


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [b"{}", b'{"a":1.10,"b":[ ]}', b'{"id":7,"error":{}}', b'{"x":1e400,"x":2}', b'{"u":"\\u00e9\xc3\xa9"}']
)
async def test_a_result_arrives_byte_for_byte(result: bytes) -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(b'{"result": %b ,"jsonrpc":"2.0","id":1}' % result)
    assert isinstance(request.outcome, Result)
    assert bytes(request.outcome.raw) == result


async def test_a_text_cut_in_the_middle_of_an_emoji_arrives_with_a_replacement() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    result = rb'{"a":"x\ud83d","b":"\uDE00 y","c":"\ud83d\ude00","d":"\\ud83d","e":"\"\ud83d\u0041"}'
    session.received(b'{"jsonrpc":"2.0","id":1,"result":%b}' % result)
    assert isinstance(request.outcome, Result)
    mended = rb'{"a":"x\ufffd","b":"\ufffd y","c":"\ud83d\ude00","d":"\\ud83d","e":"\"\ufffd\u0041"}'
    assert bytes(request.outcome.raw) == mended
    assert session.counted == []


async def test_a_message_that_is_broken_beside_half_a_surrogate_is_still_broken() -> None:
    session = MemorySession()
    request, ends = request_on(session)
    session.received(rb'{"jsonrpc":"2.0","id":1,"result":{"a":"\ud83d",}}')
    assert problem(request.outcome).code is SOURCE_PROTOCOL
    assert len(ends) == 1


@pytest.mark.parametrize(
    "line", [b"INFO up", b"\xff\xfe", b'"text"', b"   ", b"[", b"[1,2", b"1", b"null", b"\\" * 5000]
)
async def test_what_programs_print_beside_the_protocol_is_counted_and_dropped(line: bytes) -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(line)
    assert session.counted == ["noise_lines"]
    assert not request.done


async def test_space_before_a_message_is_no_noise() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(b' \t{"jsonrpc":"2.0","id":1,"result":{}}')
    assert isinstance(request.outcome, Result)
    assert session.counted == []


async def test_an_answer_of_nothing_but_halves_is_broken() -> None:
    session = MemorySession()
    request, ends = request_on(session)
    session.received(b'{"jsonrpc":"2.0","id":1,"result":{"a":"%b"}}' % (rb"\ud83d" * 100_000))
    assert problem(request.outcome).code is SOURCE_PROTOCOL
    assert len(ends) == 1


async def test_a_servers_own_error_arrives_byte_for_byte() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1, "message":"m","data":[1.10]}}')
    assert request.outcome == RemoteError(b'{"code":-1, "message":"m","data":[1.10]}')


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":"x"}',
        b'{"jsonrpc":"2.0","id":1,"error":null}',
        b'{"jsonrpc":"2.0","id":1,"error":"no"}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"result":%b}' % (b"[" * 50_000),
        b'{"jsonrpc":"2.0","id":1,"result":{}',
    ],
)
async def test_an_answer_that_is_none_fails_its_own_request_and_no_other(answer: bytes) -> None:
    session = MemorySession()
    broken, ends = request_on(session)
    other, _ = request_on(session)
    session.received(answer)
    assert problem(broken.outcome).code is SOURCE_PROTOCOL
    assert (problem(broken.outcome).phase, problem(broken.outcome).executed) == ("sent", "unknown")
    assert len(ends) == 1
    assert session.counted == ["protocol_errors"]
    session.answer({"id": 2}, {})
    assert isinstance(other.outcome, Result)


@pytest.mark.parametrize(
    "noise",
    [
        b"Server listening on stdio",
        b"",
        b"{not json",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"\x00\xff",
        b'{"result":{"id":1},"x":',
        b"[" * 50_000,
    ],
)
async def test_noise_costs_nothing(noise: bytes) -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(noise)
    assert not request.done
    assert session.counted == ["noise_lines"]
    session.answer({"id": 1}, {})
    assert isinstance(request.outcome, Result)


@pytest.mark.parametrize("answer_id", [b"2", b"0", b"-1", b'"1"', b"1.0", b"null", b"[]", b"9" * 5000, b"1e0"])
async def test_an_answer_to_nothing_we_asked_is_counted_and_dropped(answer_id: bytes) -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % answer_id)
    assert not request.done
    assert session.counted == ["unmatched_answers"]


@pytest.mark.law
async def test_a_second_answer_is_dropped() -> None:
    session = MemorySession()
    request, ends = request_on(session)
    session.answer({"id": 1}, {"n": 1})
    session.answer({"id": 1}, {"n": 2})
    assert isinstance(request.outcome, Result)
    assert bytes(request.outcome.raw) == b'{"n": 1}'
    assert len(ends) == 1
    assert session.counted == ["unmatched_answers"]


# What a server says unasked ------------------------------------------------------------------------------------------


async def test_a_ping_is_answered_and_any_other_request_refused() -> None:
    session = MemorySession()
    session.say({"id": "a", "method": "ping"})
    session.say({"id": 7, "method": "sampling/createMessage", "params": {}})
    assert session.sent[0] == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert session.sent[1]["id"] == 7
    assert session.sent[1]["error"]["code"] == -32601


async def test_progress_reaches_the_request_whose_token_it_carries() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    seen: list[bytes] = []
    request.on_notification = lambda method, params: seen.append(bytes(params))
    session.received(
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.10}}'
    )
    assert seen == [b'{"progressToken":1,"progress":0.10}']


@pytest.mark.parametrize(
    ("params", "counter"),
    [
        (b'{"progressToken":2,"progress":1}', "unmatched_progress"),
        (b'{"progressToken":"1","progress":1}', "unmatched_progress"),
        (b'{"progress":1}', "protocol_errors"),
        (b'{"progressToken":null}', "protocol_errors"),
        (b'{"progressToken":1e400}', "protocol_errors"),
        (b"[]", "protocol_errors"),
        (b"null", "protocol_errors"),
    ],
)
async def test_progress_of_nothing_in_flight_is_counted_and_dropped(params: bytes, counter: str) -> None:
    session = MemorySession()
    request, _ = request_on(session)
    request.on_notification = lambda method, params: pytest.fail("not for this request")
    session.received(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params)
    assert session.counted == [counter]


async def test_progress_after_the_answer_is_dropped() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    request.on_notification = lambda method, params: pytest.fail("it is over")
    session.answer({"id": 1}, {})
    session.say({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
    assert session.counted == ["unmatched_progress"]


def calling(session: MemorySession, notices: list[str] | None) -> Call:
    call = new_call()
    if notices is not None:
        call.on_notification = lambda method, params: notices.append(method)
    session.send(call)
    return call


async def test_what_comes_on_the_stream_of_a_call_is_about_that_call() -> None:
    session, first, second, heard = MemorySession(), [], [], []
    session.on_notification = lambda method, params: heard.append(method)
    call, _ = calling(session, first), calling(session, second)
    session.received(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', call)
    session.received(b'{"jsonrpc":"2.0","method":"vendor/x"}', call)
    assert (first, second, heard) == (["notifications/message", "vendor/x"], [], [])
    session.answer({"id": call.upstream_id}, {})
    session.received(b'{"jsonrpc":"2.0","method":"vendor/late"}', call)
    assert (first[2:], second, heard) == ([], [], ["vendor/late"])


async def test_what_comes_on_no_stream_is_about_the_only_call_there_is_or_about_the_session() -> None:
    session, first, second, heard = MemorySession(), [], [], []
    session.on_notification = lambda method, params: heard.append(method)
    session.send(Request("ping", b"{}", lambda _: None))
    session.say({"method": "notifications/message", "params": {"n": 1}})
    call = calling(session, first)
    session.say({"method": "notifications/message", "params": {"n": 2}})
    calling(session, second)
    session.say({"method": "notifications/message", "params": {"n": 3}})
    session.answer({"id": call.upstream_id}, {})
    session.say({"method": "notifications/message", "params": {"n": 4}})
    assert (len(first), len(second), len(heard)) == (1, 1, 2)


async def test_a_call_that_takes_no_notices_leaves_them_to_the_session() -> None:
    session, heard = MemorySession(), []
    session.on_notification = lambda method, params: heard.append(method)
    call = calling(session, None)
    session.received(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', call)
    assert heard == ["notifications/message"]


@pytest.mark.parametrize(
    "method", ["tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated"]
)
async def test_notifications_about_lists_and_resources_are_never_taken_for_those_of_a_call(method: str) -> None:
    session, notices, heard = MemorySession(), [], []
    session.on_notification = lambda method, params: heard.append(method)
    call = calling(session, notices)
    session.received(b'{"jsonrpc":"2.0","method":"notifications/%b"}' % method.encode(), call)
    assert (notices, heard) == ([], [f"notifications/{method}"])


@pytest.mark.parametrize("params", [b"[1]", b"null", b'"x"'])
async def test_a_notification_without_an_object_is_counted_and_dropped(params: bytes) -> None:
    session = MemorySession()
    session.on_notification = lambda method, params: pytest.fail("dropped")
    session.received(b'{"jsonrpc":"2.0","method":"vendor/x","params":%b}' % params)
    assert session.counted == ["protocol_errors"]


# Several messages at once (2025-03-26) -------------------------------------------------------------------------------


async def test_every_message_of_a_batch_counts() -> None:
    session, heard = MemorySession(), []
    session.on_notification = lambda method, params: heard.append(method)
    requests = [request_on(session)[0] for _ in range(3)]
    session.received(
        b' [{"jsonrpc":"2.0","id":2,"result":{"n":1.10}}, {"jsonrpc":"2.0","method":"a"},\n'
        b'{"jsonrpc":"2.0","id":9,"method":"ping"},{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}]'
    )
    assert isinstance(requests[1].outcome, Result)
    assert bytes(requests[1].outcome.raw) == b'{"n":1.10}'
    assert isinstance(requests[0].outcome, RemoteError)
    assert not requests[2].done
    assert heard == ["a"]
    assert session.sent[-1] == {"jsonrpc": "2.0", "id": 9, "result": {}}


async def test_what_is_no_message_in_a_batch_costs_nothing_else() -> None:
    session = MemorySession()
    first, second = request_on(session)[0], request_on(session)[0]
    session.received(
        rb'[1,[{"jsonrpc":"2.0","id":2,"result":{}}],"x",{"jsonrpc":"2.0","id":1,"result":{"cut":"\ud83d"}},null]'
    )
    assert isinstance(first.outcome, Result)
    assert bytes(first.outcome.raw) == rb'{"cut":"\ufffd"}'
    assert not second.done
    assert session.counted == ["noise_lines"] * 4


@pytest.mark.parametrize("broken", [b'[{"jsonrpc":"2.0","id":1,"result":{}}', b'[{"id":1,"result":{}},\xff]'])
async def test_a_broken_batch_is_noise(broken: bytes) -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.received(broken)
    assert (request.done, session.counted) == (False, ["noise_lines"])


# Walking away and the end --------------------------------------------------------------------------------------------


async def test_a_request_given_up_is_cancelled_under_the_servers_id_and_its_answer_dropped() -> None:
    session = MemorySession()
    request_on(session)
    request, ends = request_on(session)
    request.give_up(Failure(Problem(code=SOURCE_LOST, message="x")))
    assert session.sent[-1]["method"] == "notifications/cancelled"
    assert session.sent[-1]["params"] == {"requestId": 2}
    session.answer({"id": 2}, {})
    assert len(ends) == 1
    assert session.counted == ["unmatched_answers"]


async def test_nothing_is_cancelled_that_was_answered_or_on_a_lost_session() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    session.answer({"id": 1}, {})
    session.abandon(request)
    other, _ = request_on(session)
    session.lost.set_result(Problem(code=SOURCE_LOST, message="x"))
    session.abandon(other)
    assert "notifications/cancelled" not in session.methods()


async def test_a_request_made_while_a_session_is_lost_is_not_lost_with_it() -> None:
    """Ending one request may start another on the same session."""
    session = MemorySession()
    again: list[Request] = []
    request = Request("x", b"{}", lambda _: again.append(request_on(session)[0]))
    session.send(request)
    session.lose(session.problem(SOURCE_LOST, "gone"))
    assert not again[0].done
    assert again[0].upstream_id in session.pending
    session.lose(session.problem(SOURCE_LOST, "gone"))
    assert again[0].done


# Our own requests ----------------------------------------------------------------------------------------------------


async def test_asking_in_vain_ends_at_its_deadline_and_is_cancelled() -> None:
    session = MemorySession()
    outcome = await session.request("ping", b"{}", 0.01)
    assert "no answer to `ping` within 0.01 seconds" in problem(outcome).message
    assert session.methods() == ["ping", "notifications/cancelled"]
    assert not session.pending


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_opening_requests_are_never_cancelled(method: str) -> None:
    session = MemorySession()
    await session.request(method, b"{}", 0.01)
    assert session.methods() == [method]


async def test_an_asker_that_is_cancelled_leaves_nothing_in_flight() -> None:
    session = MemorySession()
    asking = asyncio.ensure_future(session.request("x", b"{}", 60))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not session.pending
    assert session.methods() == ["x", "notifications/cancelled"]


async def test_the_result_of_a_refusal_is_an_error_that_says_what_came() -> None:
    with pytest.raises(GatewayError, match="refused"):
        MemorySession().result_of(RemoteError(b'{"code":-32601,"message":"refused by me"}'))
    problem = Problem(code=SOURCE_LOST, message="gone")
    with pytest.raises(GatewayError) as failed:
        MemorySession().result_of(Failure(problem))
    assert failed.value.problem is problem


async def test_a_server_cannot_say_what_only_our_own_parts_say_to_each_other() -> None:
    session = MemorySession()
    call = new_call()
    heard: list[str] = []
    call.on_notification = lambda method, _: heard.append(method)
    session.send(call)
    session.say({"method": STREAM_CLOSED, "params": {}})
    session.say({"method": "notifications/message", "params": {}})
    assert heard == ["notifications/message"]


async def test_a_batch_without_end_is_not_read() -> None:
    session = MemorySession()
    request, _ = request_on(session)
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    session.received(b"[%b]" % b",".join([answer] * 1_001))
    session.received(b"[%b,%b]" % (answer, b" " * 2_000_000))
    session.received(b"[%b" % (b"1," * 1_000_000))
    assert not request.done
    assert session.counted == ["protocol_errors"] * 3
    session.received(b"[%b]" % b",".join([answer] * 1_000))
    assert request.done


@pytest.mark.law
async def test_what_a_shared_server_still_says_of_a_call_given_up_is_not_the_next_callers() -> None:
    session, heard = MemorySession(), []
    first, second = new_call(), new_call()
    second.on_notification = lambda method, _: heard.append(method)
    session.send_shared(first)
    first.cancel("its client left")
    session.send_shared(second)
    session.say({"method": "notifications/message", "params": {"data": "of the first"}})
    assert heard == []
    session.say({"id": first.upstream_id, "error": {"code": 0, "message": "Request cancelled"}})
    session.say({"method": "notifications/message", "params": {"data": "of the second"}})
    assert heard == ["notifications/message"]


async def test_a_server_that_never_says_that_it_stopped_is_trusted_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    session, heard = MemorySession(), []
    first, second = new_call(), new_call()
    second.on_notification = lambda method, _: heard.append(method)
    session.send_shared(first)
    first.cancel("its client left")
    session.send_shared(second)
    monkeypatch.setattr("trunkline.sources.mcp.session.monotonic", lambda: time.monotonic() + 61)
    session.say({"method": "notifications/message", "params": {}})
    assert heard == ["notifications/message"]


@pytest.mark.law
async def test_secrets_that_a_server_repeats_are_not_in_what_we_say_of_it() -> None:
    session = MemorySession()
    session.redact = lambda text: text.replace("s3cr3t", "***")
    with pytest.raises(GatewayError, match=r"refused: .*key \*\*\* is wrong"):
        session.result_of(RemoteError(b'{"code":-1,"message":"key s3cr3t is wrong"}'))
    assert session.problem(SOURCE_LOST, "said s3cr3t").message == "Server s: said ***"
