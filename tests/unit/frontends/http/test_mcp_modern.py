from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.client import MODERN, encode, modern_headers, modern_meta
from tests.support.http_wire import Wire, fetch
from tests.support.waiting import until
from tests.unit.frontends.rig import answered, code, echo, house
from tests.unit.router.fakes import OK

from trunkline.core.call import RemoteError, Result
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.mcp.versions import LEGACY


async def test_a_modern_client_discovers_lists_and_calls_without_a_session(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        hello = (await client.request("server/discover")).result
        assert MODERN in hello["supportedVersions"]
        assert hello["resultType"] == "complete"
        assert hello["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "trunkline"
        listing = (await client.request("tools/list")).result
        assert [tool["name"] for tool in listing["tools"]] == ["s_t", "s_u"]
        assert (listing["resultType"], listing["ttlMs"], listing["cacheScope"]) == ("complete", 0, "private")
        here.source.on_submit = lambda call: here.source.held.append(call) or echo(call)
        answer = await client.call("s_t", {"a": 1}, meta={"traceparent": "00-x"})
        assert answer.result == {"resultType": "complete", "name": "t", "arguments": {"a": 1}}
        assert here.source.held[0].meta == {"traceparent": b'"00-x"'}
        assert here.source.held[0].caller.session is None
        assert len(here.sessions) == 0


@pytest.mark.parametrize(
    "result",
    [b'{"content":[],"a":1,"a":2,"x":{"resultType":1}}', b'{"\\u0061":1,"resultType":"input_required"}', b"{ }"],
)
async def test_any_result_reaches_a_modern_client(tmp_path: Path, result: bytes) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        answer = await answered(here, client, Result(result, result))
        assert answer.result["resultType"] in ("complete", "input_required")


async def test_an_answer_too_deep_to_be_read_again_is_still_answered(tmp_path: Path) -> None:
    deep = b'{"x":\n"\\u0061","deep":%b}' % (b"[" * 5000 + b"]" * 5000)
    async with house(tmp_path) as here, here.modern() as modern, here.client(Accept="text/event-stream") as legacy:
        for client in (modern, legacy):
            answer = await answered(here, client, Result(deep, deep))
            assert answer.situation == (502, "TL307", "unknown")


async def test_statuses_of_modern_answers_follow_their_errors(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        for method, params, status, number in (
            ("nothing/here", None, 404, -32601),
            ("initialize", None, 404, -32601),
            ("ping", None, 404, -32601),
            ("tools/call", {"name": "nobody"}, 400, -32602),
            ("tools/list", {"cursor": "x"}, 400, -32602),
        ):
            answer = await client.request(method, params)
            assert answer.reply is not None
            assert (answer.reply.status, answer.error["code"]) == (status, number)
        theirs = await answered(here, client, RemoteError(b'{"code":-32602,"message":"theirs"}'))
        assert theirs.error == {"code": -32602, "message": "theirs"}
        for number, status in ((-32602, 400), (-32601, 404), (-32021, 400), (-32603, 200), (7, 200)):
            theirs = await answered(here, client, RemoteError(b'{"code":%d,"message":"theirs"}' % number))
            assert theirs.reply is not None
            assert theirs.reply.status == status


@pytest.mark.law
async def test_headers_that_do_not_say_what_the_body_says_are_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        message = client.message("tools/call", {"name": "s_t", "arguments": {}})
        good = modern_headers("tools/call", message["params"])
        for name in good:
            for wrong in ({k: v for k, v in good.items() if k != name}, {**good, name: "other"}):
                reply = await client.post(encode(message), wrong)
                assert (reply.status, code(reply)) == (400, -32020), wrong
        for version in LEGACY:
            reply = await client.post(encode(message), {**good, "MCP-Protocol-Version": version})
            assert (reply.status, code(reply)) == (400, -32020), version
        assert here.source.held == []
        here.source.on_submit = echo
        assert (await client.post(encode(message), {**good, "Mcp-Name": "=?base64?c190?="})).status == 200


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_a_modern_request_without_what_it_must_carry_is_refused(tmp_path: Path, missing: str) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        meta = {name: value for name, value in modern_meta().items() if not name.endswith(missing)}
        body = encode({"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {"_meta": meta}})
        reply = await client.post(body, modern_headers("tools/list", {}))
        assert (reply.status, code(reply), json.loads(reply.body)["id"]) == (400, -32602, 4)


async def test_a_version_of_the_future_is_refused_with_those_we_serve(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        body = encode(client.message("tools/list", {})).replace(MODERN.encode(), b"2099-01-01")
        reply = await client.post(body, {**modern_headers("tools/list", {}), "MCP-Protocol-Version": "2099-01-01"})
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"]) == (400, -32022)
        assert error["data"]["requested"] == "2099-01-01"
        assert MODERN in error["data"]["supported"]


@pytest.mark.law
async def test_modern_notifications_are_accepted_and_cancel_nobody(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        hanging = asyncio.ensure_future(client.call("s_t", id=1))
        await until(lambda: here.source.held, "it is on its way")
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        body = encode({**message, "params": {"requestId": 1, "_meta": modern_meta()}})
        reply = await client.post(body, {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]})
        assert (reply.status, reply.body) == (202, b"")
        assert not here.source.held[0].done
        here.source.held[0].finish(OK)
        assert not (await hanging).failed
        response = encode({"jsonrpc": "2.0", "id": 1, "result": {}})
        assert (await client.post(response, {"MCP-Protocol-Version": MODERN})).status == 400


@pytest.mark.parametrize("given", [7, "seven"])
async def test_a_subscription_is_acknowledged_told_and_ended(tmp_path: Path, given: int | str) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        message = client.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=given)
        client.headers |= modern_headers("subscriptions/listen", message["params"])
        async with client.start_post(encode(message)) as wire:
            reply = await wire.read_head()
            assert reply.streamed
            events = wire.events(reply)
            first = json.loads(await anext(events))
            assert first["method"] == "notifications/subscriptions/acknowledged"
            assert first["params"]["notifications"] == {"toolsListChanged": True}
            here.rig.publish("s", "new")
            second = json.loads(await anext(events))
            assert second["method"] == "notifications/tools/list_changed"
            for event in (first, second):
                assert event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == given
            here.server.end_subscriptions()
            last = json.loads(await anext(events))
            assert last["id"] == given
            assert last["result"]["resultType"] == "complete"
            with pytest.raises(StopAsyncIteration):
                await anext(events)


async def test_a_subscriber_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        message = client.message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        client.headers |= modern_headers("subscriptions/listen", message["params"])
        async with client.start_post(encode(message)) as wire:
            await wire.read_head()
            assert len(here.server.listen_streams) == 1
        await until(lambda: not here.server.listen_streams, "it is forgotten")
        here.rig.publish("s", "new")
        await asyncio.sleep(0.1)


async def test_both_eras_are_served_side_by_side_on_one_connection(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.client() as legacy, await Wire.connect(here.port) as wire:
        modern = await here.modern().open()
        message = modern.message("tools/list", {})
        for _ in range(2):
            reply = await wire.ask(legacy.post_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}'))
            assert json.loads(reply.body) == {"jsonrpc": "2.0", "id": 1, "result": {}}
            reply = await wire.ask(modern.post_bytes(encode(message), modern_headers("tools/list", {})))
            assert json.loads(reply.body)["result"]["resultType"] == "complete"


async def test_headers_that_repeat_arguments_are_compared_with_them(tmp_path: Path) -> None:
    definition = {
        "name": "m",
        "inputSchema": {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "n": {"type": "integer"}},
        },
    }
    async with house(tmp_path) as here, here.modern() as client:
        here.rig.sinks["s"].publish(Snapshot(tools=(ToolDefinition("s", "m", encode(definition)),)))
        here.source.on_submit = echo
        message = client.message("tools/call", {"name": "s_m", "arguments": {"region": "Hello", "n": 1}})
        good = modern_headers("tools/call", message["params"])
        for value, status in (
            ("Hello", 200),
            ("=?base64?SGVsbG8=?=", 200),
            (None, 400),
            ("hello", 400),
            ("=?base64?SGVsbG8?=", 400),
            ("=?base64?SGVs!!!bG8=?=", 400),
        ):
            headers = good if value is None else {**good, "Mcp-Param-Region": value}
            reply = await client.post(encode(message), headers)
            assert reply.status == status, value
            assert status == 200 or code(reply) == -32020
        twice = client.post_bytes(encode(message), {**good, "Mcp-Param-Region": "Hello"})
        twice = twice.replace(b"Mcp-Param-Region: Hello", b"Mcp-Param-Region: Hello\r\nMcp-Param-Region: Hello")
        async with await Wire.connect(here.port) as wire:
            reply = await wire.ask(twice)
            assert (reply.status, code(reply)) == (400, -32020)


async def test_a_task_is_named_by_its_header(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            message = client.message(method, {"taskId": "abc"})
            for name in ({}, {"Mcp-Name": "abd"}):
                reply = await client.post(encode(message), {**modern_headers(method, {}), **name})
                assert (reply.status, code(reply)) == (400, -32020)
            reply = await client.post(encode(message), {**modern_headers(method, {}), "Mcp-Name": "abc"})
            assert code(reply) != -32020


async def test_a_level_nobody_knows_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        answer = await client.request("tools/list", {"_meta": {"io.modelcontextprotocol/logLevel": "loud"}})
        assert answer.reply is not None
        assert (answer.reply.status, answer.error["code"]) == (400, -32602)


async def test_there_is_nothing_to_get_or_delete(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        for method in ("GET", "DELETE"):
            for version in (MODERN, "2099-01-01"):
                headers = {"MCP-Protocol-Version": version, "Accept": "text/event-stream", "Mcp-Session-Id": "x"}
                reply = await fetch(here.port, method, "/mcp", {**headers, "Last-Event-ID": "0-0"})
                assert (reply.status, reply.headers["allow"]) == (405, "POST")


async def test_who_lists_a_stream_first_gets_one_except_where_the_status_says_what_is_wrong(tmp_path: Path) -> None:
    async with house(tmp_path) as here, here.modern() as client:
        client.headers["Accept"] = "text/event-stream, application/json"
        answer = await client.request("tools/list")
        assert answer.reply is not None
        assert answer.reply.streamed
        assert answer.reply.headers["x-accel-buffering"] == "no"
        assert b"id:" not in answer.reply.body.split(b"data:")[0]
        answer = await client.request("ping")
        assert answer.reply is not None
        assert answer.reply.status == 404


async def test_trace_headers_reach_the_server_in_meta_unless_the_message_says_otherwise(tmp_path: Path) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    trace = {"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}
    malformed = {"traceparent": "nonsense", "tracestate": "a=1", "baggage": "ü"}
    async with house(tmp_path) as here, here.modern() as modern, here.client() as legacy:
        here.source.on_submit = lambda call: here.source.held.append(call) or echo(call)
        for client in (modern, legacy):
            for headers, own, seen in (
                ({"traceparent": parent}, None, {"traceparent": parent}),
                (trace, None, trace),
                (trace, {"x": 1}, {"x": 1, **trace}),
                (trace, {"traceparent": "mine"}, {"traceparent": "mine", "baggage": "k=v"}),
                (malformed, None, {}),
            ):
                client.headers = {name: value for name, value in client.headers.items() if name not in trace} | headers
                assert not (await client.call("s_t", meta=own)).failed
                meta = here.source.held.pop().meta or {}
                assert {name: json.loads(value) for name, value in meta.items()} == seen, (headers, own)
        reply = await legacy.post(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}')
        assert code(reply) == -32600
