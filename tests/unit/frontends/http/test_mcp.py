from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path

import pytest
from tests.support.client import CLIENT_INFO, LEGACY, MODERN, encode
from tests.support.http_wire import Reply, Wire, fetch, request_bytes
from tests.support.stopping import StoppingLoop, running
from tests.support.waiting import until
from tests.unit.frontends.rig import House, answered, code, echo, house, run_on
from tests.unit.router.fakes import OK

from trunkline.core.call import Call, RemoteError, Result
from trunkline.frontends.http.sessions import HttpSession

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
INITIALIZE = encode(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT_INFO},
    }
)


async def posted(here: House, body: bytes, headers: dict[str, str] | None = None, path: str = "/mcp") -> Reply:
    return await fetch(here.port, "POST", path, {**JSON, **(headers or {})}, body)


# Methods, types, sizes -----------------------------------------------------------------------------------------------


async def test_http_around_the_protocol_is_checked(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for method in ("PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"):
            async with await Wire.connect(here.port) as wire:
                await wire.send(request_bytes(method, "/mcp"))
                reply = await wire.read_head()
                assert (reply.status, reply.headers["allow"]) == (405, "GET, POST, DELETE")
        assert (await posted(here, PING, path="/other")).status == 404
        assert (await posted(here, PING, path="/mcp//")).status == 404
        for kind in ("text/plain", "", "application/jsonx", "application/x-www-form-urlencoded", "text/json"):
            assert (await posted(here, PING, {"Content-Type": kind})).status == 415
        for accept in ("text/html", "image/*", "application/xml"):
            assert (await posted(here, PING, {"Accept": accept})).status == 406
        for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;x=y"):
            assert (await posted(here, INITIALIZE, {"Content-Type": kind})).status == 200


@pytest.mark.parametrize(
    ("body", "status", "number"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', 400, -32700),
        (b"[%b]" % PING, 400, -32600),
        (b"null", 400, -32600),
        (b'{"id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}', 400, -32600),
    ],
)
async def test_what_is_no_message_is_refused_with_its_code(
    tmp_path: Path, body: bytes, status: int, number: int
) -> None:
    async with house(tmp_path) as here:
        reply = await posted(here, body)
        assert (reply.status, code(reply)) == (status, number)


# Legacy sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_initialize_opens_a_session_of_the_version_asked_for(tmp_path: Path, version: str) -> None:
    async with house(tmp_path) as here:
        reply = await posted(here, INITIALIZE.replace(LEGACY.encode(), version.encode()))
        result = json.loads(reply.body)["result"]
        assert result["protocolVersion"] == version
        assert result["capabilities"] == {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "completions": {},
            "logging": {},
        }
        assert result["serverInfo"]["name"] == "trunkline"
        session = reply.headers["mcp-session-id"]
        assert len(session) >= 32
        assert session.isascii()
        assert (await posted(here, PING, {"Mcp-Session-Id": session})).status == 200


@pytest.mark.parametrize("version", ["2099-01-01", MODERN, "x"])
async def test_an_unknown_version_is_answered_with_our_latest_handshake_version(tmp_path: Path, version: str) -> None:
    async with house(tmp_path) as here:
        reply = await posted(here, INITIALIZE.replace(LEGACY.encode(), version.encode()))
        assert json.loads(reply.body)["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("version", [b"1", b"null", b"[]", b"1e400", b"9" * 5000, None])
async def test_a_handshake_without_a_version_opens_no_session(tmp_path: Path, version: bytes | None) -> None:
    async with house(tmp_path) as here:
        member = b"" if version is None else b'"protocolVersion":%b,' % version
        body = b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":{%b"capabilities":{}}}' % member
        reply = await posted(here, body)
        assert code(reply) in (-32602, -32600)
        assert json.loads(reply.body)["id"] == 7
        assert len(here.sessions) == 0


@pytest.mark.parametrize("info", [b'{"name":1e400}', b'{"name":{}}', b"[]", b"null", b"1", b'{"name":"x","name":"y"}'])
async def test_whatever_a_client_calls_itself_it_is_served(tmp_path: Path, info: bytes) -> None:
    async with house(tmp_path) as here:
        reply = await posted(here, INITIALIZE.replace(encode(CLIENT_INFO), info))
        assert json.loads(reply.body)["result"]["protocolVersion"] == LEGACY


async def test_requests_outside_a_session_are_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        reply = await posted(here, PING)
        assert (reply.status, json.loads(reply.body)["id"]) == (400, 1)
        for unknown in ("nonsense", "x" * 32, ""):
            reply = await posted(here, PING, {"Mcp-Session-Id": unknown})
            assert (reply.status, json.loads(reply.body)["id"]) == (404, 1)
        session = (await posted(here, INITIALIZE)).headers["mcp-session-id"]
        doubled = [("Mcp-Session-Id", session), ("mcp-session-id", session)]
        head = "".join(f"{name}: {value}\r\n" for name, value in [*JSON.items(), *doubled])
        async with await Wire.connect(here.port) as wire:
            text = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(PING)}\r\n\r\n"
            assert (await wire.ask(text.encode() + PING)).status == 400


@pytest.mark.law
async def test_a_session_belongs_to_whoever_opened_it(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session = here.sessions.create(HttpSession, "somebody else", 0.0)
        stolen = await posted(here, PING, {"Mcp-Session-Id": session.id})
        unknown = await posted(here, PING, {"Mcp-Session-Id": "x" * 32})
        assert stolen.status == 404
        assert stolen.body == unknown.body


async def test_a_deleted_session_is_unknown_and_its_calls_are_over(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        hanging = asyncio.ensure_future(client.call("s_t"))
        await until(lambda: here.source.held, "the call is on its way")
        assert (await client.delete()).status == 200
        assert (await hanging).error["code"] == 499
        assert here.source.forgotten == [client.session]
        assert (await client.post(PING)).status == 404
        assert (await client.delete()).status == 404


async def test_notifications_and_responses_are_accepted(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        for body in (
            b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e400}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
            b'{"jsonrpc":"2.0","id":1,"result":{}}',
            b'{"jsonrpc":"2.0","id":1,"error":{}}',
        ):
            reply = await client.post(body)
            assert (reply.status, reply.body) == (202, b""), body


async def test_a_version_header_we_do_not_serve_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        for version in ("2099-01-01", "x", ""):
            assert (await client.post(PING, {"MCP-Protocol-Version": version})).status == 400
        assert (await client.post(PING, {"MCP-Protocol-Version": "2025-11-25"})).status == 200


async def test_more_sessions_than_allowed_are_refused_while_all_are_in_use(tmp_path: Path) -> None:
    async with house(tmp_path, sessions=2) as here:
        clients = [await here.client().open() for _ in range(2)]
        async with clients[0].listen(), clients[1].listen():
            reply = await posted(here, INITIALIZE)
            assert (reply.status, code(reply)) == (429, 429)
            assert "mcp-session-id" not in reply.headers
        for client in clients:
            await client.close()


async def test_abandoned_sessions_refuse_nobody_and_the_longest_idle_one_gives_way(tmp_path: Path) -> None:
    async with house(tmp_path, sessions=3) as here:
        first, used, listening = [await here.client().open() for _ in range(3)]
        async with listening.listen():
            assert (await used.post(PING)).status == 200
            newcomer = await here.client().open()
            assert len(here.sessions) == 3
            assert (await first.post(PING)).status == 404, "it had been idle for longest"
            for client in (used, listening, newcomer):
                assert (await client.post(PING)).status == 200
        for client in (first, used, listening, newcomer):
            await client.close()


async def test_a_session_that_only_listens_gives_way_once_it_was_asked_nothing_for_too_long(tmp_path: Path) -> None:
    async with house(tmp_path, sessions=3, idle_s=100.0) as here:
        silent, silent_too, busy = [await here.client().open() for _ in range(3)]
        hanging = asyncio.ensure_future(busy.call("s_t"))
        await until(lambda: here.source.held, "the call is on its way")
        async with silent.listen() as stream, silent_too.listen(), busy.listen():
            for client in (silent, silent_too, busy):
                here.session(client).last_request_at -= 99
            assert (await posted(here, INITIALIZE)).status == 429, "they may be about to ask something"
            for client, more_s in ((silent, 3), (silent_too, 2), (busy, 4)):
                here.session(client).last_request_at -= more_s
            here.sessions.tick(asyncio.get_running_loop().time())
            newcomer = await here.client().open()
            assert [event async for event in stream] == [], "its stream has come to its end"
            assert (await silent.post(PING)).status == 404
            for client in (silent_too, busy, newcomer):
                assert (await client.post(PING)).status == 200
        here.source.held[0].finish(OK)
        assert (await hanging).result
        for client in (silent, silent_too, busy, newcomer):
            await client.close()


async def test_a_session_idle_for_too_long_ends_and_one_that_is_used_does_not(tmp_path: Path) -> None:
    async with house(tmp_path, idle_s=100.0) as here:
        now = asyncio.get_running_loop().time()
        idle, busy, listening = [await here.client().open() for _ in range(3)]
        hanging = asyncio.ensure_future(busy.call("s_t"))
        await until(lambda: here.source.held, "the call is on its way")
        async with listening.listen():
            here.sessions.tick(now + 99)
            assert len(here.sessions) == 3
            here.sessions.tick(now + 200)
            assert len(here.sessions) == 2
            assert (await idle.post(PING)).status == 404
        await until(lambda: not here.session(listening).stream, "it has left")
        here.sessions.tick(now + 250)
        assert len(here.sessions) == 2, "a client that listened until now was not idle"
        here.source.held[0].finish(OK)
        await hanging
        here.sessions.tick(now + 400)
        assert len(here.sessions) == 0
        for client in (idle, busy, listening):
            await client.close()


def test_a_client_that_asked_while_we_were_stopped_keeps_its_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path, idle_s=1.5) as here:
            client = await here.client().open()
            running().stop_for(1.7)  # longer than it may be idle, and past a tick of the clock
            assert (await client.post(PING)).status == 200
            await until(lambda: not len(here.sessions), "it ends all the same, once it is idle")
            await client.close()

    run_on(StoppingLoop, main())


# Calls ---------------------------------------------------------------------------------------------------------------


async def test_results_and_errors_pass_unchanged(tmp_path: Path) -> None:
    result = b'{"content":[],"x":1.10,"big":123456789012345678901234567890,"u":"\\u00e9\xc3\xa9", "isError" : true}'
    error = b'{"code":-32050,"message":"m","data":[1.50,{"a":null}]}'
    async with house(tmp_path) as here, here.client() as client:
        answer = await answered(here, client, Result(result))
        assert answer.raw == b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (answer.id, result)
        answer = await answered(here, client, RemoteError(error))
        assert answer.raw == b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (answer.id, error)
        assert answer.reply.status == 200


async def test_arguments_and_unknown_members_reach_the_source_and_our_own_do_not(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        here.source.on_submit = lambda call: here.source.held.append(call) or echo(call)
        body = (
            b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"_meta":{"progressToken":7,"traceparent":"00",'
            b'"a/b":\n[1.10]},"name":"s_t","arguments":{"z":1e400,\n"a":1},"task":{}}}'
        )
        reply = await client.post(body)
        assert json.loads(reply.body)["id"] == "x"
        assert b'{"name":"t","arguments":{"z":1e400,"a":1},"task":{}}' in reply.body
        (call,) = here.source.held
        assert call.meta == {"traceparent": b'"00"', "a/b": b"[1.10]"}
        assert call.wants_progress
        assert call.caller.session == client.session
        assert call.caller.client == "test"


@pytest.mark.parametrize(
    ("params", "number"),
    [
        ("{}", -32602),
        ('{"name":1}', -32602),
        ('{"name":null}', -32602),
        ('{"name":"s_t","arguments":[]}', -32602),
        ('{"name":"s_t","arguments":1}', -32602),
        ('{"name":"nobody"}', -32602),
        ('{"name":"s_t","name":"s_u"}', -32600),
        ('{"name":"s_t","_meta":[]}', -32600),
        ('{"name":"s_t","_meta":{"a":1,"a":2}}', -32600),
        ("[]", -32600),
        ("null", -32600),
    ],
)
async def test_a_call_that_makes_no_sense_reaches_nobody(tmp_path: Path, params: str, number: int) -> None:
    async with house(tmp_path) as here, here.client() as client:
        body = f'{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{params}}}'.encode()
        reply = await client.post(body)
        assert json.loads(reply.body)["id"] == 3
        assert code(reply) == number
        assert here.source.held == []


async def test_progress_turns_the_answer_into_a_stream_under_the_clients_own_token(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:

        def works(call: Call) -> None:
            assert call.on_notification is not None
            call.on_notification("notifications/progress", b'{"progress":0.10,"progressToken":99,"message":"m"}')
            call.on_notification("notifications/progress", b'{"progress":2,\n"progressToken":99,"x":{"y":1}}')
            call.finish(Result(b'{"a":\n1}'))

        here.source.on_submit = works
        answer = await client.call("s_t", meta={"progressToken": "mine"})
        assert answer.reply is not None
        assert answer.reply.streamed
        assert [notice["method"] for notice in answer.notices] == ["notifications/progress"] * 2
        assert [notice["params"] for notice in answer.notices] == [
            {"progress": 0.1, "progressToken": "mine", "message": "m"},
            {"progress": 2, "progressToken": "mine", "x": {"y": 1}},
        ]
        assert answer.result == {"a": 1}
        assert (await client.request("ping")).result == {}, "the connection is still good"


async def test_progress_with_doubtful_members_is_dropped_and_the_call_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:

        def works(call: Call) -> None:
            assert call.on_notification is not None
            call.on_notification("notifications/progress", b'{"progressToken":1,"progress":1,"progress":2}')
            call.on_notification("notifications/progress", b'{"progressToken":1,"progress":3}')
            call.finish(OK)

        here.source.on_submit = works
        answer = await client.call("s_t", meta={"progressToken": 1})
        assert [notice["params"]["progress"] for notice in answer.notices] == [3]
        assert answer.result == {"content": []}


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
async def test_a_client_that_takes_no_events_gets_none(tmp_path: Path, accept: str) -> None:
    async with house(tmp_path) as here, here.client(Accept=accept) as client:

        def works(call: Call) -> None:
            assert call.on_notification is not None
            call.on_notification("notifications/progress", b'{"progressToken":1,"progress":1}')
            call.finish(OK)

        here.source.on_submit = works
        answer = await client.call("s_t", meta={"progressToken": 1})
        assert answer.reply is not None
        assert not answer.reply.streamed
        assert answer.result == {"content": []}


async def test_a_client_that_takes_only_events_gets_everything_as_events(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client(Accept="text/event-stream") as client:
        here.source.on_submit = lambda call: call.finish(Result(b'{"a":\r\n1}')) and None
        answer = await client.call("s_t")
        assert answer.reply is not None
        assert answer.reply.streamed
        assert answer.result == {"a": 1}
        assert (await client.call("nobody")).error["code"] == -32602


async def test_http_1_0_gets_its_stream_without_chunks(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:

        def works(call: Call) -> None:
            assert call.on_notification is not None
            call.on_notification("notifications/progress", b'{"progressToken":1,"progress":1}')
            call.finish(OK)

        here.source.on_submit = works
        params = {"name": "s_t", "_meta": {"progressToken": 1}}
        body = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        async with await Wire.connect(here.port) as wire:
            await wire.send(client.post_bytes(body).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            reply = await wire.read()
            assert reply.headers["connection"] == "close"
            assert "transfer-encoding" not in reply.headers
            assert len(reply.events) == 2
            assert json.loads(reply.events[1])["result"] == {"content": []}


@pytest.mark.law
async def test_cancelling_a_call_reaches_it_and_still_gets_an_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, here.client() as other:
        calls = [asyncio.ensure_future(client.call("s_t", id=given)) for given in (1, "1")]
        await until(lambda: len(here.source.held) == 2, "both are on their way")
        assert (await other.cancel(1)).status == 202
        assert (await client.cancel(99)).status == 202
        assert not any(call.done for call in here.source.held)
        assert (await client.cancel("1")).status == 202
        assert (await calls[1]).error["code"] == 499
        assert [call.done for call in here.source.held] == [False, True]
        here.source.held[0].finish(OK)
        assert (await calls[0]).result == {"content": []}


async def test_an_id_in_flight_cannot_be_used_again_by_the_same_client(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, here.client() as other:
        first = asyncio.ensure_future(client.call("s_t", id=5))
        await until(lambda: here.source.held, "it is on its way")
        assert (await client.call("s_t", id=5)).error["code"] == -32600
        theirs = asyncio.ensure_future(other.call("s_t", id=5))
        await until(lambda: len(here.source.held) == 2, "the other client's is on its way")
        for call in here.source.held:
            call.finish(OK)
        assert not (await first).failed
        assert not (await theirs).failed
        here.source.on_submit = lambda call: call.finish(OK) and None
        assert not (await client.call("s_t", id=5)).failed


async def test_one_client_may_have_so_many_calls_in_flight_and_no_more(tmp_path: Path) -> None:
    async with house(tmp_path, max_calls=3) as here, here.client() as client, here.client() as other:
        calls = [asyncio.ensure_future(client.call("s_t")) for _ in range(3)]
        await until(lambda: len(here.source.held) == 3, "all are on their way")
        refused = await client.call("s_t")
        assert refused.situation == (429, "TL304", "no")
        assert not (await client.request("ping")).failed
        theirs = asyncio.ensure_future(other.call("s_t"))
        await until(lambda: len(here.source.held) == 4, "another client is served")
        for call in here.source.held:
            call.finish(OK)
        await asyncio.gather(*calls, theirs)


async def test_unknown_methods_are_refused_and_lists_have_one_page(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        assert (await client.request("prompts/lists")).error["code"] == -32601
        assert (await client.request("tools/list", {"cursor": "x"})).error["code"] == -32602
        assert await client.tool_names() == {"s_t", "s_u"}


# The standalone stream -----------------------------------------------------------------------------------------------


async def test_changes_of_the_list_are_told_on_the_stream_and_wait_for_it(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        here.rig.publish("s", "new")
        await until(lambda: here.session(client)._queued, "notifications wait")
        here.rig.publish("s", "newer")
        await asyncio.sleep(0.1)
        async with client.listen() as stream:
            assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
            here.rig.publish("s", "newest")
            assert json.loads(await anext(stream))["method"] == "notifications/tools/list_changed"
            assert await client.tool_names() == {"s_newest"}


async def test_notifications_that_wait_have_a_size_and_leave_room_for_server_requests(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        session = here.session(client)
        for number in range(200):
            session.send_notification(
                "s", "notifications/message", b'{"id":%d,"method":"%b"}' % (number, b"x" * 100_000)
            )
            session.send_notification("s", "notifications/x", b'{"n":%d}' % number)
        assert session.push is not None
        session.push(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
        async with client.listen() as stream:
            waited = [await anext(stream)]
            while b"roots/list" not in waited[-1]:
                waited.append(await anext(stream))
    assert len(waited) == 65
    assert 1_000_000 < sum(map(len, waited)) < 1_100_000


async def test_a_session_has_one_stream_at_a_time(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        async with client.listen():
            headers = {**client.headers, "Accept": "text/event-stream"}
            reply = await fetch(here.port, "GET", "/mcp", headers)
            assert reply.status == 409
        await until(lambda: not here.session(client).stream, "the first has left")
        async with client.listen() as stream:
            here.rig.publish("s", "new")
            assert await anext(stream)


async def test_a_stream_needs_a_session_and_a_client_that_takes_events(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client:
        events = {"Accept": "text/event-stream"}
        assert (await fetch(here.port, "GET", "/mcp", events)).status == 400
        assert (await fetch(here.port, "GET", "/mcp", {**events, "Mcp-Session-Id": "x"})).status == 404
        known = {"Mcp-Session-Id": str(client.session)}
        assert (await fetch(here.port, "GET", "/mcp", {**known, "Accept": "application/json"})).status == 406
        for method in ("GET", "DELETE"):
            reply = await fetch(here.port, method, "/mcp", {**known, **events, "MCP-Protocol-Version": MODERN})
            assert reply.status == 405


async def test_deleting_a_session_ends_its_stream(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as client, client.listen() as stream:
        await client.delete()
        assert [event async for event in stream] == []


async def test_a_session_that_has_ended_is_freed_without_the_collector(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        gc.disable()
        try:
            async with here.client() as client:
                assert client.session is not None
                session = weakref.ref(here.sessions.get(HttpSession, client.session.encode(), "local", 0.0))
                await client.delete()
            await until(lambda: session() is None, "the session is freed")
        finally:
            gc.enable()
