"""HTTP/1.1 against arbitrary bytes: chunking changes nothing, nothing but the declared problem is raised."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import cut_up, cuts, steady
from tests.support.smuggling import NASTY_REQUESTS

from trunkline.protocol.http1 import HttpRequest, RequestParser
from trunkline.protocol.http1_message import HttpLimits, HttpProblem
from trunkline.protocol.http1_response import ResponseParser

LIMITS = HttpLimits(header_bytes=400, header_count=8, body_bytes=100)
H2C = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


def request(headers: bytes, body: bytes = b"", line: bytes = b"POST /mcp?q=1 HTTP/1.1") -> bytes:
    return line + b"\r\nHost: x\r\n" + headers + b"\r\n" + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


GOOD_REQUESTS = [
    request(b"Content-Length: 5\r\nA: b\r\n", b"hello"),
    request(b"Content-Length: 5\r\nA: b\r\n", b"again"),
    request(b"", line=b"GET / HTTP/1.1"),
    request(b"Accept: a\r\nAccept: b\r\nEmpty:\r\n", line=b"GET /x HTTP/1.1"),
    request(b"Transfer-Encoding: chunked\r\n", chunked(b"abc", b"defgh")),
    request(b"Transfer-Encoding: chunked\r\n", b"1;x=y\r\na\r\n0\r\nT: trailer\r\n\r\n"),
    request(H2C + b"Content-Length: 3\r\n", b"h2c"),
    request(H2C + b"Transfer-Encoding: chunked\r\n", chunked(b"h2c")),
    request(b"Connection: keep-alive\r\n", line=b"GET / HTTP/1.0"),
    b"\r\n" + request(b"", line=b"GET /after-blank HTTP/1.1"),
]
LAST_REQUESTS = [
    b"",
    request(b"Connection: close\r\n", line=b"GET / HTTP/1.1"),
    request(b"Content-Length: 101\r\n"),
    request(b"Transfer-Encoding: chunked\r\n", chunked(b"x" * 60, b"x" * 60)),
    request(b"A: %b\r\n" % (b"a" * 500)),
    request(b"".join(b"A%d: b\r\n" % number for number in range(9))),
    *(data for data, _ in NASTY_REQUESTS.values()),
]
GOOD_RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain",
    b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"data: 1\n\n", b"data: 2\n\n"),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    + chunked(gzip.compress(b"zip", mtime=0)),
]
LAST_RESPONSES = [
    b"",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nbr",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 101, mtime=0),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"nonsense",
]


def read_requests(chunks: list[bytes]) -> tuple[list[HttpRequest], int]:
    """The requests, and the status of the problem that ended them (0 when there was none)."""
    requests: list[HttpRequest] = []
    parser = RequestParser(LIMITS, requests.append, lambda: None)
    for chunk in chunks:
        try:
            parser.feed(chunk)
        except HttpProblem as problem:
            return requests, problem.status
        assert all(len(request.body) <= LIMITS.body_bytes for request in requests)
    return requests, 0


class Answers:
    """What a response parser reported, in a form that does not depend on pieces."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Mapping[bytes, bytes], bytearray, bool]] = []
        self.ended = 0
        self.problem = 0
        self.parser = ResponseParser(100, self.on_head, self.on_body, self.on_end)

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.seen.append((status, headers, bytearray(), False))

    def on_body(self, data: bytes) -> None:
        self.seen[-1][2].extend(data)
        assert len(self.seen[-1][2]) <= 100

    def on_end(self) -> None:
        self.ended += 1
        assert self.ended == len(self.seen)
        *answer, _ = self.seen[-1]
        self.seen[-1] = (*answer, self.parser.keep_alive)

    def read(self, chunks: list[bytes]) -> Answers:
        try:
            for chunk in chunks:
                self.parser.feed(chunk)
            self.parser.eof()
        except HttpProblem as problem:
            self.problem = problem.status
        return self

    def outcome(self) -> object:
        """Of an answer that was refused halfway only the head counts: how much came before depends on the chunks."""
        refused = [(status, headers) for status, headers, _, _ in self.seen[self.ended :]]
        return self.seen[: self.ended], refused, self.problem


@steady
@given(st.data(), st.lists(st.sampled_from(GOOD_REQUESTS), max_size=5), st.sampled_from(LAST_REQUESTS))
def test_any_chunking_gives_the_same_requests(data: st.DataObject, good: list[bytes], last: bytes) -> None:
    stream = b"".join([*good, last])
    expected = read_requests([*good, last])
    assert len(expected[0]) >= len(good)
    assert read_requests([stream]) == expected
    assert read_requests(data.draw(cuts(stream))) == expected


@steady
@given(st.data(), st.lists(st.sampled_from(GOOD_RESPONSES), min_size=1, max_size=4), st.sampled_from(LAST_RESPONSES))
def test_any_chunking_gives_the_same_answers(data: st.DataObject, good: list[bytes], last: bytes) -> None:
    """An answer never shares a chunk with the next: nobody asked for that one yet."""
    answers = [*good, last]
    chunks = [chunk for answer in answers for chunk in data.draw(cuts(answer))]
    expected = Answers().read(answers).outcome()
    assert Answers().read(chunks).outcome() == expected


@steady
@given(st.data(), st.sampled_from(GOOD_REQUESTS + LAST_REQUESTS), st.binary(min_size=1, max_size=3))
def test_damaged_requests_are_read_or_refused_alike_in_any_chunking(
    data: st.DataObject, good: bytes, noise: bytes
) -> None:
    at = data.draw(st.integers(0, len(good)))
    stream = good[:at] + noise + good[at + data.draw(st.integers(0, 3)) :]
    requests, status = read_requests([stream])
    other_requests, other_status = read_requests(data.draw(cuts(stream)))
    assert other_requests == requests
    # A head that is both too large and malformed may be refused for either, whichever shows first.
    assert other_status == status or {status, other_status} <= {400, 431, 505}


@steady
@given(st.data(), st.sampled_from(GOOD_RESPONSES + LAST_RESPONSES), st.binary(min_size=1, max_size=3))
def test_damaged_answers_raise_nothing_but_the_declared_problem(data: st.DataObject, good: bytes, noise: bytes) -> None:
    at = data.draw(st.integers(0, len(good)))
    stream = good[:at] + noise + good[at + data.draw(st.integers(0, 3)) :]
    assert Answers().read(data.draw(cuts(stream))).problem in (0, 413, 502)


@steady
@given(cut_up(st.binary(max_size=200)))
def test_arbitrary_bytes_raise_nothing_but_the_declared_problem(stream: tuple[bytes, list[bytes]]) -> None:
    data, chunks = stream
    assert read_requests(chunks) == read_requests([data])
    assert Answers().read(chunks).problem in (0, 502)
