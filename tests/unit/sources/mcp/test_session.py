from __future__ import annotations

import asyncio
import time

import pytest
from tests.unit.sources.mcp.memory_session import MemorySession, new_call

from trunkline.core.call import STREAM_CLOSED, Call, Failure, Outcome, RemoteError, Request, Result
from trunkline.core.errors import SOURCE_LOST, SOURCE_PROTOCOL, GatewayError, Problem


def request_on(lane: MemorySession, params: bytes = b"{}") -> tuple[Request, list[Outcome | None]]:
    ends: list[Outcome | None] = []
    request = Request("tools/call", params, lambda ended: ends.append(ended.outcome))
    lane.send(request)
    return request, ends


def problem(outcome: Outcome | None) -> Problem:
    assert isinstance(outcome, Failure)
    return outcome.problem


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [b"{}", b'{"a":1.10,"b":[ ]}', b'{"id":7,"error":{}}', b'{"x":1e400,"x":2}', b'{"u":"\\u00e9\xc3\xa9"}']
)
async def test_a_result_arrives_byte_for_byte(result: bytes) -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(b'{"result": %b ,"jsonrpc":"2.0","id":1}' % result)
    assert isinstance(request.outcome, Result)
    assert bytes(request.outcome.raw) == result


async def test_a_text_cut_in_the_middle_of_an_emoji_arrives_with_a_replacement() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    result = rb'{"a":"x\ud83d","b":"\uDE00 y","c":"\ud83d\ude00","d":"\\ud83d","e":"\"\ud83d\u0041"}'
    lane.received(b'{"jsonrpc":"2.0","id":1,"result":%b}' % result)
    assert isinstance(request.outcome, Result)
    mended = rb'{"a":"x\ufffd","b":"\ufffd y","c":"\ud83d\ude00","d":"\\ud83d","e":"\"\ufffd\u0041"}'
    assert bytes(request.outcome.raw) == mended
    assert lane.counted == []


async def test_a_message_that_is_broken_beside_half_a_surrogate_is_still_broken() -> None:
    lane = MemorySession()
    request, ends = request_on(lane)
    lane.received(rb'{"jsonrpc":"2.0","id":1,"result":{"a":"\ud83d",}}')
    assert problem(request.outcome).code is SOURCE_PROTOCOL
    assert len(ends) == 1


@pytest.mark.parametrize(
    "line", [b"INFO up", b"\xff\xfe", b'"text"', b"   ", b"[", b"[1,2", b"1", b"null", b"\\" * 5000]
)
async def test_what_programs_print_beside_the_protocol_is_counted_and_dropped(line: bytes) -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(line)
    assert lane.counted == ["noise_lines"]
    assert not request.done


async def test_space_before_a_message_is_no_noise() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(b' \t{"jsonrpc":"2.0","id":1,"result":{}}')
    assert isinstance(request.outcome, Result)
    assert lane.counted == []


async def test_an_answer_of_nothing_but_halves_is_broken() -> None:
    lane = MemorySession()
    request, ends = request_on(lane)
    lane.received(b'{"jsonrpc":"2.0","id":1,"result":{"a":"%b"}}' % (rb"\ud83d" * 100_000))
    assert problem(request.outcome).code is SOURCE_PROTOCOL
    assert len(ends) == 1


async def test_a_servers_own_error_arrives_byte_for_byte() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1, "message":"m","data":[1.10]}}')
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
    lane = MemorySession()
    broken, ends = request_on(lane)
    other, _ = request_on(lane)
    lane.received(answer)
    assert problem(broken.outcome).code is SOURCE_PROTOCOL
    assert (problem(broken.outcome).phase, problem(broken.outcome).executed) == ("sent", "unknown")
    assert len(ends) == 1
    assert lane.counted == ["protocol_errors"]
    lane.answer({"id": 2}, {})
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
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(noise)
    assert not request.done
    assert lane.counted == ["noise_lines"]
    lane.answer({"id": 1}, {})
    assert isinstance(request.outcome, Result)


