"""The HTTP frontend against clients that are hostile, slow or confused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.client import encode
from tests.support.gateway import TRUNKLINE, Gateway, write_config
from tests.support.http_wire import Wire, fetch, request_bytes
from tests.support.ports import free_port
from tests.support.servers import StdioFaults
from tests.support.shared_gateway import shared_gateway
from tests.support.waiting import at_most

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
BOTH = "application/json, text/event-stream"
INITIALIZE = encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
)
JSON_HEADERS = {"Content-Type": "application/json", "Accept": BOTH}
ROUTES = ["/mcp", "/healthz", "/readyz", "/metrics", "/"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("frontend")
    with shared_gateway(Gateway(folder, StdioFaults(folder, "s").entry(sessions="shared"))) as running:
        yield running


# Host and Origin ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
async def test_a_foreign_host_is_refused_on_every_route(gateway: Gateway, route: str) -> None:
    wrong: dict[str, int] = {}
    hosts = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "x/health?",
        "x#",
        "x/..",
        "",
        "127.0.0.1@evil",
    ]
    for host in hosts:
        async with await Wire.connect(gateway.port) as wire:
            reply = await wire.ask(host_request(route, host))
            if reply.status not in (400, 403, 421):
                wrong[host] = reply.status
    assert not wrong


def host_request(route: str, host: str | None) -> bytes:
    if route == "/mcp":
        return request_bytes("POST", route, JSON_HEADERS, INITIALIZE, host=host)
    return request_bytes("GET", route, host=host)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_request_with_two_hosts_or_none_is_refused(gateway: Gateway, route: str) -> None:
    two = host_request(route, f"127.0.0.1:{gateway.port}").replace(b"\r\n", b"\r\nHost: evil.example\r\n", 1)
    for request in (two, host_request(route, None)):
        async with await Wire.connect(gateway.port) as wire:
            assert (await wire.ask(request)).status in (400, 421)


async def test_an_absolute_target_does_not_get_round_the_host_check(gateway: Gateway) -> None:
    async with await Wire.connect(gateway.port) as wire:
        request = request_bytes("POST", "http://evil.example/mcp", JSON_HEADERS, INITIALIZE, host="evil.example")
        assert (await wire.ask(request)).status in (400, 403, 404, 421)
    async with await Wire.connect(gateway.port) as wire:
        request = request_bytes("POST", "http://evil.example/mcp", JSON_HEADERS, INITIALIZE)
        assert (await wire.ask(request)).status in (400, 403, 404, 421)


async def test_every_name_of_loopback_is_a_good_host(gateway: Gateway) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        for given in (host, f"{host}:{gateway.port}"):
            async with await Wire.connect(gateway.port) as wire:
                assert (await wire.ask(host_request("/mcp", given))).status == 200, given


async def test_a_configured_host_is_a_good_host(tmp_path: Path) -> None:
    with Gateway(tmp_path, allowed_hosts=["tools.example"]) as gateway:
        async with await Wire.connect(gateway.port) as wire:
            assert (await wire.ask(host_request("/mcp", "tools.example"))).status == 200
            assert (await wire.ask(host_request("/mcp", "other.example"))).status in (403, 421)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_foreign_origin_is_refused_on_every_route(gateway: Gateway, route: str) -> None:
    wrong: dict[str, int] = {}
    for origin in (
        "http://evil.example",
        "https://localhost.evil.example",
        "http://127.0.0.1.nip.io",
        "null",
        "file://",
        "http://localhost@evil.example",
        "garbage",
    ):
        body = INITIALIZE if route == "/mcp" else None
        headers = {**JSON_HEADERS, "Origin": origin}
        reply = await fetch(gateway.port, "POST" if body else "GET", route, headers, body)
        if reply.status != 403:
            wrong[origin] = reply.status
    assert not wrong


async def test_our_own_origin_and_no_origin_are_welcome(gateway: Gateway) -> None:
    for host in (f"127.0.0.1:{gateway.port}", f"localhost:{gateway.port}", "localhost"):
        headers = {**JSON_HEADERS, "Origin": f"http://{host}"}
        reply = await fetch(gateway.port, "POST", "/mcp", headers, INITIALIZE, host=host)
        assert reply.status == 200, host
    assert (await fetch(gateway.port, "POST", "/mcp", JSON_HEADERS, INITIALIZE)).status == 200


# Credentials ----------------------------------------------------------------------------------------------------------

TOKEN = "correct-horse-battery-staple"
REFUSED = {
    "none": {},
    "empty": {"Authorization": ""},
    "no token": {"Authorization": "Bearer"},
    "another scheme": {"Authorization": "Basic " + TOKEN},
    "no scheme": {"Authorization": TOKEN},
    "wrong": {"Authorization": "Bearer wrong"},
    "too long": {"Authorization": f"Bearer {TOKEN}x"},
    "too short": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "in another case": {"Authorization": f"Bearer {TOKEN.upper()}"},
    "not ascii": {"Authorization": "Bearer \xe9"},
    "in a cookie": {"Cookie": f"token={TOKEN}"},
    "of a proxy": {"Proxy-Authorization": f"Bearer {TOKEN}"},
}


@pytest.mark.law
async def test_without_the_token_no_protected_route_answers(tmp_path: Path) -> None:
    wrong: dict[str, int] = {}
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        for kind, headers in REFUSED.items():
            for method, route in (("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/metrics")):
                body = INITIALIZE if method == "POST" else None
                reply = await fetch(gateway.port, method, route, {**JSON_HEADERS, **headers}, body)
                if reply.status != 401 or "www-authenticate" not in reply.headers:
                    wrong[f"{method} {route} {kind}"] = reply.status
        in_query = await fetch(gateway.port, "POST", f"/mcp?access_token={TOKEN}", JSON_HEADERS, INITIALIZE)
        assert in_query.status == 401
        assert not wrong


@pytest.mark.law
async def test_with_the_token_everything_works(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with gateway.client(headers=headers) as client:
            assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
            seen = (await client.call("s_env")).structured
        reply = await fetch(
            gateway.port, "POST", "/mcp", {**JSON_HEADERS, "Authorization": f"bearer {TOKEN}"}, INITIALIZE
        )
        assert reply.status == 200
        assert TOKEN not in str(seen)
        assert TOKEN not in gateway.log


@pytest.mark.law
async def test_a_session_needs_the_token_on_every_request(tmp_path: Path) -> None:
    with Gateway(tmp_path, StdioFaults(tmp_path, "s").entry(), token=TOKEN) as gateway:
        async with gateway.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            del client.headers["Authorization"]
            assert (await client.post(PING)).status == 401
            client.headers["Authorization"] = f"Bearer {TOKEN}"
            assert (await client.post(PING)).status == 200


@pytest.mark.law
@pytest.mark.parametrize("listen", ["0.0.0.0", "[::]", "192.0.2.1"])
def test_listening_beyond_loopback_without_a_token_is_refused_at_start(tmp_path: Path, listen: str) -> None:
    config = write_config(tmp_path, listen=f"{listen}:{free_port()}")
    ended = subprocess.run([TRUNKLINE, "up", "-c", str(config)], capture_output=True, text=True, timeout=at_most(30))
    assert ended.returncode == 2
    assert "TL112" in ended.stderr
    assert not ended.stdout


# HTTP that is wrong ---------------------------------------------------------------------------------------------------

HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: " + BOTH.encode() + b"\r\n"
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BAD_HTTP = {
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": HEAD + b"Content-Length: 40\r\nContent-Length: 0\r\n\r\n" + PING + SMUGGLED,
    "a list of lengths": HEAD + b"Content-Length: 40, 0\r\n\r\n" + PING + SMUGGLED,
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n" + SMUGGLED,
    "a length with a sign": HEAD + b"Content-Length: +40\r\n\r\n" + PING + SMUGGLED,
    "a length in hex": HEAD + b"Content-Length: 0x28\r\n\r\n" + PING + SMUGGLED,
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a bad chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + SMUGGLED,
    "a space before the colon": HEAD + b"Content-Length : 40\r\n\r\n" + PING + SMUGGLED,
    "a folded header": HEAD + b"X-A: b\r\n Content-Length: 40\r\n\r\n" + SMUGGLED,
    "a NUL in a header": HEAD + b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "no version": b"POST /mcp\r\n\r\n" + SMUGGLED,
    "a version from the future": b"POST /mcp HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n" + SMUGGLED,
    "not HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40 + b"\r\n\r\n" + SMUGGLED,
}


@pytest.mark.law
@pytest.mark.parametrize("what", sorted(BAD_HTTP))
async def test_ambiguous_http_is_refused_and_nothing_behind_it_is_read(gateway: Gateway, what: str) -> None:
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(BAD_HTTP[what])
        wire.writer.write_eof()
        received = await wire.read_to_end()
    statuses = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
    assert all(400 <= status < 500 or status in (501, 505) for status in statuses), received[:300]
    assert len(statuses) <= 1, "what came behind was taken for a request"
    assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


async def test_requests_sent_ahead_are_answered_in_order(gateway: Gateway) -> None:
    async with gateway.client() as client:
        tools = [("s_sleep", {"seconds": 0.5}), ("s_echo", {"n": 1}), ("s_echo", {"n": 2})]
        bodies = [
            encode(
                {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": args}}
            )
            for number, (name, args) in enumerate(tools)
        ]
        async with await Wire.connect(gateway.port) as wire:
            await wire.send(b"".join(client.post_bytes(body) for body in bodies))
            replies = [await wire.read() for _ in tools]
        assert [client.answer(reply, number).id for number, reply in enumerate(replies)] == [0, 1, 2]


async def test_http_1_0_is_answered_and_closed(gateway: Gateway) -> None:
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        received = await wire.read_to_end()
    status = int(received.split(b" ")[1])
    assert status in (200, 400, 426, 505)
    assert b"chunked" not in received.lower()


async def test_a_request_in_single_bytes_is_understood(gateway: Gateway) -> None:
    async with gateway.client() as client, await Wire.connect(gateway.port) as wire:
        for byte in client.post_bytes(PING):
            await wire.send(bytes([byte]))
        assert (await wire.read()).status == 200


async def test_a_request_in_chunks_is_understood(gateway: Gateway) -> None:
    async with gateway.client() as client, await Wire.connect(gateway.port) as wire:
        head = request_bytes("POST", "/mcp", {**client.headers, "Transfer-Encoding": "chunked"})
        chunks = b"".join(f"{len(part):x};x=y\r\n".encode() + part + b"\r\n" for part in (PING[:7], PING[7:]))
        assert (await wire.ask(head + chunks + b"0\r\n\r\n")).status == 200


async def test_a_client_that_expects_100_continue_gets_its_answer(gateway: Gateway) -> None:
    async with gateway.client() as client, await Wire.connect(gateway.port) as wire:
        request = client.post_bytes(PING, {"Expect": "100-continue"})
        head, _, body = request.partition(b"\r\n\r\n")
        await wire.send(head + b"\r\n\r\n")
        first = await wire.read_head()
        if first.status == 100:
            first = await wire.ask(body)
        assert first.status in (200, 417)


# Sizes and time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
async def test_a_body_over_the_limit_is_refused(gateway: Gateway, chunked: bool) -> None:
    size = 5 * 1024 * 1024
    head = {**JSON_HEADERS, **({"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(size)})}
    async with await Wire.connect(gateway.port) as wire:
        await wire.send(request_bytes("POST", "/mcp", head))
        part = b" " * 65_536
        framed = b"10000\r\n" + part + b"\r\n" if chunked else part
        try:
            for _ in range(size // len(part)):
                await wire.send(framed)
        except ConnectionError:
            pass
        reply = await wire.read_head()
        assert reply.status == 413
    assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


async def test_a_body_under_the_limit_arrives(gateway: Gateway) -> None:
    async with gateway.client() as client:
        text = "x" * (3 * 1024 * 1024)
        assert (await client.call("s_echo", {"text": text})).structured == {"text": text}


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Big: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Many: y\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["one header", "many headers", "target"],
)
async def test_a_head_over_the_limit_is_refused(gateway: Gateway, request_head: bytes) -> None:
    async with await Wire.connect(gateway.port) as wire:
        try:
            await wire.send(request_head)
            status = (await wire.read_head()).status
        except (ConnectionError, asyncio.IncompleteReadError):
            status = 431  # cut off before the reply could be read: refused as well
        assert status in (400, 413, 414, 431)
    assert (await fetch(gateway.port, "GET", "/healthz")).status == 200


SLOW_BEGINNINGS = {
    "head": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    "body": HEAD + b"Content-Length: 100\r\n\r\n{",
    "chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    "nothing": b"",
}


@pytest.mark.slow
async def test_slow_senders_are_cut_and_others_are_served_meanwhile(gateway: Gateway) -> None:
    waiting = set(SLOW_BEGINNINGS)

    async def send_slowly(what: str) -> None:
        async with await Wire.connect(gateway.port) as wire:
            await wire.send(SLOW_BEGINNINGS[what])
            while True:
                try:
                    async with asyncio.timeout(0.5):
                        if not await wire.reader.read(1000):
                            break
                except TimeoutError:
                    if SLOW_BEGINNINGS[what]:
                        wire.writer.write(b" ")
                except ConnectionError:
                    break
        waiting.discard(what)

    async with gateway.client() as other, asyncio.TaskGroup() as group:
        senders = [group.create_task(send_slowly(what)) for what in SLOW_BEGINNINGS]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most(45)):
                while waiting:
                    assert (await other.call("s_echo", {"a": 1})).structured == {"a": 1}
                    await asyncio.sleep(0.1)
        for sender in senders:
            sender.cancel()
    assert not waiting


# Content types, routes, sessions --------------------------------------------------------------------------------------


async def test_a_body_that_is_not_said_to_be_json_is_refused(gateway: Gateway) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonx"):
        headers = {**JSON_HEADERS, "Content-Type": kind}
        assert (await fetch(gateway.port, "POST", "/mcp", headers, INITIALIZE)).status == 415, kind
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"):
        headers = {**JSON_HEADERS, "Content-Type": kind}
        assert (await fetch(gateway.port, "POST", "/mcp", headers, INITIALIZE)).status == 200, kind


async def test_a_client_that_accepts_neither_answer_type_is_told(gateway: Gateway) -> None:
    headers = {**JSON_HEADERS, "Accept": "text/html"}
    assert (await fetch(gateway.port, "POST", "/mcp", headers, INITIALIZE)).status == 406
    for accept in (BOTH, "text/event-stream, application/json", "application/json;q=0.9, text/event-stream;q=0.1"):
        headers = {**JSON_HEADERS, "Accept": accept}
        assert (await fetch(gateway.port, "POST", "/mcp", headers, INITIALIZE)).status == 200, accept


async def test_unknown_routes_and_methods_are_refused(gateway: Gateway) -> None:
    for route in ("/nope", "/mcp/x", "/../mcp", "//mcp", "/healthz/"):
        assert (await fetch(gateway.port, "GET", route)).status in (400, 404), route
    for method in ("PUT", "PATCH"):
        assert (await fetch(gateway.port, method, "/mcp", JSON_HEADERS, PING)).status == 405
    assert (await fetch(gateway.port, "POST", "/healthz", {}, b"")).status in (404, 405)


async def test_an_unknown_session_is_404_with_the_id_of_the_request(gateway: Gateway) -> None:
    async with gateway.client() as client:
        client.headers["Mcp-Session-Id"] = "0123456789abcdef"
        body = b'{"jsonrpc":"2.0","id":"mine","method":"ping"}'
        reply = await client.post(body)
        assert reply.status == 404
        assert json.loads(reply.body)["id"] == "mine"
        assert (await client.delete()).status == 404
        listening = await fetch(gateway.port, "GET", "/mcp", {**client.headers, "Accept": "text/event-stream"})
        assert listening.status == 404


async def test_a_request_without_its_session_is_refused(gateway: Gateway) -> None:
    headers = {**JSON_HEADERS, "MCP-Protocol-Version": "2025-06-18"}
    assert (await fetch(gateway.port, "POST", "/mcp", headers, PING)).status == 400


async def test_an_ended_session_is_gone(gateway: Gateway) -> None:
    async with gateway.client() as client:
        assert (await client.post(PING)).status == 200
        assert (await client.delete()).status in (200, 204)
        assert (await client.post(PING)).status == 404
        assert (await client.delete()).status == 404


async def test_session_ids_are_long_and_differ(gateway: Gateway) -> None:
    seen: set[str] = set()
    for _ in range(20):
        reply = await fetch(gateway.port, "POST", "/mcp", JSON_HEADERS, INITIALIZE)
        session = reply.headers["mcp-session-id"]
        assert all(0x21 <= ord(character) <= 0x7E for character in session)
        assert len(session) >= 22  # 128 bits in base64
        seen.add(session)
    assert len(seen) == 20


async def test_sessions_beyond_the_limit_are_refused_until_one_ends(tmp_path: Path) -> None:
    with Gateway(tmp_path, limits={"sessions": 2}) as gateway:
        async with gateway.client() as one, gateway.client() as two, one.listen(), two.listen():
            reply = await fetch(gateway.port, "POST", "/mcp", JSON_HEADERS, INITIALIZE)
            assert reply.status == 429
            assert json.loads(reply.body)["error"]["data"]["code"] == "TL405"
            assert (await one.post(PING)).status == 200
            await one.delete()
            assert (await fetch(gateway.port, "POST", "/mcp", JSON_HEADERS, INITIALIZE)).status == 200


async def test_an_unsupported_protocol_version_is_refused(gateway: Gateway) -> None:
    async with gateway.client() as client:
        assert (await client.post(PING, {"MCP-Protocol-Version": "1999-01-01"})).status == 400


async def test_the_new_protocol_has_neither_get_nor_delete(gateway: Gateway) -> None:
    for method in ("GET", "DELETE"):
        headers = {"MCP-Protocol-Version": "2026-07-28", "Accept": BOTH}
        assert (await fetch(gateway.port, method, "/mcp", headers)).status == 405


async def test_both_eras_share_one_url(gateway: Gateway) -> None:
    async with gateway.client() as legacy, gateway.modern() as modern:
        assert (await legacy.call("s_echo", {"a": 1})).structured == {"a": 1}
        answer = await modern.call("s_echo", {"a": 2})
        assert answer.structured == {"a": 2}
        assert answer.result["resultType"] == "complete"
        assert "2026-07-28" in (await modern.request("server/discover")).result["supportedVersions"]
        listed = (await modern.request("tools/list")).result
        assert {"ttlMs", "cacheScope", "tools"} <= listed.keys()
        unknown = await modern.request("no/such")
        assert unknown.error["code"] == -32601
        assert unknown.reply is not None
        assert unknown.reply.status == 404


async def test_ten_thousand_idle_bytes_between_requests_do_no_harm(gateway: Gateway) -> None:
    async with gateway.client() as client, await Wire.connect(gateway.port) as wire:
        for _ in range(5):
            assert (await wire.ask(client.post_bytes(PING))).status == 200
            await wire.send(b"\r\n")


async def test_many_connections_that_break_off_leave_nothing(gateway: Gateway) -> None:
    async with gateway.client() as client:
        beginnings = [b"", b"GET", HEAD, HEAD + b"Content-Length: 10\r\n\r\n{", client.post_bytes(PING)]
        for number in range(200):
            wire = await Wire.connect(gateway.port)
            await wire.send(beginnings[number % len(beginnings)])
            await wire.abort()
        assert (await client.call("s_echo", {"a": 1})).structured == {"a": 1}
