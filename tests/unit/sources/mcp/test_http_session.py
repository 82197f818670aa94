from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import at_most, until
from tests.unit.runtime.scripted_server import Peer, Scripted, both_loops, http, run_on, scripted
from tests.unit.sources.mcp.memory_session import new_call

from trunkline.core.call import Call, Failure, RemoteError, Request, Result
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    SOURCE_AUTH_REQUIRED,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    Problem,
)
from trunkline.runtime.http_client import HttpPool, HttpTarget
from trunkline.sources.mcp import http_session
from trunkline.sources.mcp.http_session import RETIRED_AFTER_FAILURES, HttpUpstreamSession
from trunkline.sources.mcp.session import close_session

Loop = Callable[[], asyncio.AbstractEventLoop]
LIMIT = 4096


@contextlib.asynccontextmanager
async def session_to(url: str, **headers: str) -> AsyncIterator[HttpUpstreamSession]:
    pool = HttpPool(HttpTarget(url), connect_timeout_s=at_most(10), limit_bytes=LIMIT)
    counted: list[str] = []
    session = HttpUpstreamSession("s", counted.append, pool, headers)
    session.counted = counted  # type: ignore[attr-defined]
    try:
        yield session
    finally:
        await session.close()


def parts(request: bytes) -> tuple[str, dict[str, str], Any]:
    """First line, headers and message of a request."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first, headers, json.loads(body) if body else None


def result(message: Any, value: bytes = b'{"ok":true}') -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], value)


def event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


def stream(*chunks: bytes, end: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + (b"0\r\n\r\n" if end else b"")


def answering(*answers: Callable[[Any], bytes]) -> Callable[[Peer], Any]:
    """Each request with an id gets the next answer (the last one for ever); the rest is accepted."""
    left = list(answers)

    async def script(peer: Peer) -> None:
        while True:
            first, _, message = parts(await peer.request())
            if message is None or "id" not in message:
                await peer.send(http(status=202 if first.startswith("POST") else 200))
            else:
                await peer.send((left.pop(0) if len(left) > 1 else left[0])(message))

    return script


def ok(message: Any) -> bytes:
    return http(result(message), Content_Type="application/json")


def sent(session: HttpUpstreamSession, params: bytes = b'{"name":"t"}', method: str = "tools/call") -> Call:
    call = new_call()
    call.method, call.params = method, params
    session.send(call)
    return call


async def outcome(call: Request) -> Any:
    await until(lambda: call.done, "it is answered")
    return call.outcome


async def failed(call: Request) -> Problem:
    ended = await outcome(call)
    assert isinstance(ended, Failure), ended
    return ended.problem


def posts(server: Scripted) -> list[Any]:
    return [parts(request)[2] for request in server.requests if request.startswith(b"POST")]


# Requests out --------------------------------------------------------------------------------------------------------


@both_loops
def test_a_legacy_request_carries_version_session_and_our_own_headers(loop_factory: Loop) -> None:
    async def main() -> None:
        first = lambda message: http(result(message), Mcp_Session_Id="abc-123")  # noqa: E731
        async with (
            scripted(answering(first, ok)) as server,
            session_to(server.url, Authorization="Bearer x") as session,
        ):
            await outcome(sent(session, b"{}", "initialize"))
            session.set_version("2025-06-18", modern=False)
            await outcome(sent(session))
            before, after = (parts(request) for request in server.requests)
        assert before[0] == after[0] == "POST /mcp HTTP/1.1"
        assert "mcp-session-id" not in before[1]
        assert "mcp-protocol-version" not in before[1]
        assert after[1]["mcp-session-id"] == "abc-123"
        assert after[1]["mcp-protocol-version"] == "2025-06-18"
        assert after[1]["accept"] == "application/json, text/event-stream"
        assert after[1]["content-type"] == "application/json"
        assert after[1]["authorization"] == "Bearer x"
        assert after[1]["host"] == f"127.0.0.1:{server.port}"
        assert "mcp-method" not in after[1]
        assert after[2] == {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "t"}}
        assert parts(server.requests[-1])[0] == "DELETE /mcp HTTP/1.1"

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("name", ["t", "näme", "a b", " edge", "a\r\nX-Evil: 1", "=?base64?x?="])
def test_a_modern_request_mirrors_method_and_name(loop_factory: Loop, name: str) -> None:
    from trunkline.protocol.mcp.modern import decode_header

    async def main() -> None:
        async with scripted(answering(ok)) as server, session_to(server.url) as session:
            session.set_version("2026-07-28", modern=True)
            await outcome(sent(session, json.dumps({"name": name}).encode()))
            await outcome(sent(session, b"{}", "tools/list"))
            call, listing = (parts(request)[1] for request in server.requests)
            assert call["mcp-protocol-version"] == "2026-07-28"
            assert call["mcp-method"] == "tools/call"
            assert decode_header(call["mcp-name"].encode("latin-1")) == name
            assert "x-evil" not in call
            assert listing["mcp-method"] == "tools/list"
            assert "mcp-name" not in listing
        assert not any(request.startswith(b"DELETE") for request in server.requests)

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("arguments", [b'{"x":1e400}', b'{"x":%b}' % (b"9" * 3000)])
def test_numbers_of_any_size_reach_a_modern_server(loop_factory: Loop, arguments: bytes) -> None:
    async def main() -> None:
        async with scripted(answering(ok)) as server, session_to(server.url) as session:
            session.set_version("2026-07-28", modern=True)
            call = sent(session, b'{"name":"t","arguments":%b}' % arguments)
            assert isinstance(await outcome(call), Result)
            assert arguments in server.requests[0]

    run_on(loop_factory, main())


# Answers -------------------------------------------------------------------------------------------------------------


@both_loops
def test_an_answer_may_come_as_a_stream_with_notifications_before_it(loop_factory: Loop) -> None:
    async def main() -> None:
        def answer(message: Any) -> bytes:
            progress = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}'
            return stream(b": hi\n\n", event(progress % 1), event(progress % 2), event(result(message)))

        async with scripted(answering(answer)) as server, session_to(server.url) as session:
            call = new_call()
            seen: list[bytes] = []
            call.on_notification = lambda method, params: seen.append(bytes(params))
            call.wants_progress = True
            session.send(call)
            assert isinstance(await outcome(call), Result)
            assert [json.loads(params)["progress"] for params in seen] == [1, 2]
            assert len(server.peers) == 1
            assert isinstance(await outcome(sent(session)), Result)
            assert len(server.peers) == 1, "the connection is used again"

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (http(b"<html>", 200, Content_Type="text/html"), SOURCE_PROTOCOL, "<html>"),
        (http(b"<html>", 502), SOURCE_PROTOCOL, "502"),
        (http(b"", 200), SOURCE_PROTOCOL, ""),
        (http(b"", 202), SOURCE_PROTOCOL, "202"),
        (http(b"", 307, Location="http://elsewhere/"), SOURCE_PROTOCOL, "redirects are not followed"),
        (http(b"", 401), SOURCE_AUTH_REQUIRED, "401"),
        (http(b"", 403), SOURCE_AUTH_REQUIRED, "403"),
        (http(b"", 404), SOURCE_PROTOCOL, "404"),
        (http(b'{"jsonrpc":"2.0","id":99,"result":{}}'), SOURCE_PROTOCOL, "99"),
        (stream(), SOURCE_PROTOCOL, "ended without an answer"),
        (stream(event(b"{not json")), SOURCE_PROTOCOL, "ended without an answer"),
        (http(b"x" * 5000), ANSWER_TOO_LARGE, "4096"),
        (stream(event(b"x" * 5000)), ANSWER_TOO_LARGE, "large"),
        (b"nonsense\r\n\r\n", SOURCE_PROTOCOL, ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", SOURCE_LOST, "lost"),
        (b"", SOURCE_LOST, "lost"),
    ],
)
def test_a_bad_answer_fails_that_call_and_the_next_one_works(
    loop_factory: Loop, answer: bytes, code: Any, says: str
) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            while True:
                message = parts(await peer.request())[2]
                if message["id"] == 1:
                    await peer.send(answer)
                    return
                await peer.send(ok(message))

        async with scripted(script) as server, session_to(server.url) as session:
            problem = await failed(sent(session))
            assert problem.code is code
            assert says in problem.message
            assert (problem.source, problem.executed) == ("s", "no" if code is SOURCE_AUTH_REQUIRED else "unknown")
            assert isinstance(await outcome(sent(session)), Result)
            assert session.usable

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_servers_own_error_behind_an_error_status_is_passed_on(loop_factory: Loop, status: int) -> None:
    error = b'{"code":-32020,"message":"m", "data":[1.10]}'

    async def main() -> None:
        answer = lambda message: http(b'{"jsonrpc":"2.0","id":null,"error":%b}' % error, status)  # noqa: E731
        async with scripted(answering(answer)) as server, session_to(server.url) as session:
            assert await outcome(sent(session)) == RemoteError(error)

    run_on(loop_factory, main())


# Sent or not ---------------------------------------------------------------------------------------------------------


@both_loops
def test_a_refused_connection_means_that_nothing_ran(loop_factory: Loop) -> None:
    async def main() -> None:
        async with session_to(f"http://127.0.0.1:{free_port()}/mcp") as session:
            call = sent(session)
            assert call.phase == "queued"
            problem = await failed(call)
            assert (problem.code, problem.phase, problem.executed) == (SOURCE_START_FAILED, "queued", "no")
            assert problem.retryable

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
def test_a_reset_after_sending_means_that_it_may_have_run(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.reset()

        async with scripted(script) as server, session_to(server.url) as session:
            problem = await failed(sent(session))
            assert (problem.code, problem.phase, problem.executed) == (SOURCE_LOST, "sent", "unknown")
            assert not problem.retryable
            assert len(server.requests) == 1, "it is not sent again"

    run_on(loop_factory, main())


@both_loops
def test_failures_in_a_row_retire_the_session_and_one_success_forgets_them(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            message = parts(await peer.request())[2]
            if message["id"] == RETIRED_AFTER_FAILURES:
                await peer.send(ok(message))
            else:
                await peer.reset()

        async with scripted(script) as server, session_to(server.url) as session:
            for _ in range(RETIRED_AFTER_FAILURES - 1):
                await failed(sent(session))
            assert isinstance(await outcome(sent(session)), Result)
            for _ in range(RETIRED_AFTER_FAILURES - 1):
                await failed(sent(session))
            assert session.usable
            await failed(sent(session))
            assert not session.usable
            assert session.lost.result().code is SOURCE_LOST

    run_on(loop_factory, main())


# Sessions ------------------------------------------------------------------------------------------------------------


@pytest.mark.law
@both_loops
def test_a_tool_that_speaks_of_a_session_has_run_and_is_not_repeated(loop_factory: Loop) -> None:
    error = b'{"code":-32000,"message":"paid, then the browser session crashed"}'

    async def main() -> None:
        answer = lambda message: http(b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (message["id"], error), 400)  # noqa: E731
        async with scripted(answering(answer)) as server, session_to(server.url) as session:
            session.session_id = b"ours"
            assert await outcome(sent(session)) == RemoteError(error)
            assert session.usable

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    "answer",
    [
        http(b"", 404),
        http(b"Bad Request: No valid session ID provided", 400),
        http(b"Bad Request: Missing session ID", 400),
        http(b"Bad Request: Mcp-Session-Id header is required", 400),
        http(b"Bad Request: Server not initialized", 400),
    ],
)
def test_a_lost_session_hands_the_call_back_and_is_retired(loop_factory: Loop, answer: bytes) -> None:
    async def main() -> None:
        first = lambda message: http(result(message), Mcp_Session_Id="abc")  # noqa: E731
        async with scripted(answering(first, lambda _: answer)) as server, session_to(server.url) as session:
            taken: list[Request] = []
            session.resubmit = lambda request: taken.append(request) or True  # type: ignore[func-returns-value]
            await outcome(sent(session, b"{}", "initialize"))
            call = sent(session)
            await until(lambda: taken, "it is handed back")
            assert taken == [call]
            assert not call.done
            assert (call.phase, call.executed) == ("queued", "no")
            assert not session.usable
            assert not session.pending
            session.resubmit = lambda request: False
            problem = await failed(sent(session))
            assert (problem.code, problem.executed) == (SOURCE_LOST, "no")

    run_on(loop_factory, main())


@both_loops
def test_an_error_about_the_call_itself_is_no_lost_session_whatever_it_says(loop_factory: Loop) -> None:
    error = b'{"code":-32602,"message":"missing argument: session_id"}'

    async def main() -> None:
        first = lambda message: http(result(message), Mcp_Session_Id="abc")  # noqa: E731
        own = lambda message: http(b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (message["id"], error), 400)  # noqa: E731
        async with scripted(answering(first, own)) as server, session_to(server.url) as session:
            session.resubmit = lambda request: pytest.fail("it must not be sent again")
            await outcome(sent(session, b"{}", "initialize"))
            assert await outcome(sent(session)) == RemoteError(error)
            assert session.usable

    run_on(loop_factory, main())


@both_loops
def test_404_without_a_session_is_an_ordinary_failure(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(answering(lambda _: http(b"", 404))) as server, session_to(server.url) as session:
            session.resubmit = lambda request: pytest.fail("nothing to take back")
            assert (await failed(sent(session))).code is SOURCE_PROTOCOL
            assert session.usable

    run_on(loop_factory, main())


@both_loops
def test_a_retired_session_lets_what_is_in_flight_end_by_itself(loop_factory: Loop) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer) -> None:
            message = parts(await peer.request())[2]
            if message["id"] == 1:
                await gate.wait()
                await peer.send(ok(message))
            else:
                await peer.reset()

        async with scripted(script) as server, session_to(server.url) as session:
            slow = sent(session)
            await until(lambda: server.requests, "the slow one arrived")
            for _ in range(RETIRED_AFTER_FAILURES):
                await failed(sent(session))
            assert not session.usable
            assert not slow.done
            gate.set()
            assert isinstance(await outcome(slow), Result)

    run_on(loop_factory, main())


# Walking away --------------------------------------------------------------------------------------------------------

GIVEN_UP = Failure(Problem(code=SOURCE_LOST, message="given up"))


@both_loops
@pytest.mark.parametrize("modern", [False, True])
def test_a_call_given_up_closes_its_stream_and_a_legacy_server_is_told(loop_factory: Loop, modern: bool) -> None:
    async def main() -> None:
        closed = asyncio.Event()

        async def script(peer: Peer) -> None:
            message = parts(await peer.request())[2]
            if message["method"] == "tools/call":
                await peer.wait_closed()
                closed.set()
            else:
                await peer.send(http(status=202))

        async with scripted(script) as server, session_to(server.url) as session:
            session.set_version("2026-07-28" if modern else "2025-06-18", modern=modern)
            call = sent(session)
            await until(lambda: server.requests, "it arrived")
            call.give_up(GIVEN_UP)
            await asyncio.wait_for(closed.wait(), at_most(15))
            if not modern:
                await until(lambda: len(posts(server)) == 2, "the server is told")
                assert posts(server)[1]["method"] == "notifications/cancelled"
                assert posts(server)[1]["params"] == {"requestId": 1}
            assert not session.pending
        assert len(posts(server)) == (1 if modern else 2)

    run_on(loop_factory, main())


@both_loops
def test_a_call_given_up_before_it_was_written_is_never_sent_nor_cancelled(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(answering(ok)) as server, session_to(server.url) as session:
            call = sent(session)
            assert call.phase == "queued"
            call.give_up(GIVEN_UP)
            assert isinstance(await outcome(sent(session)), Result)
            assert [message["id"] for message in posts(server)] == [2]

    run_on(loop_factory, main())


@pytest.mark.slow
@both_loops
def test_a_stream_that_stays_open_after_its_answer_does_not_hold_a_connection_for_ever(loop_factory: Loop) -> None:
    async def main() -> None:
        closed: list[int] = []

        async def script(peer: Peer) -> None:
            message = parts(await peer.request())[2]
            await peer.send(stream(event(result(message)), end=False))
            await peer.wait_closed()
            closed.append(message["id"])

        async with scripted(script) as server, session_to(server.url) as session:
            for _ in range(3):
                assert isinstance(await outcome(sent(session)), Result)
            await until(lambda: len(closed) == 3, "the connections are closed", 25)

    run_on(loop_factory, main())


# The server's own stream ---------------------------------------------------------------------------------------------


def listening(*answers: bytes | None) -> Callable[[Peer], Any]:
    """Answers to each GET in turn; None keeps the stream open until the client leaves."""
    left = list(answers)

    async def script(peer: Peer) -> None:
        await peer.request()
        answer = left.pop(0) if left else None
        if answer is not None:
            await peer.send(answer)
        else:
            await peer.send(stream(event(b'{"jsonrpc":"2.0","method":"last"}'), end=False))
            await peer.wait_closed()

    return script


@both_loops
def test_notifications_on_the_standalone_stream_are_heard_and_the_stream_is_kept_open(loop_factory: Loop) -> None:
    async def main() -> None:
        first = stream(b"retry: 100\n\n", event(b'{"jsonrpc":"2.0","method":"first"}'))
        async with scripted(listening(first, first, None)) as server, session_to(server.url) as session:
            heard: list[str] = []
            session.on_notification = lambda method, params: heard.append(method)
            session.set_version("2025-06-18", modern=False)
            session.open_stream()
            await until(lambda: heard == ["first", "first", "last"], "it is asked for again")
            _, headers, _ = parts(server.requests[0])
            assert headers["accept"] == "text/event-stream"
            assert headers["mcp-protocol-version"] == "2025-06-18"

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("status", [405, 404, 400])
def test_a_server_without_a_stream_is_asked_once(loop_factory: Loop, status: int) -> None:
    async def main() -> None:
        async with scripted(listening(http(b"", status))) as server, session_to(server.url) as session:
            session.open_stream()
            assert session._listener is not None
            await asyncio.wait_for(session._listener, at_most(15))
            assert len(server.requests) == 1
            assert session.usable

    run_on(loop_factory, main())


@both_loops
def test_closing_ends_the_stream_the_session_and_what_is_in_flight(loop_factory: Loop) -> None:
    async def main() -> None:
        first = lambda message: http(result(message), Mcp_Session_Id="abc")  # noqa: E731

        async def script(peer: Peer) -> None:
            while True:
                line, _, message = parts(await peer.request())
                if line.startswith("DELETE"):
                    await peer.send(http())
                elif message is not None and message["method"] == "initialize":
                    await peer.send(first(message))
                else:
                    await peer.wait_closed()
                    return

        async with scripted(script) as server:
            async with session_to(server.url) as session:
                await outcome(sent(session, b"{}", "initialize"))
                session.open_stream()
                call = sent(session)
                await until(lambda: len(server.requests) == 3, "stream and call arrived")
            problem = await failed(call)
            assert (problem.code, problem.executed) == (SOURCE_LOST, "unknown")
            deleted = [parts(request)[1] for request in server.requests if request.startswith(b"DELETE")]
            assert [headers["mcp-session-id"] for headers in deleted] == ["abc"]

    run_on(loop_factory, main())


@both_loops
def test_a_notification_that_is_never_accepted_gives_its_connection_back(
    loop_factory: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_session, "_NOTIFICATION_S", at_most(1))

    async def main() -> None:
        async with scripted(never_answers) as server, session_to(server.url) as session:
            for _ in range(5):
                session.notify("notifications/cancelled", b'{"requestId":1}')
            await until(lambda: len(server.peers) == 5, "each has a connection")
            await until(lambda: not server.open, "which is closed after a while")
            assert session.usable

    async def never_answers(peer: Peer) -> None:
        await peer.request()
        await peer.wait_closed()

    run_on(loop_factory, main())


@both_loops
def test_a_retired_session_is_settled_when_its_calls_are_answered(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(late) as server, session_to(server.url) as session:
            call = sent(session)
            await until(lambda: server.peers, "it is on its way")
            session.retire(session.problem(SOURCE_LOST, "lost our session"))
            leaving = asyncio.ensure_future(close_session(session))
            await asyncio.sleep(0.1)
            assert not call.done
            answer_now.set()
            await leaving
            assert isinstance(call.outcome, Result)

    answer_now = asyncio.Event()

    async def late(peer: Peer) -> None:
        _, _, message = parts(await peer.request())
        await answer_now.wait()
        await peer.send(ok(message))
        await peer.wait_closed()

    run_on(loop_factory, main())


# Headers of one call -------------------------------------------------------------------------------------------------


@both_loops
def test_headers_of_one_call_go_to_a_modern_server_with_that_call_alone(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(answering(ok)) as server, session_to(server.url) as session:
            for modern in (True, False):
                session.set_version("2026-07-28" if modern else "2025-11-25", modern=modern)
                call = new_call()
                call.headers = [(b"mcp-param-region", b"us"), (b"mcp-param-empty", b"")]
                session.send(call)
                await outcome(call)
                await outcome(sent(session))
            first, second, *legacy = (parts(request)[1] for request in server.requests)
            assert (first["mcp-param-region"], first["mcp-param-empty"]) == ("us", "")
            assert not [name for headers in (second, *legacy) for name in headers if name.startswith("mcp-param")]

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_task_is_named_in_a_header_and_a_notification_says_its_method(loop_factory: Loop, method: str) -> None:
    async def main() -> None:
        async with scripted(answering(ok)) as server, session_to(server.url) as session:
            session.set_version("2026-07-28", modern=True)
            await outcome(sent(session, b'{"taskId":"abc"}', method))
            session.notify("notifications/some", b"{}")
            await until(lambda: len(server.requests) == 2, "both arrive")
            task, notification = (parts(request)[1] for request in server.requests)
            assert (task["mcp-method"], task["mcp-name"]) == (method, "abc")
            assert notification["mcp-method"] == "notifications/some"
            assert "mcp-name" not in notification

    run_on(loop_factory, main())


@both_loops
def test_a_call_whose_headers_are_refused_may_be_taken_back(loop_factory: Loop) -> None:
    async def main() -> None:
        body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"no"}}'
        async with scripted(answering(lambda _: http(body, 400))) as server, session_to(server.url) as session:
            session.set_version("2026-07-28", modern=True)
            assert isinstance(await outcome(sent(session)), RemoteError)
            taken: list[Call] = []

            def take(call: Call) -> bool:
                taken.append(call)
                return True

            session.resend_with_headers = take
            call = sent(session)
            await until(lambda: taken == [call], "it is handed over")
            assert (call.done, call.upstream, session.pending) == (False, None, {})

    run_on(loop_factory, main())


@both_loops
def test_long_names_are_mirrored_and_not_remembered(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(answering(ok)) as server, session_to(server.url) as session:
            session.set_version("2026-07-28", modern=True)
            uris = [f"x://{number}/" + "y" * 5000 for number in range(3)]
            before = len(session._heads)
            for uri in uris:
                await outcome(sent(session, json.dumps({"uri": uri}).encode(), "resources/read"))
            assert [parts(request)[1]["mcp-name"] for request in server.requests] == uris
            assert len(session._heads) == before

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
def test_a_server_that_repeats_our_credential_does_not_tell_it_to_callers(loop_factory: Loop) -> None:
    async def main() -> None:
        def repeats(_: Any) -> bytes:
            body = b"x" * 110 + b"key s3cr3t-value was wrong"
            return b"HTTP/1.1 500 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

        async with scripted(answering(repeats)) as server, session_to(server.url) as session:
            session.redact = lambda text: text.replace("s3cr3t-value", "***")
            problem = await failed(sent(session))
            assert "s3cr" not in problem.message
            assert problem.message.endswith("xkey *** wa'")

    run_on(loop_factory, main())