@pytest.mark.parametrize("answer_id", [b"2", b"0", b"-1", b'"1"', b"1.0", b"null", b"[]", b"9" * 5000, b"1e0"])
async def test_an_answer_to_nothing_we_asked_is_counted_and_dropped(answer_id: bytes) -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % answer_id)
    assert not request.done
    assert lane.counted == ["unmatched_answers"]


@pytest.mark.law
async def test_a_second_answer_is_dropped() -> None:
    lane = MemorySession()
    request, ends = request_on(lane)
    lane.answer({"id": 1}, {"n": 1})
    lane.answer({"id": 1}, {"n": 2})
    assert isinstance(request.outcome, Result)
    assert bytes(request.outcome.raw) == b'{"n": 1}'
    assert len(ends) == 1
    assert lane.counted == ["unmatched_answers"]


# What a server says unasked ------------------------------------------------------------------------------------------


async def test_a_ping_is_answered_and_any_other_request_refused() -> None:
    lane = MemorySession()
    lane.say({"id": "a", "method": "ping"})
    lane.say({"id": 7, "method": "sampling/createMessage", "params": {}})
    assert lane.sent[0] == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert lane.sent[1]["id"] == 7
    assert lane.sent[1]["error"]["code"] == -32601


async def test_progress_reaches_the_request_whose_token_it_carries() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    seen: list[bytes] = []
    request.on_notification = lambda method, params: seen.append(bytes(params))
    lane.received(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.10}}')
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
    lane = MemorySession()
    request, _ = request_on(lane)
    request.on_notification = lambda method, params: pytest.fail("not for this request")
    lane.received(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params)
    assert lane.counted == [counter]


