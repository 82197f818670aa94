from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Mapping

import pytest

from trunkline.protocol.http1_message import HttpProblem
from trunkline.protocol.http1_response import ResponseParser

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nbody"


class Client:
    """Collects what a parser reports, as a list of answers."""

    def __init__(self, limit_bytes: int = 1000, *, stream: bool = False) -> None:
        self.heads: list[tuple[int, Mapping[bytes, bytes]]] = []
        self.bodies: list[bytes] = []
        self.kept: list[bool] = []
        self.stream = stream
        self.parser = ResponseParser(limit_bytes, self.on_head, self.on_body, self.on_end)

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.heads.append((status, headers))
        self.bodies.append(b"")
        if self.stream:
            self.parser.expect_events()

    def on_body(self, data: bytes) -> None:
        assert data
        self.bodies[-1] += data

    def on_end(self) -> None:
        self.kept.append(self.parser.keep_alive)

    def feed(self, *chunks: bytes) -> Client:
        for chunk in chunks:
            self.parser.feed(chunk)
        return self

    def refused(self, *chunks: bytes) -> int:
        with pytest.raises(HttpProblem) as caught:
            self.feed(*chunks)
        assert caught.value.too_large == (caught.value.status == 413)
        return caught.value.status


def single_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def compressed(data: bytes, coding: str) -> bytes:
    if coding in ("gzip", "x-gzip"):
        return gzip.compress(data, mtime=0)  # a test's name is made of its data: no clock in it
    stream = zlib.compressobj(wbits=zlib.MAX_WBITS if coding == "deflate" else -zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def with_coding(body: bytes, coding: str = "gzip") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        coding.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize(
    "data",
    [
        OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"bo", b"dy"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
        b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\nbody",
        with_coding(compressed(b"body", "gzip")),
    ],
)
def test_an_answer_is_read_however_it_is_framed_and_cut(data: bytes) -> None:
    for chunks in ([data], single_bytes(data)):
        client = Client().feed(*chunks)
        assert [status for status, _ in client.heads] == [200]
        assert (client.bodies, client.kept) == ([b"body"], [True])
        assert not client.parser.mid_message


def test_answers_follow_one_another_on_a_kept_connection() -> None:
    client = Client().feed(OK, OK[:-4] + b"more", b"HTTP/1.1 204 No Content\r\n\r\n", OK[:-2], OK[-2:], OK)
    assert client.bodies == [b"body", b"more", b"", b"body", b"body"]
    assert client.kept == [True] * 5


def test_repeated_headers_are_joined() -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2 \r\nContent-Length: 0\r\n\r\n"
    assert Client().feed(head).heads[0][1][b"set-cookie"] == b"a=1, b=2"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_never_has_a_body_ends_with_its_head(status: int) -> None:
    client = Client(10).feed(b"HTTP/1.1 %d X\r\nContent-Length: 5000\r\n\r\n" % status)
    assert (client.bodies, client.kept) == ([b""], [True])


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    for head in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"):
        client = Client().feed(head, b"bo", b"dy")
        assert client.kept == []
        client.parser.eof()
        assert (client.bodies, client.kept) == ([b"body"], [False])


@pytest.mark.parametrize(
    "data",
    [
        b"H",
        OK[:40],
        OK[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200",
    ],
)
def test_a_connection_that_closes_too_soon_is_a_problem(data: bytes) -> None:
    client = Client().feed(data)
    with pytest.raises(HttpProblem) as caught:
        client.parser.eof()
    assert caught.value.status == 502
    assert client.kept == []


def test_a_connection_that_closes_between_answers_is_none() -> None:
    client = Client()
    client.parser.eof()
    client = Client().feed(OK)
    client.parser.eof()
    client.parser.eof()
    assert client.kept == [True]


@pytest.mark.law
@pytest.mark.parametrize("surplus", [b"x", b"HTTP/1.1 ", OK, b"\0"])
def test_bytes_after_an_answer_are_nobodys_and_end_the_connection(surplus: bytes) -> None:
    client = Client().feed(OK + surplus)
    assert (client.bodies, client.kept) == ([b"body"], [False])
    assert client.feed(OK).bodies == [b"body"]


def test_a_server_that_closes_says_so() -> None:
    closing = OK.replace(b"Content-Type", b"Connection: close\r\nContent-Type")
    assert Client().feed(closing).kept == [False]
    assert Client().feed(closing + b"surplus").kept == [False]


@pytest.mark.parametrize(
    "data",
    [
        b"<html>",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    ],
)
def test_a_malformed_answer_is_refused(data: bytes) -> None:
    for chunks in ([data], single_bytes(data)):
        client = Client()
        assert client.refused(*chunks) == 502
        assert client.kept == []
        assert client.feed(OK).kept == []


def test_a_body_that_breaks_off_is_reported_as_far_as_it_came() -> None:
    client = Client()
    assert client.refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\nx\r\n") == 502
    assert client.bodies == [b"bo"]


# Sizes


def test_a_declared_length_over_the_cap_is_refused_at_once() -> None:
    client = Client(10)
    assert client.refused(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n") == 413
    assert client.heads[0][0] == 200


def test_a_body_over_the_cap_is_refused_when_it_gets_there() -> None:
    for head in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n"):
        client = Client(10).feed(head, b"x" * 10)
        assert client.refused(b"x") == 413
        assert client.bodies == [b"x" * 10]


def test_headers_over_the_cap_are_refused() -> None:
    assert Client().refused(b"HTTP/1.1 200 OK\r\nA: ", *[b"a" * 1000] * 70) == 413
    assert Client().refused(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n") == 413


def test_a_stream_has_no_total_cap() -> None:
    client = Client(10, stream=True).feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(10):
        client.feed(b"8\r\n12345678\r\n")
    assert client.bodies == [b"12345678" * 10]


# Content codings


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "raw deflate"])
@pytest.mark.parametrize("text", [b"", b"body", b"abc" * 300])
def test_compressed_bodies_are_decoded(coding: str, text: bytes) -> None:
    data = with_coding(compressed(text, coding), coding.removeprefix("raw "))
    for chunks in ([data], single_bytes(data)):
        client = Client().feed(*chunks)
        assert (client.bodies, client.kept) == ([text], [True])


def test_identity_and_an_empty_compressed_body_are_taken_as_they_are() -> None:
    assert Client().feed(with_coding(b"body", "identity")).bodies == [b"body"]
    assert Client().feed(with_coding(b"", "gzip")).kept == [True]


@pytest.mark.parametrize(
    "data",
    [
        with_coding(b"not gzip at all"),
        with_coding(compressed(b"body", "gzip")[:-1]),
        with_coding(compressed(b"body", "gzip") + b"surplus"),
        with_coding(b"body", "br"),
        with_coding(compressed(b"body", "gzip"), "gzip, gzip"),
        with_coding(b"\xff\xff\xff", "deflate"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(data: bytes) -> None:
    client = Client()
    assert client.refused(data) == 502
    assert client.kept == []


def test_a_compressed_body_cut_off_by_the_connection_is_a_problem() -> None:
    body = gzip.compress(b"body" * 50)
    client = Client().feed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + body[:-3])
    with pytest.raises(HttpProblem):
        client.parser.eof()
    assert client.kept == []


def test_the_cap_counts_decoded_bytes() -> None:
    assert Client(1000).feed(with_coding(gzip.compress(b"x" * 1000))).bodies == [b"x" * 1000]
    assert Client(1000).refused(with_coding(gzip.compress(b"x" * 1001))) == 413


def test_a_bomb_never_takes_more_memory_than_the_cap_and_a_piece() -> None:
    bomb = with_coding(gzip.compress(bytes(50_000_000), 1))
    received = 0

    def on_body(data: bytes) -> None:
        nonlocal received
        received += len(data)

    for lift in (False, True):
        parser = ResponseParser(5_000_000, lambda *_: None, on_body, lambda: None)
        if lift:
            parser.feed(bomb[:200])
            parser.expect_events()
            bomb = bomb[200:]
        received = 0
        tracemalloc.start()
        with pytest.raises(HttpProblem) as caught:
            parser.feed(bomb)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert caught.value.too_large
        assert received <= 5_000_000
        assert peak < 3 * len(bomb) + 1_000_000


# Owners


def test_what_the_owner_raises_passes_through_and_closes_the_parser() -> None:
    def fail(*_: object) -> None:
        raise LookupError

    ignore = lambda *_: None  # noqa: E731
    for callbacks in ((fail, ignore, ignore), (ignore, fail, ignore), (ignore, ignore, fail)):
        parser = ResponseParser(1000, *callbacks)
        with pytest.raises(LookupError):
            parser.feed(OK)
        parser.feed(OK)
        assert not parser.keep_alive


@pytest.mark.parametrize("event", ["head", "body"])
def test_an_owner_may_close_while_an_answer_is_reported(event: str) -> None:
    def note(name: str) -> None:
        seen.append(name)
        if name == event:
            parser.close()

    seen: list[str] = []
    parser = ResponseParser(4, lambda *_: note("head"), lambda _: note("body"), lambda: note("end"))
    parser.feed(OK)
    parser.feed(OK)
    parser.eof()
    assert seen[-1] == event
