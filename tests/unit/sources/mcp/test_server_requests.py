from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import at_most
from tests.unit.sources.mcp.memory_session import MemorySession, new_call

from trunkline.core.call import Call, Request
from trunkline.core.errors import SOURCE_LOST
from trunkline.core.server_request import ServerRequest
from trunkline.runtime.http_client import MAX_WAITING, HttpPool, HttpTarget
from trunkline.sources.mcp.http import SseUpstreamSession
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.server_requests import MAX_OPEN, MAX_OPEN_BYTES, refuse_without_client

EVERYTHING = b'{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}'
FORM = {"message": "your name?", "requestedSchema": {"type": "object"}}


def session_that_declares(capabilities: bytes = EVERYTHING) -> MemorySession:
    session = MemorySession()
    session.server_requests.declared = capabilities
    return session


def calling(session: MemorySession, asked: list[ServerRequest] | None = None) -> Call:
    call = new_call()
    call.on_server_request = None if asked is None else asked.append
    session.send(call)
    session.sent.clear()
    return call


def ask(session: MemorySession, method: str = "elicitation/create", id: Any = 1, **params: Any) -> None:  # noqa: A002
    session.say({"id": id, "method": method, "params": params or FORM})


# Who is asked --------------------------------------------------------------------------------------------------------


async def test_a_server_request_goes_to_the_call_in_flight_and_its_response_back_under_the_servers_id() -> None:
    session, asked = session_that_declares(), []
    call = calling(session, asked)
    session.received(b'{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"m","x":1.10}}')
    (server_request,) = asked
    assert (server_request.source, server_request.method, server_request.calls) == ("s", "elicitation/create", (call,))
    assert server_request.params == b'{"message":"m","x":1.10}'
    assert call.open_server_requests == 1
    assert server_request.answer(b'{"action":"accept",\n"content":{"n":1.10}}')
    assert session.sent == [{"jsonrpc": "2.0", "id": "q-1", "result": {"action": "accept", "content": {"n": 1.10}}}]
    assert call.open_server_requests == 0
    assert not server_request.answer(b"{}")
    assert len(session.sent) == 1


@pytest.mark.parametrize("id_json", [b"7", b'"7"', b"-1", b'"\\u00e9 \\n"', b"123456789012345678"])
async def test_the_servers_id_comes_back_as_it_was_written(id_json: bytes) -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    session.received(b'{"jsonrpc":"2.0","id":%b,"method":"roots/list"}' % id_json)
    asked[0].refuse(b'{"code":-1,"message":"no"}')
    assert session.sent == [{"jsonrpc": "2.0", "id": json.loads(id_json), "error": {"code": -1, "message": "no"}}]


async def test_the_latest_call_is_asked_and_the_clocks_of_all_rest() -> None:
    session = session_that_declares()
    first, second = [], []
    calls = [calling(session, first), calling(session, second), calling(session)]
    session.send(Request("ping", b"{}", lambda _: None))
    ask(session)
    assert (len(first), len(second)) == (0, 1)
    assert second[0].calls == tuple(calls)
    assert [call.open_server_requests for call in calls] == [1, 1, 1]


async def test_a_server_request_on_the_stream_of_a_call_is_that_calls() -> None:
    session = session_that_declares()
    first, second = [], []
    call, other = calling(session, first), calling(session, second)
    session.received(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}', call)
    assert (len(first), len(second)) == (1, 0)
    assert first[0].calls == (call,)
    assert other.open_server_requests == 0


async def test_a_server_request_outside_calls_goes_to_whoever_attends_the_session() -> None:
    session, asked = session_that_declares(), []
    session.server_requests.set_handler(asked.append)
    ask(session)
    calling(session)
    ask(session, id=2)
    own = Request("resources/subscribe", b"{}", lambda _: None)
    session.send(own)
    session.received(b'{"jsonrpc":"2.0","id":3,"method":"roots/list"}', own)
    assert [len(server_request.calls) for server_request in asked] == [0, 1, 0]


async def test_a_server_request_that_comes_before_anyone_attends_is_held() -> None:
    session, asked = session_that_declares(), []
    ask(session)
    ask(session, id=2)
    session.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert session.sent == []
    session.server_requests.set_handler(asked.append)
    assert len(asked) == 1
    asked[0].answer(b"{}")
    assert [message["id"] for message in session.sent] == [2]