async def test_progress_after_the_answer_is_dropped() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    request.on_notification = lambda method, params: pytest.fail("it is over")
    lane.answer({"id": 1}, {})
    lane.say({"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
    assert lane.counted == ["unmatched_progress"]


def calling(lane: MemorySession, notices: list[str] | None) -> Call:
    call = new_call()
    if notices is not None:
        call.on_notification = lambda method, params: notices.append(method)
    lane.send(call)
    return call


async def test_what_comes_on_the_stream_of_a_call_is_about_that_call() -> None:
    lane, first, second, heard = MemorySession(), [], [], []
    lane.on_notification = lambda method, params: heard.append(method)
    call, _ = calling(lane, first), calling(lane, second)
    lane.received(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', call)
    lane.received(b'{"jsonrpc":"2.0","method":"vendor/x"}', call)
    assert (first, second, heard) == (["notifications/message", "vendor/x"], [], [])
    lane.answer({"id": call.upstream_id}, {})
    lane.received(b'{"jsonrpc":"2.0","method":"vendor/late"}', call)
    assert (first[2:], second, heard) == ([], [], ["vendor/late"])


async def test_what_comes_on_no_stream_is_about_the_only_call_there_is_or_about_the_lane() -> None:
    lane, first, second, heard = MemorySession(), [], [], []
    lane.on_notification = lambda method, params: heard.append(method)
    lane.send(Request("ping", b"{}", lambda _: None))
    lane.say({"method": "notifications/message", "params": {"n": 1}})
    call = calling(lane, first)
    lane.say({"method": "notifications/message", "params": {"n": 2}})
    calling(lane, second)
    lane.say({"method": "notifications/message", "params": {"n": 3}})
    lane.answer({"id": call.upstream_id}, {})
    lane.say({"method": "notifications/message", "params": {"n": 4}})
    assert (len(first), len(second), len(heard)) == (1, 1, 2)


async def test_a_call_that_takes_no_notices_leaves_them_to_the_lane() -> None:
    lane, heard = MemorySession(), []
    lane.on_notification = lambda method, params: heard.append(method)
    call = calling(lane, None)
    lane.received(b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', call)
    assert heard == ["notifications/message"]


@pytest.mark.parametrize(
    "method", ["tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated"]
)
async def test_news_of_lists_and_resources_is_never_taken_for_a_calls(method: str) -> None:
    lane, notices, heard = MemorySession(), [], []
    lane.on_notification = lambda method, params: heard.append(method)
    call = calling(lane, notices)
    lane.received(b'{"jsonrpc":"2.0","method":"notifications/%b"}' % method.encode(), call)
    assert (notices, heard) == ([], [f"notifications/{method}"])


@pytest.mark.parametrize("params", [b"[1]", b"null", b'"x"'])
async def test_a_notification_without_an_object_is_counted_and_dropped(params: bytes) -> None:
    lane = MemorySession()
    lane.on_notification = lambda method, params: pytest.fail("dropped")
    lane.received(b'{"jsonrpc":"2.0","method":"vendor/x","params":%b}' % params)
    assert lane.counted == ["protocol_errors"]


# Several messages at once (2025-03-26) -------------------------------------------------------------------------------


async def test_every_message_of_a_batch_counts() -> None:
    lane, heard = MemorySession(), []
    lane.on_notification = lambda method, params: heard.append(method)
    requests = [request_on(lane)[0] for _ in range(3)]
    lane.received(
        b' [{"jsonrpc":"2.0","id":2,"result":{"n":1.10}}, {"jsonrpc":"2.0","method":"a"},\n'
        b'{"jsonrpc":"2.0","id":9,"method":"ping"},{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}]'
    )
    assert isinstance(requests[1].outcome, Result)
    assert bytes(requests[1].outcome.raw) == b'{"n":1.10}'
    assert isinstance(requests[0].outcome, RemoteError)
    assert not requests[2].done
    assert heard == ["a"]
    assert lane.sent[-1] == {"jsonrpc": "2.0", "id": 9, "result": {}}


async def test_what_is_no_message_in_a_batch_costs_nothing_else() -> None:
    lane = MemorySession()
    first, second = request_on(lane)[0], request_on(lane)[0]
    lane.received(
        rb'[1,[{"jsonrpc":"2.0","id":2,"result":{}}],"x",{"jsonrpc":"2.0","id":1,"result":{"cut":"\ud83d"}},null]'
    )
    assert isinstance(first.outcome, Result)
    assert bytes(first.outcome.raw) == rb'{"cut":"\ufffd"}'
    assert not second.done
    assert lane.counted == ["noise_lines"] * 4


@pytest.mark.parametrize("broken", [b'[{"jsonrpc":"2.0","id":1,"result":{}}', b'[{"id":1,"result":{}},\xff]'])
async def test_a_broken_batch_is_noise(broken: bytes) -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.received(broken)
    assert (request.done, lane.counted) == (False, ["noise_lines"])


# Walking away and the end --------------------------------------------------------------------------------------------


async def test_a_request_given_up_is_cancelled_under_the_servers_id_and_its_answer_dropped() -> None:
    lane = MemorySession()
    request_on(lane)
    request, ends = request_on(lane)
    request.give_up(Failure(Problem(code=SOURCE_LOST, message="x")))
    assert lane.sent[-1]["method"] == "notifications/cancelled"
    assert lane.sent[-1]["params"] == {"requestId": 2}
    lane.answer({"id": 2}, {})
    assert len(ends) == 1
    assert lane.counted == ["unmatched_answers"]


async def test_nothing_is_cancelled_that_was_answered_or_on_a_lost_lane() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    lane.answer({"id": 1}, {})
    lane.abandon(request)
    other, _ = request_on(lane)
    lane.lost.set_result(Problem(code=SOURCE_LOST, message="x"))
    lane.abandon(other)
    assert "notifications/cancelled" not in lane.methods()


async def test_a_request_made_while_a_lane_is_lost_is_not_lost_with_it() -> None:
    """Ending one request may start another on the same lane."""
    lane = MemorySession()
    again: list[Request] = []
    request = Request("x", b"{}", lambda _: again.append(request_on(lane)[0]))
    lane.send(request)
    lane.lose(lane.problem(SOURCE_LOST, "gone"))
    assert not again[0].done
    assert again[0].upstream_id in lane.pending
    lane.lose(lane.problem(SOURCE_LOST, "gone"))
    assert again[0].done


# Our own requests ----------------------------------------------------------------------------------------------------


async def test_asking_in_vain_ends_at_its_deadline_and_is_cancelled() -> None:
    lane = MemorySession()
    outcome = await lane.request("ping", b"{}", 0.01)
    assert "no answer to `ping` within 0.01 seconds" in problem(outcome).message
    assert lane.methods() == ["ping", "notifications/cancelled"]
    assert not lane.pending


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_opening_requests_are_never_cancelled(method: str) -> None:
    lane = MemorySession()
    await lane.request(method, b"{}", 0.01)
    assert lane.methods() == [method]


async def test_an_asker_that_is_cancelled_leaves_nothing_in_flight() -> None:
    lane = MemorySession()
    asking = asyncio.ensure_future(lane.request("x", b"{}", 60))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not lane.pending
    assert lane.methods() == ["x", "notifications/cancelled"]


async def test_the_result_of_a_refusal_is_an_error_that_says_what_came() -> None:
    with pytest.raises(GatewayError, match="refused"):
        MemorySession().result_of(RemoteError(b'{"code":-32601,"message":"refused by me"}'))
    problem = Problem(code=SOURCE_LOST, message="gone")
    with pytest.raises(GatewayError) as failed:
        MemorySession().result_of(Failure(problem))
    assert failed.value.problem is problem


async def test_a_server_cannot_say_what_only_our_own_parts_say_to_each_other() -> None:
    lane = MemorySession()
    call = new_call()
    heard: list[str] = []
    call.on_notification = lambda method, _: heard.append(method)
    lane.send(call)
    lane.say({"method": STREAM_CLOSED, "params": {}})
    lane.say({"method": "notifications/message", "params": {}})
    assert heard == ["notifications/message"]


async def test_a_batch_without_end_is_not_read() -> None:
    lane = MemorySession()
    request, _ = request_on(lane)
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    lane.received(b"[%b]" % b",".join([answer] * 1_001))
    lane.received(b"[%b,%b]" % (answer, b" " * 2_000_000))
    lane.received(b"[%b" % (b"1," * 1_000_000))
    assert not request.done
    assert lane.counted == ["protocol_errors"] * 3
    lane.received(b"[%b]" % b",".join([answer] * 1_000))
    assert request.done


@pytest.mark.law
async def test_what_a_shared_server_still_says_of_a_call_given_up_is_not_the_next_callers() -> None:
    lane, heard = MemorySession(), []
    first, second = new_call(), new_call()
    second.on_notification = lambda method, _: heard.append(method)
    lane.send_shared(first)
    first.cancel("its client left")
    lane.send_shared(second)
    lane.say({"method": "notifications/message", "params": {"data": "of the first"}})
    assert heard == []
    lane.say({"id": first.upstream_id, "error": {"code": 0, "message": "Request cancelled"}})
    lane.say({"method": "notifications/message", "params": {"data": "of the second"}})
    assert heard == ["notifications/message"]


async def test_a_server_that_never_says_that_it_stopped_is_trusted_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, heard = MemorySession(), []
    first, second = new_call(), new_call()
    second.on_notification = lambda method, _: heard.append(method)
    lane.send_shared(first)
    first.cancel("its client left")
    lane.send_shared(second)
    monkeypatch.setattr("trunkline.sources.mcp.session.monotonic", lambda: time.monotonic() + 61)
    lane.say({"method": "notifications/message", "params": {}})
    assert heard == ["notifications/message"]


@pytest.mark.law
async def test_secrets_that_a_server_repeats_are_not_in_what_we_say_of_it() -> None:
    lane = MemorySession()
    lane.redact = lambda text: text.replace("s3cr3t", "***")
    with pytest.raises(GatewayError, match=r"refused: .*key \*\*\* is wrong"):
        lane.result_of(RemoteError(b'{"code":-1,"message":"key s3cr3t is wrong"}'))
    assert lane.problem(SOURCE_LOST, "said s3cr3t").message == "Server s: said ***"
