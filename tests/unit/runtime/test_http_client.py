from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import socket
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import free_port
from tests.support.waiting import at_most, until
from tests.unit.runtime.scripted_server import Peer, Scripted, both_loops, http, run_on, scripted

from trunkline.runtime import http_client
from trunkline.runtime.fair_reading import SLICE_BYTES, FairReader
from trunkline.runtime.http_client import Exchange, ExchangeFailure, HttpPool, HttpTarget

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
Loop = Callable[[], asyncio.AbstractEventLoop]


class RecordedExchange(Exchange):
    """An exchange that tells what became of it, and that it ended once."""

    def __init__(self, out: bytes = GET) -> None:
        super().__init__(out)
        self.status = 0
        self.headers: Mapping[bytes, bytes] = {}
        self.body = bytearray()
        self.ends: list[str] = []
        self.failure = ""
        self.ended = asyncio.Event()

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_end(self) -> None:
        self.ends.append("end")
        self.ended.set()

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        self.ends.append(reason)
        self.failure = failure
        self.ended.set()

    async def end(self) -> str:
        await asyncio.wait_for(self.ended.wait(), at_most(15))
        assert len(self.ends) == 1
        return self.ends[0]


@contextlib.asynccontextmanager
async def pool_to(url: str, **options: Any) -> AsyncIterator[HttpPool]:
    pool = HttpPool(HttpTarget(url), **{"connect_timeout_s": at_most(10), "limit_bytes": 1000, **options})
    try:
        yield pool
    finally:
        await pool.close()


def ask(pool: HttpPool, out: bytes = GET) -> RecordedExchange:
    exchange = RecordedExchange(out)
    pool.send(exchange)
    return exchange


async def echoes(peer: Peer) -> None:
    while True:
        await peer.answer(http(b"hello"))


async def done(exchange: RecordedExchange) -> bytes:
    assert await exchange.end() == "end"
    return bytes(exchange.body)


# Targets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://h", b"h", b"/"),
        ("http://h:80/a", b"h", b"/a"),
        ("https://h:443", b"h", b"/"),
        ("https://h:80/", b"h:80", b"/"),
        ("http://H:8080/a/b?c=d&e", b"h:8080", b"/a/b?c=d&e"),
        ("http://[::1]:8080/x", b"[::1]:8080", b"/x"),
        ("http://[::1]/x", b"[::1]", b"/x"),
    ],
)
def test_a_url_gives_the_host_header_and_the_request_target(url: str, authority: bytes, path: bytes) -> None:
    assert (HttpTarget(url).authority, HttpTarget(url).path) == (authority, path)


def test_an_origin_is_scheme_host_and_port() -> None:
    here = HttpTarget("http://h:1/a")
    assert here.same_origin(HttpTarget("http://H:1/b"))
    for other in ("https://h:1/a", "http://i:1/a", "http://h:2/a", "http://h/a"):
        assert not here.same_origin(HttpTarget(other))


def test_the_same_name_by_another_socket_is_another_origin() -> None:
    here = HttpTarget("http://localhost/mcp", socket="/run/a")
    assert here.same_origin(HttpTarget("http://localhost/other", socket="/run/a"))
    assert not here.same_origin(HttpTarget("http://localhost/mcp", socket="/run/b"))
    assert not here.same_origin(HttpTarget("http://localhost/mcp"))


# Unix sockets --------------------------------------------------------------------------------------------------------