async def test_where_nobody_can_be_asked_the_server_is_told_so() -> None:
    session = session_that_declares()
    session.server_requests.set_handler(refuse_without_client)
    ask(session)
    assert session.sent[0]["error"]["code"] == -32601


async def test_a_client_that_fails_at_a_server_request_costs_that_one_only() -> None:
    session = session_that_declares()
    call = calling(session)

    def broken(server_request: ServerRequest) -> None:
        raise RuntimeError("a bug")

    call.on_server_request = broken
    ask(session)
    assert session.sent[0]["error"]["code"] == -32603
    assert call.open_server_requests == 0
    assert not call.done


# What may be asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "code"),
    [
        (b"{}", "elicitation/create", FORM, -32601),
        (b'{"roots":{}}', "sampling/createMessage", {"messages": []}, -32601),
        (b'{"elicitation":{}}', "roots/list", {}, -32601),
        (EVERYTHING, "tasks/get", {}, -32601),
        (EVERYTHING, "tools/list", {}, -32601),
        (b'{"elicitation":{}}', "elicitation/create", {**FORM, "mode": "url"}, -32602),
        (b'{"elicitation":{"url":{}}}', "elicitation/create", FORM, -32602),
        (b'{"elicitation":{"form":{}}}', "elicitation/create", {**FORM, "mode": "other"}, -32602),
        (b'{"elicitation":{}}', "elicitation/create", {**FORM, "mode": 7}, -32602),
        (b'{"sampling":{}}', "sampling/createMessage", {"messages": [], "tools": []}, -32602),
        (b'{"sampling":{}}', "sampling/createMessage", {"messages": [], "toolChoice": {}}, -32602),
        (EVERYTHING, "elicitation/create", [1], -32602),
    ],
)
async def test_what_the_client_did_not_declare_is_refused(
    capabilities: bytes, method: str, params: Any, code: int
) -> None:
    session, asked = session_that_declares(capabilities), []
    calling(session, asked)
    session.say({"id": 1, "method": method, "params": params})
    assert asked == []
    assert (session.sent[0]["id"], session.sent[0]["error"]["code"]) == (1, code)


@pytest.mark.parametrize(
    ("capabilities", "method", "params"),
    [
        (b'{"elicitation":{}}', "elicitation/create", FORM),
        (b'{"elicitation":{}}', "elicitation/create", {**FORM, "mode": "form"}),
        (b'{"elicitation":{"url":{}}}', "elicitation/create", {"mode": "url", "url": "https://x", "message": "m"}),
        (b'{"sampling":{}}', "sampling/createMessage", {"messages": [], "includeContext": "thisServer"}),
        (b'{"sampling":{"tools":{}}}', "sampling/createMessage", {"messages": [], "tools": []}),
        (b'{"roots":{"listChanged":true}}', "roots/list", {}),
    ],
)
async def test_what_the_client_declared_is_passed_on(capabilities: bytes, method: str, params: Any) -> None:
    session, asked = session_that_declares(capabilities), []
    calling(session, asked)
    session.say({"id": 1, "method": method, "params": params})
    assert [server_request.method for server_request in asked] == [method]
    assert session.sent == []


@pytest.mark.parametrize("id_json", [b"null", b"1.5", b"[1,\n2]", b"{}", b"true"])
async def test_a_request_without_a_proper_id_is_counted_and_dropped(id_json: bytes) -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    session.received(b'{"jsonrpc":"2.0","id":%b,"method":"roots/list"}' % id_json)
    session.received(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % id_json)
    assert (session.sent, asked, session.counted) == ([], [], ["protocol_errors"] * 2)


async def test_a_server_cannot_open_server_requests_without_end() -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    for number in range(1000):
        ask(session, id=number)
    assert len(asked) == len(session.server_requests) == MAX_OPEN
    assert {message["error"]["code"] for message in session.sent} == {-32603}
    assert len(session.sent) == 1000 - MAX_OPEN
    asked[0].answer(b"{}")
    ask(session, id=2000)
    assert len(asked) == MAX_OPEN + 1


