"""Message smuggling: no bytes of one peer become a second message for another, and values arrive unchanged."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import BROKE_PROTOCOL, Answer
from tests.support.client import MODERN, HttpClient, encode, modern_headers
from tests.support.fault.tools import FANCY
from tests.support.gateway import Gateway, stdio_gateway
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.shared_gateway import shared_gateway, visiting

SPELLINGS = (
    b'{"z":1,"a":{"float":1.10,"exponent":1e5,"big":123456789012345678901234567890,"minus":-0.0,'
    b'"escape":"\\u00e9\\/\\ud83d\\ude00","direct":"\xc3\xa9\xf0\x9f\x98\x80","empty":{},"list":[[],null,true]},'
    b'"m":0.1000000000000000055511151231257827}'
)
"""One object in spellings that any re-encoding would change."""

pytestmark = pytest.mark.law


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, StdioFaults]]:
    folder = tmp_path_factory.mktemp("smuggling")
    server = StdioFaults(folder, "s")
    with (
        HttpFaults(folder, "h") as plain,
        HttpFaults(folder, "stream", answers="sse") as streaming,
        HttpFaults(folder, "modern", era="modern") as modern,
        shared_gateway(Gateway(folder, *(each.entry() for each in (server, plain, streaming, modern)))) as gateway,
    ):
        yield gateway, server


@pytest.fixture
def gateway(place: tuple[Gateway, StdioFaults]) -> Gateway:
    return place[0]


@pytest.fixture
def server(place: tuple[Gateway, StdioFaults]) -> StdioFaults:
    place[1].forget()
    return place[1]


def call_bytes(tool: str, arguments: bytes, id_: bytes = b"1") -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"tools/call","params":{"name":"' + tool.encode()
        + b'","arguments":' + arguments + b"}}"
    )  # fmt: skip


async def answered(client: HttpClient, body: bytes) -> Answer:
    reply = await client.post(body)
    return Answer(reply.events[-1] if reply.streamed else reply.body, [], reply)


def calls_received(server: StdioFaults | HttpFaults) -> list[bytes]:
    return [message for message in server.messages() if b"tools/call" in message]


# From a client towards a server ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n", b"\n\n", b" \r \n\t"], ids=repr)
async def test_newlines_between_tokens_reach_a_stdio_server_as_one_message(
    gateway: Gateway, server: StdioFaults, newline: bytes
) -> None:
    async with visiting(gateway) as client:
        arguments = newline.join([b"{", b'"a"', b":", b"[", b"1", b",", b'{"b":2}', b"]", b"}"])
        assert (await answered(client, call_bytes("s_echo", arguments))).structured == {"a": [1, {"b": 2}]}
        body = newline + call_bytes("s_echo", b"{}").replace(b",", newline + b"," + newline) + newline
        assert not (await answered(client, body)).failed
    received = calls_received(server)
    assert len(received) == 2
    assert all(message.count(b"\n") == 1 and b"\r" not in message for message in received)
    assert not server.events("garbage")


async def test_a_raw_newline_inside_a_string_is_no_json_and_reaches_nobody(
    gateway: Gateway, server: StdioFaults
) -> None:
    smuggled = call_bytes("echo", b'{"smuggled":true}', b"2")
    async with visiting(gateway) as client:
        for newline in (b"\n", b"\r", b"\r\n"):
            answer = await answered(client, call_bytes("s_echo", b'{"x":"' + newline + smuggled + newline + b'"}'))
            assert answer.error["code"] == -32700
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
    assert len(calls_received(server)) == 1


DUPLICATES = {
    "method": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"s_echo","arguments":{}}}'
    ),
    "id": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"s_echo","arguments":{}}}',
    "params": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"params":{"name":"s_echo","arguments":{}}}',
    "name": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_fail","name":"s_echo","arguments":{}}}',
    "escaped name": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_fail","n\\u0061me":"s_echo","arguments":{}}}'
    ),
    "arguments": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_echo","arguments":{},"arguments":{"a":1}}}'
    ),
    "_meta": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"s_echo","arguments":{},"_meta":{"progressToken":1},"_meta":{"progressToken":2}}}'
    ),
    "in _meta": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"s_echo","arguments":{},"_meta":{"progressToken":1,"progressToken":2}}}'
    ),
}


@pytest.mark.parametrize("where", sorted(DUPLICATES))
async def test_a_key_given_twice_is_refused_and_the_server_sees_nothing(
    gateway: Gateway, server: StdioFaults, where: str
) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("s_counter")).structured == {"count": 0}
        answer = await answered(client, DUPLICATES[where])
        assert answer.error["code"] == -32600
        assert (await client.call("s_counter")).structured == {"count": 0}
    assert len(calls_received(server)) == 2


async def test_a_key_in_another_case_is_another_key(gateway: Gateway, server: StdioFaults) -> None:
    async with visiting(gateway) as client:
        body = call_bytes("s_echo", b"{}").replace(b'"params":{', b'"params":{"Name":"s_fail","NAME":"s_crash",')
        assert not (await answered(client, body)).failed
        missing = call_bytes("s_echo", b"{}").replace(b'"name"', b'"Name"')
        assert (await answered(client, missing)).error["code"] == -32602
        unknown = call_bytes("s_echo", b"{}").replace(b'"params"', b'"param\xc5\xbf"')
        assert (await answered(client, unknown)).error["code"] == -32602
    assert {event["tool"] for event in server.calls()} == {"echo"}


@pytest.mark.parametrize("name", ["s", "h", "modern"])
async def test_arguments_arrive_byte_for_byte(gateway: Gateway, name: str) -> None:
    async with visiting(gateway) as client:
        received = base64.b64decode((await answered(client, call_bytes(f"{name}_wire", SPELLINGS))).text)
        assert b'"arguments":' + SPELLINGS in received.replace(b'"arguments": ', b'"arguments":')
        assert json.loads(received)["params"]["name"] == "wire"


BROKEN_BY_CLIENT = {
    "not json": (b"{not json", {-32700}),
    "empty": (b"", {-32700, -32600}),
    "cut off": (call_bytes("s_echo", b"{}")[:-1], {-32700}),
    "two messages": (call_bytes("s_echo", b"{}") * 2, {-32700, -32600}),
    "bad utf-8": (call_bytes("s_echo", b'{"a":"\xff"}'), {-32700}),
    "bad utf-8 in the name": (call_bytes("s_echo", b"{}").replace(b"s_echo", b"s_\xff"), {-32700}),
    "lone surrogate bytes": (call_bytes("s_echo", b'{"a":"\xed\xa0\x80"}'), {-32700}),
    "nan": (call_bytes("s_echo", b'{"a":NaN}'), {-32700}),
    "infinity": (call_bytes("s_echo", b'{"a":-Infinity}'), {-32700}),
    "deep": (call_bytes("s_echo", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), {-32700, -32600}),
    "deep objects": (call_bytes("s_echo", b'{"a":' * 50_000 + b"1" + b"}" * 50_000), {-32700, -32600}),
    "deep outside": (b"[" * 100_000 + b"]" * 100_000, {-32700, -32600}),
    "a number": (b"1", {-32600}),
    "null": (b"null", {-32600}),
    "no version": (b'{"id":1,"method":"ping"}', {-32600}),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', {-32600}),
    "id object": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', {-32600}),
    "id float": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', {-32600}),
    "method number": (b'{"jsonrpc":"2.0","id":1,"method":5}', {-32600}),
    "params array": (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}', {-32600, -32602}),
    "name number": (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}', {-32602}),
    "byte order mark": (b"\xef\xbb\xbf" + call_bytes("s_echo", b"{}"), {-32700}),
}


async def test_what_is_not_a_request_is_refused_and_the_connection_lives(gateway: Gateway, server: StdioFaults) -> None:
    wrong: dict[str, Any] = {}
    async with visiting(gateway) as client:
        for name, (body, codes) in BROKEN_BY_CLIENT.items():
            answer = await answered(client, body)
            code = answer.message.get("error", {}).get("code")
            if code not in codes or (answer.reply and answer.reply.status >= 500):
                wrong[name] = (code, codes)
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
    assert not wrong
    assert len(calls_received(server)) == 1


@pytest.mark.parametrize("arguments", [b"[1]", b'"text"', b"5"], ids=repr)
async def test_arguments_that_are_no_object_are_refused(gateway: Gateway, arguments: bytes) -> None:
    """By the gateway or by the server: what counts is that there is one answer and that it says what is wrong."""
    async with visiting(gateway) as client:
        assert (await answered(client, call_bytes("s_echo", arguments))).error["code"] == -32602
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}


async def test_a_huge_integer_is_passed_on_as_it_is(gateway: Gateway) -> None:
    digits = b"9" * 4_000
    async with visiting(gateway) as client:
        received = (await answered(client, call_bytes("s_wire", b'{"n":' + digits + b"}"))).text
        assert digits in base64.b64decode(received)


# Headers of 2026-07-28 against the body -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Mcp-Name": "s_fail"},
        {"Mcp-Name": "S_ECHO"},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "Tools/Call"},
        {"Mcp-Name": ""},
        {"Mcp-Name": "=?base64?" + base64.b64encode(b"s_fail").decode() + "?="},
        {"Mcp-Name": "=?base64?%%%?="},
        {"Mcp-Name": "=?base64?/w==?="},
    ],
    ids=str,
)
async def test_a_header_that_differs_from_the_body_is_refused(
    gateway: Gateway, server: StdioFaults, headers: dict[str, str]
) -> None:
    async with gateway.modern() as client:
        message = client.message("tools/call", {"name": "s_echo", "arguments": {}})
        right = modern_headers("tools/call", message["params"])
        reply = await client.post(encode(message), {**right, **headers})
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32020)
        assert json.loads(reply.body)["id"] == message["id"]
        assert not (await client.call("s_echo", {"a": 1})).failed
    assert len(calls_received(server)) == 1


async def test_a_missing_or_doubled_header_is_refused(gateway: Gateway, server: StdioFaults) -> None:
    async with gateway.modern() as client:
        message = client.message("tools/call", {"name": "s_echo", "arguments": {}})
        for missing in ("Mcp-Name", "Mcp-Method"):
            headers = {**modern_headers("tools/call", message["params"])}
            del headers[missing]
            reply = await client.post(encode(message), headers)
            assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32020)
        headers = {**modern_headers("tools/call", message["params"]), "mcp-name": "s_fail"}
        reply = await client.post(encode(message), headers)
        assert reply.status == 400
        assert not (await client.call("s_echo", {"a": 1})).failed
    assert len(calls_received(server)) == 1


async def test_a_header_in_base64_is_compared_after_decoding(gateway: Gateway) -> None:
    async with gateway.modern() as client:
        message = client.message("tools/call", {"name": "s_echo", "arguments": {"a": 1}})
        encoded = "=?base64?" + base64.b64encode(b"s_echo").decode() + "?="
        reply = await client.post(
            encode(message), {**modern_headers("tools/call", message["params"]), "Mcp-Name": encoded}
        )
        assert client.answer(reply, message["id"]).structured == {"a": 1}


async def test_the_version_in_the_header_must_be_the_one_in_the_body(gateway: Gateway, server: StdioFaults) -> None:
    async with gateway.modern() as client:
        message = client.message("tools/call", {"name": "s_echo", "arguments": {}})
        headers = modern_headers("tools/call", message["params"])
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2027-01-01"
        reply = await client.post(encode(message), {**headers, "MCP-Protocol-Version": MODERN})
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, -32020)
        assert not (await client.call("s_echo", {"a": 1})).failed
    assert len(calls_received(server)) == 1


# From a server towards a client ---------------------------------------------------------------------------------------

PRETTY = b'{\r\n  "content": [\r\n    {"type": "text",\n\r "text": "pretty"}\r\n  ],\n\n"x":\r1.10}\r\n'


@pytest.mark.parametrize("progress_first", [False, True], ids=["json", "stream"])
async def test_newlines_in_an_answer_reach_an_http_client_as_one_frame(gateway: Gateway, progress_first: bool) -> None:
    async with visiting(gateway) as client:
        arguments = {"result": base64.b64encode(PRETTY).decode(), "progress_first": progress_first}
        meta = {"progressToken": 1} if progress_first else None
        answer = await client.call("h_verbatim", arguments, meta=meta)
        assert answer.result == json.loads(PRETTY)
        assert answer.reply is not None
        assert answer.reply.streamed is progress_first
        if progress_first:
            assert len(answer.reply.events) == 2


async def test_newlines_in_an_answer_reach_a_stdio_client_as_one_line(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "h") as server:
        async with stdio_gateway(tmp_path, server.entry()) as client:
            await client.open()
            before = len(client.lines)
            answer = await client.call("h_verbatim", {"result": base64.b64encode(PRETTY).decode()})
            assert answer.result == json.loads(PRETTY)
            assert len(client.lines) == before + 1
            assert b"\r" not in client.lines[-1]


@pytest.mark.parametrize("answers", ["json", "sse"])
async def test_a_raw_newline_in_a_servers_string_is_the_servers_fault(tmp_path: Path, answers: str) -> None:
    with HttpFaults(tmp_path, "h", answers=answers) as server:
        async with stdio_gateway(tmp_path, server.entry()) as client:
            await client.open()
            assert (await client.call("h_raw_newline")).situation == BROKE_PROTOCOL
            assert (await client.call("h_echo", {"a": 1})).structured == {"a": 1}
            assert not any(b"smuggled" in line for line in client.lines)


@pytest.mark.parametrize("name", ["s", "h", "stream"])
async def test_results_arrive_byte_for_byte(gateway: Gateway, name: str) -> None:
    result = b'{"content":[],"structuredContent":' + SPELLINGS + b',"x-unknown":{"b":1,"a":2.50},"_meta":{"v/k":null}}'
    arguments = {"result": base64.b64encode(result).decode()}
    async with visiting(gateway) as client:
        assert result in (await client.call(f"{name}_verbatim", arguments)).raw


async def test_a_definition_is_shown_as_its_server_wrote_it_but_for_the_name(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        assert (await client.call("s_fancy")).text == "fancy"
        raw = (await client.request("tools/list")).raw
        after_name = FANCY.partition(b'"name":"fancy",')[2]
        assert b'"s_fancy"' in raw
        assert after_name[:-1] in raw


async def test_an_error_of_the_servers_own_passes_unchanged(gateway: Gateway) -> None:
    async with visiting(gateway) as client:
        error = (await client.call("s_refuse")).error
        assert error == {"code": -32050, "message": "refused by the tool", "data": {"why": ["because", 1.5]}}
        assert (await client.call("s_fail")).result["isError"] is True


FORGED = '{"jsonrpc":"2.0","id":0,"result":{}}'


@pytest.mark.parametrize("method", [f'x"}}\n{FORGED}\n{{"x":"', 'x","id":0,"result":{},"x":"'], ids=["line", "member"])
async def test_the_name_of_a_notification_forges_no_answer(tmp_path: Path, method: str) -> None:
    async with stdio_gateway(tmp_path, StdioFaults(tmp_path, "s").entry()) as client:
        await client.open()
        before = len(client.lines)
        assert (await client.call("s_say", {"method": method})).text == "said"
        messages = [json.loads(line) for line in client.lines[before:]]
        assert {"jsonrpc": "2.0", "method": method, "params": {}} in messages
        assert sum("result" in message for message in messages) == 1