@both_loops
def test_a_unix_socket_is_dialled_like_a_port(loop_factory: Loop, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await echoes_once(Peer(reader, writer))

    async def echoes_once(peer: Peer) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await peer.answer(http(b"hello"))
        peer.writer.close()

    async def main() -> None:
        path = str(tmp_path / "s")
        server = await asyncio.start_unix_server(serve, path)
        target = HttpTarget("http://localhost/x", socket=path)
        pool = HttpPool(target, connect_timeout_s=at_most(10), limit_bytes=1000)
        assert await done(ask(pool)) == b"hello"
        server.close()
        await pool.close()

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("name", ["missing", "nul\0", "x" * 200])
def test_a_unix_socket_that_cannot_be_dialled_fails_the_exchange(loop_factory: Loop, tmp_path: Path, name: str) -> None:
    async def main() -> None:
        pool = HttpPool(
            HttpTarget("http://localhost/", socket=str(tmp_path / name)),
            connect_timeout_s=at_most(10),
            limit_bytes=1000,
        )
        exchange = ask(pool)
        assert (await exchange.end()).startswith("cannot connect")
        assert not exchange.written
        await pool.close()

    run_on(loop_factory, main())


# Reading no more -----------------------------------------------------------------------------------------------------


@both_loops
def test_what_nobody_has_room_for_stays_with_the_server(loop_factory: Loop) -> None:
    size = 32 * 1024 * 1024
    taken: list[int] = []

    async def floods(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(64):
            await peer.send(b"x" * (size // 64))
            taken.append(1)

    async def main() -> None:
        async with scripted(floods) as server, pool_to(server.url, limit_bytes=size) as pool:
            pool.set_reading(False)
            exchange = ask(pool)
            await until(lambda: bool(taken), "the server sends")
            before = -1
            while before != len(taken):
                before = len(taken)
                await asyncio.sleep(0.2)
            assert len(taken) < 64
            assert exchange.status == 0
            pool.set_reading(True)
            assert len(await done(exchange)) == size

    run_on(loop_factory, main())


# Reuse ---------------------------------------------------------------------------------------------------------------


@both_loops
def test_one_connection_carries_one_request_after_the_other(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(echoes) as server, pool_to(server.url) as pool:
            for _ in range(5):
                assert await done(ask(pool)) == b"hello"
            assert len(server.peers) == 1
            assert len(server.requests) == 5

    run_on(loop_factory, main())


@both_loops
def test_requests_at_the_same_time_each_have_a_connection(loop_factory: Loop) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            await gate.wait()
            await peer.send(http(b"hello"))
            await peer.wait_closed()

        async with scripted(script) as server, pool_to(server.url) as pool:
            exchanges = [ask(pool) for _ in range(5)]
            await until(lambda: len(server.requests) == 5, "all five arrived")
            gate.set()
            assert [await done(exchange) for exchange in exchanges] == [b"hello"] * 5
            assert len(server.peers) == 5

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
@pytest.mark.parametrize(
    "answer",
    [
        http(b"hello", Connection="close"),
        http(b"hello") + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nevil!",
        http(b"hello") + b"x",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        http(b"hello", 200, Connection="close, x"),
    ],
)
def test_a_connection_with_more_or_less_than_one_answer_is_not_used_again(loop_factory: Loop, answer: bytes) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.answer(answer)
            await peer.wait_closed()

        async with scripted(script) as server, pool_to(server.url) as pool:
            for number in range(3):
                assert await done(ask(pool)) == b"hello"
                assert len(server.peers) == number + 1

    run_on(loop_factory, main())


@pytest.mark.law
@both_loops
def test_bytes_that_nobody_asked_for_end_an_idle_connection(loop_factory: Loop) -> None:
    async def main() -> None:
        spoken = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.answer(http(b"hello"))
            if len(server.peers) == 1:
                await spoken.wait()
                await peer.send(http(b"evil!"))
            await peer.wait_closed()

        async with scripted(script) as server, pool_to(server.url) as pool:
            assert await done(ask(pool)) == b"hello"
            spoken.set()
            await until(lambda: not server.open, "the connection is dropped")
            assert await done(ask(pool)) == b"hello"
            assert len(server.peers) == 2

    run_on(loop_factory, main())


@both_loops
def test_an_idle_connection_is_given_up_before_its_server_does(
    loop_factory: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "IDLE_S", 0.1)

    async def main() -> None:
        async with scripted(echoes) as server, pool_to(server.url) as pool:
            await done(ask(pool))
            await until(lambda: not server.open, "the idle connection is closed")
            await done(ask(pool))
            assert len(server.peers) == 2

    run_on(loop_factory, main())


# Answers -------------------------------------------------------------------------------------------------------------


@both_loops
def test_an_answer_may_come_in_any_pieces_and_framings(loop_factory: Loop) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    to_the_end = b"HTTP/1.1 200 OK\r\n\r\nhello"

    async def main() -> None:
        async def script(peer: Peer) -> None:
            request = await peer.request()
            answer = chunked if b"/chunked" in request else to_the_end
            for at in range(len(answer)):
                await peer.send(answer[at : at + 1])
                await asyncio.sleep(0)

        async with scripted(script) as server, pool_to(server.url) as pool:
            assert await done(ask(pool, GET.replace(b"/ ", b"/chunked "))) == b"hello"
            assert await done(ask(pool)) == b"hello"

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"nonsense\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "malformed"),
        (http(b"x" * 2000), "too_large"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n" + b"x" * 0xFFF + b"\r\n", "too_large"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "too_large"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "connection"),
        (b"", "connection"),
    ],
)
def test_a_bad_answer_fails_one_exchange_and_says_how(loop_factory: Loop, answer: bytes, failure: str) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            request = await peer.request()
            await peer.send(http(b"hello") if b"/good" in request else answer)

        async with scripted(script) as server, pool_to(server.url) as pool:
            exchange = ask(pool)
            assert await exchange.end() != "end"
            assert exchange.written
            assert exchange.failure == failure
            assert await done(ask(pool, GET.replace(b"/ ", b"/good "))) == b"hello"

    run_on(loop_factory, main())


@both_loops
def test_a_reset_after_the_request_fails_as_written(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.reset()

        async with scripted(script) as server, pool_to(server.url) as pool:
            exchange = ask(pool)
            assert "lost" in await exchange.end()
            assert exchange.written
            assert exchange.failure == "connection"

    run_on(loop_factory, main())


@both_loops
def test_a_stream_of_events_has_no_limit_once_it_is_lifted(loop_factory: Loop) -> None:
    class Stream(RecordedExchange):
        def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
            self.expect_events()

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.answer(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(20):
                await peer.send(b"x" * 500)
                await asyncio.sleep(0.001)

        async with scripted(script) as server, pool_to(server.url) as pool:
            stream = Stream()
            pool.send(stream)
            assert await done(stream) == b"x" * 10_000

    run_on(loop_factory, main())


class Events(RecordedExchange):
    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.expect_events()


@both_loops
@pytest.mark.parametrize("coded", [False, True])
def test_a_stream_comes_whole_and_in_order_however_many_lines_it_has(loop_factory: Loop, coded: bool) -> None:
    lines = b"".join(b"data: %d\n\n" % number for number in range(100_000))

    async def main() -> None:
        async def script(peer: Peer) -> None:
            coding = b"Content-Encoding: gzip\r\n" if coded else b""
            await peer.answer(b"HTTP/1.1 200 OK\r\n%b\r\n" % coding)
            await peer.send(gzip.compress(lines) if coded else lines)

        async with scripted(script) as server, pool_to(server.url, limit_bytes=1_000_000) as pool:
            stream = Events()
            pool.send(stream)
            assert await done(stream) == lines

    run_on(loop_factory, main())


@both_loops
def test_a_connection_that_carried_a_compressed_stream_is_as_quick_as_before(
    loop_factory: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[FairReader] = []

    def reader(*args: Any) -> FairReader:
        readers.append(FairReader(*args))
        return readers[-1]

    monkeypatch.setattr(http_client, "FairReader", reader)

    async def main() -> None:
        async with scripted(echoes_events) as server, pool_to(server.url) as pool:
            [stream, plain] = Events(), RecordedExchange()
            for exchange in (stream, plain):
                pool.send(exchange)
                assert await done(exchange) == b"data: 1\n\n"
            assert len(server.peers) == 1
        [connection] = readers
        assert (connection.slice_bytes, connection.line_ends) == (SLICE_BYTES, (b"\n",))

    async def echoes_events(peer: Peer) -> None:
        await peer.answer(http(gzip.compress(b"data: 1\n\n"), Content_Encoding="gzip"))
        await peer.answer(http(b"data: 1\n\n"))
        await peer.wait_closed()

    run_on(loop_factory, main())


@both_loops
def test_what_follows_an_answer_in_the_same_chunk_is_nobodys_answer(loop_factory: Loop) -> None:
    """The answer ends where a slice of what is read ends, and all of it was there when it was read."""
    body = b"x" * 4000 + b"\n"

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.answer(http(body) + http(b"smuggled") * 100)
            await echoes(peer)

        async with scripted(script) as server, pool_to(server.url, limit_bytes=9000, max_connections=1) as pool:
            first, second = ask(pool), ask(pool)
            assert await done(first) == body
            await second.end()
            assert second.body != b"smuggled"

    run_on(loop_factory, main())


# Connecting ----------------------------------------------------------------------------------------------------------


@both_loops
@pytest.mark.parametrize("limit", [1, 2, 512])
def test_every_request_to_a_closed_port_fails_unwritten(loop_factory: Loop, limit: int) -> None:
    async def main() -> None:
        async with pool_to(f"http://127.0.0.1:{free_port()}/", max_connections=limit) as pool:
            exchanges = [ask(pool) for _ in range(5)]
            for exchange in exchanges:
                assert "cannot connect" in await exchange.end()
                assert not exchange.written

    run_on(loop_factory, main())


@both_loops
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64 + ".invalid", "-"])
def test_a_host_that_cannot_be_found_fails_in_order(loop_factory: Loop, host: str) -> None:
    async def main() -> None:
        # a name server that does not answer is given up by the system, which takes longer than a connection may
        async with pool_to(f"http://{host}/", connect_timeout_s=at_most(90)) as pool:
            exchange = ask(pool)
            assert "cannot connect" in await exchange.end()
            assert not exchange.written

    run_on(loop_factory, main())


@both_loops
def test_a_connection_that_takes_too_long_fails_unwritten(loop_factory: Loop) -> None:
    """A TLS handshake that the other side never answers."""

    async def main() -> None:
        async with (
            scripted(Peer.wait_closed) as server,
            pool_to(f"https://127.0.0.1:{server.port}/", connect_timeout_s=0.2) as pool,
        ):
            exchange = ask(pool)
            assert "0.2 seconds" in await exchange.end()
            assert not exchange.written

    run_on(loop_factory, main())


@pytest.mark.skipif(sys.platform != "linux", reason="a full backlog is silent there, and all of 127/8 is this machine")
@both_loops
def test_an_address_that_is_silent_leaves_time_for_the_next_one(loop_factory: Loop) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with scripted(echoes) as server, pool_to(f"http://host:{server.port}/", connect_timeout_s=2) as pool:

            async def getaddrinfo(*_: object, **__: object) -> list[Any]:
                kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
                return [(*kind, (address, server.port)) for address in ("127.0.0.2", "127.0.0.1")]

            loop.getaddrinfo = getaddrinfo
            with contextlib.ExitStack() as opened:
                silent = opened.enter_context(socket.socket())
                silent.bind(("127.0.0.2", server.port))
                silent.listen(0)
                for _ in range(3):  # the backlog is full after them
                    filler = opened.enter_context(socket.socket())
                    filler.setblocking(False)
                    filler.connect_ex(("127.0.0.2", server.port))
                assert await done(ask(pool)) == b"hello"

    run_on(loop_factory, main())


@both_loops
def test_a_host_without_an_address_fails_the_exchange(loop_factory: Loop) -> None:
    async def main() -> None:
        async def getaddrinfo(*_: object, **__: object) -> list[Any]:
            return []

        async with pool_to("http://host:80/") as pool:
            asyncio.get_running_loop().getaddrinfo = getaddrinfo
            assert "no address" in await ask(pool).end()

    run_on(loop_factory, main())


@both_loops
def test_a_server_without_a_valid_certificate_is_not_spoken_to(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.reader.read(1)
            await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with scripted(script) as server, pool_to(f"https://127.0.0.1:{server.port}/") as pool:
            exchange = ask(pool)
            assert "cannot connect" in await exchange.end()
            assert not exchange.written

    run_on(loop_factory, main())


@both_loops
def test_requests_beyond_the_limit_wait_their_turn(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await until(lambda: len(server.peers) > 1, "both connections are there")
            await echoes(peer)

        async with scripted(script) as server, pool_to(server.url, max_connections=2) as pool:
            exchanges = [ask(pool) for _ in range(10)]
            assert [await done(exchange) for exchange in exchanges] == [b"hello"] * 10
            assert len(server.peers) == 2

    run_on(loop_factory, main())


@both_loops
def test_those_that_wait_go_on_when_a_connection_is_lost(loop_factory: Loop) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.request()
            if len(server.peers) == 1:
                await peer.reset()
            else:
                await peer.send(http(b"hello"))
                await echoes(peer)

        async with scripted(script) as server, pool_to(server.url, max_connections=1) as pool:
            first, second, third = ask(pool), ask(pool), ask(pool)
            assert "lost" in await first.end()
            assert await done(second) == b"hello"
            assert await done(third) == b"hello"

    run_on(loop_factory, main())


# Walking away --------------------------------------------------------------------------------------------------------


@both_loops
def test_an_aborted_request_closes_its_connection_and_ends_in_silence(loop_factory: Loop) -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def script(peer: Peer) -> None:
            request = await peer.request()
            if b"/good" in request:
                await peer.send(http(b"hello"))
            await peer.wait_closed()
            gone.set()

        async with scripted(script) as server, pool_to(server.url) as pool:
            exchange = ask(pool)
            await until(lambda: server.requests, "the request arrived")
            exchange.abort()
            await asyncio.wait_for(gone.wait(), at_most(15))
            assert exchange.ends == []
            assert await done(ask(pool, GET.replace(b"/ ", b"/good "))) == b"hello"

    run_on(loop_factory, main())


@both_loops
def test_a_request_aborted_while_it_waits_is_never_written(loop_factory: Loop) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.request()
            await gate.wait()
            await peer.send(http(b"hello"))
            await echoes(peer)

        async with scripted(script) as server, pool_to(server.url, max_connections=1) as pool:
            first, unwanted, third = ask(pool), ask(pool, GET.replace(b"/ ", b"/unwanted ")), ask(pool)
            await until(lambda: server.requests, "the first arrived")
            unwanted.abort()
            gate.set()
            await done(first)
            await done(third)
            assert not any(b"unwanted" in request for request in server.requests)
            assert unwanted.ends == []

    run_on(loop_factory, main())


class Leaves(RecordedExchange):
    """An exchange that is aborted at the first call of the method with this name, and may say that it failed."""

    def __init__(self, at: str, *, fails: bool = False) -> None:
        super().__init__()
        self.at = at
        self.fails = fails
        self.calls: list[str] = []

    def leave(self, called: str) -> None:
        self.calls.append(called)
        if called == self.at:
            self.abort()
            if self.fails:
                self.on_fail("enough")

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.leave("on_head")

    def on_body(self, data: bytes) -> None:
        self.leave("on_body")


@both_loops
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("at", ["on_head", "on_body"])
def test_after_abort_nothing_more_is_called(loop_factory: Loop, at: str, coded: bool) -> None:
    body = bytes(400_000)
    answer = http(gzip.compress(body), Content_Encoding="gzip") if coded else http(body)

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.answer(answer)
            await peer.wait_closed()

        async with scripted(script) as server, pool_to(server.url, limit_bytes=1_000_000) as pool:
            silent, failing = Leaves(at), Leaves(at, fails=True)
            for exchange in (silent, failing):
                pool.send(exchange)
            await failing.end()
            await until(lambda: not server.open, "both connections are closed")
        calls = ["on_head", "on_body"][: 1 + (at == "on_body")]
        assert silent.calls == failing.calls == calls
        assert (silent.ends, failing.ends) == ([], ["enough"])

    run_on(loop_factory, main())


@both_loops
def test_a_cached_answer_is_not_given_to_an_exchange_that_leaves_at_its_head(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(echoes) as server, pool_to(server.url) as pool:
            assert await done(ask(pool)) == b"hello"
            leaving = Leaves("on_head")
            pool.send(leaving)
            await until(lambda: not server.open, "its connection is closed")
            assert (leaving.calls, leaving.ends) == (["on_head"], [])

    run_on(loop_factory, main())


@both_loops
def test_exchanges_aborted_while_they_wait_do_not_count_and_are_not_kept(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(Peer.wait_closed) as server, pool_to(server.url, max_connections=1) as pool:
            ask(pool)
            await until(lambda: server.peers, "the only connection is in use")
            waiting = [ask(pool, GET + b"x" * 1000) for _ in range(http_client.MAX_WAITING)]
            assert pool.at_capacity
            forgotten = [weakref.ref(exchange) for exchange in waiting]
            while waiting:
                waiting.pop().abort()
            assert not pool.at_capacity
            gc.collect()
            assert not any(reference() for reference in forgotten)

    run_on(loop_factory, main())


@both_loops
def test_closing_the_pool_ends_everything_in_it(loop_factory: Loop) -> None:
    async def main() -> None:
        async with scripted(Peer.wait_closed) as server:
            pool = HttpPool(HttpTarget(server.url), connect_timeout_s=at_most(10), limit_bytes=1000, max_connections=1)
            first = ask(pool)
            await until(lambda: first.written, "the first is on its way")
            waiting = ask(pool)
            await pool.close()
            late = ask(pool)
            for exchange in (first, waiting, late):
                assert await exchange.end() != "end"
            assert (waiting.written, late.written) == (False, False)

    run_on(loop_factory, main())


@both_loops
def test_closing_the_pool_while_it_connects_leaves_nothing(loop_factory: Loop) -> None:
    async def main() -> None:
        server = Scripted(Peer.wait_closed)
        await server.start()
        pool = HttpPool(HttpTarget(server.url), connect_timeout_s=at_most(10), limit_bytes=1000)
        exchange = ask(pool)
        await asyncio.sleep(0)
        await pool.close()
        assert await exchange.end() != "end"
        assert not exchange.written
        await server.stop()

    run_on(loop_factory, main())


@both_loops
def test_closing_the_pool_while_it_looks_for_a_host_leaves_nobody_to_complain_later(loop_factory: Loop) -> None:
    reported: list[dict[str, object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        pool = HttpPool(HttpTarget("http://no-such-host.invalid/"), connect_timeout_s=at_most(10), limit_bytes=1000)
        exchange = ask(pool)
        await asyncio.sleep(0)
        await pool.close()
        assert await exchange.end() != "end"
        with contextlib.suppress(OSError):  # by then the first lookup is over, too
            await loop.getaddrinfo("no-such-host.invalid", 80)
        gc.collect()

    run_on(loop_factory, main())
    assert reported == []