async def test_a_second_server_request_under_an_id_that_is_open_is_dropped() -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    ask(session, id=1)
    ask(session, id=1)
    ask(session, id="1")
    assert (len(asked), session.sent, session.counted) == (2, [], ["protocol_errors"])
    asked[0].answer(b'{"n":0}')
    ask(session, id=1)
    assert len(asked) == 3


@pytest.mark.parametrize("answer", [b"[]", b"", b"null", b"[" * 100_000 + b"\n"])
async def test_an_answer_that_is_none_becomes_an_error_for_the_server(answer: bytes) -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    ask(session)
    asked[0].answer(answer)
    assert (session.sent[0]["id"], session.sent[0]["error"]["code"]) == (1, -32603)


# Progress, taking back, the end --------------------------------------------------------------------------------------


async def test_a_clients_progress_reaches_the_server_while_the_server_request_is_open() -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    ask(session)
    asked[0].progressed(b'{"progressToken":"t",\n"progress":1}')
    asked[0].answer(b"{}")
    asked[0].progressed(b'{"progressToken":"t","progress":2}')
    assert session.sent[0] == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "t", "progress": 1},
    }
    assert len(session.sent) == 2


@pytest.mark.parametrize("end", ["cancelled", "lost"])
async def test_a_server_request_the_server_takes_back_or_dies_with_is_withdrawn(end: str) -> None:
    session, asked = session_that_declares(), []
    call = calling(session, asked)
    ask(session, id="a")
    ask(session, id="b")
    log: list[str] = []
    call.on_done = lambda _: log.append("call ended")
    for name, server_request in zip("ab", asked, strict=True):
        server_request.on_withdrawn = lambda name=name: log.append(name)
    if end == "cancelled":
        session.say({"method": "notifications/cancelled", "params": {"requestId": "b", "reason": "x"}})
        assert log == ["b"]
        assert call.open_server_requests == 1
    else:
        session.lose(session.problem(SOURCE_LOST, "exited"))
        assert log == ["a", "b", "call ended"]
        assert call.open_server_requests == 0
    assert not asked[1].answer(b"{}")
    assert session.sent == []


@pytest.mark.parametrize("params", [{"requestId": 99}, {"requestId": None}, {}, []])
async def test_a_cancellation_of_anything_else_is_for_whoever_tends_the_session(params: Any) -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    heard: list[str] = []
    session.on_notification = lambda method, params: heard.append(method)
    ask(session)
    session.say({"method": "notifications/cancelled", "params": params})
    assert heard == ["notifications/cancelled"]
    assert not asked[0].ended


async def test_server_requests_of_calls_that_are_over_are_refused_and_withdrawn() -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    ask(session)
    withdrawn: list[Callable[[], None]] = []
    asked[0].on_withdrawn = lambda: withdrawn.append(asked[0].answer)
    session.server_requests.refuse_all()
    assert len(withdrawn) == 1
    assert session.sent[0]["error"]["code"] == -32603
    assert len(session.server_requests) == 0


@pytest.mark.parametrize("wire", [HttpUpstreamSession, SseUpstreamSession])
async def test_a_server_that_asks_without_taking_answers_does_not_fill_the_memory(
    wire: type[HttpUpstreamSession | SseUpstreamSession],
) -> None:
    counted: list[str] = []
    pool = HttpPool(HttpTarget(f"http://127.0.0.1:{free_port()}/"), connect_timeout_s=at_most(10), limit_bytes=4096)
    session = wire("s", counted.append, pool, {})
    for number in range(MAX_WAITING + 500):
        session.received(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % number)
    assert counted == ["unread_messages_dropped"] * 500
    await session.close()


async def test_server_requests_that_are_open_together_have_a_size_and_one_alone_may_be_of_any() -> None:
    session, asked = session_that_declares(), []
    calling(session, asked)
    ask(session, id=1, message="x" * MAX_OPEN_BYTES)
    ask(session, id=2, message="small")
    assert [server_request.params.count(b"x") for server_request in asked] == [MAX_OPEN_BYTES]
    assert [message["error"]["code"] for message in session.sent] == [-32603]
    asked[0].answer(b"{}")
    ask(session, id=3, message="small")
    ask(session, id=4, message="small")
    assert len(asked) == 3
