from __future__ import annotations

import gc
import tracemalloc
import weakref

import pytest
from tests.support.smuggling import NASTY_REQUESTS

from trunkline.protocol.http1 import HttpRequest, RequestParser, head_size
from trunkline.protocol.http1_message import HttpLimits, HttpProblem

POST = (
    b"POST /mcp?a=1 HTTP/1.1\r\nHost: localhost:80\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nbody"
)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Collector:
    """Collects what a parser reports."""

    def __init__(self, **limits: int) -> None:
        self.requests: list[HttpRequest] = []
        self.continues = 0
        self.parser = RequestParser(HttpLimits(**limits), self.requests.append, self.on_continue)

    def on_continue(self) -> None:
        self.continues += 1

    def feed(self, *chunks: bytes) -> list[HttpRequest]:
        for chunk in chunks:
            self.parser.feed(chunk)
        return self.requests

    def refused(self, *chunks: bytes) -> int:
        """The status of the problem; 0 when there was none."""
        try:
            self.feed(*chunks)
        except HttpProblem as problem:
            return problem.status
        return 0


def single_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def test_a_request_is_read_into_its_parts() -> None:
    [request] = Collector().feed(POST)
    assert (request.method, request.path, request.query) == (b"POST", b"/mcp", b"a=1")
    assert request.headers == {
        b"host": b"localhost:80",
        b"content-type": b"application/json",
        b"content-length": b"4",
    }
    assert request.body == b"body"
    assert request.keep_alive
    assert not request.http10
    assert request.repeated == ()


def test_a_request_in_single_bytes_is_the_same_request() -> None:
    assert Collector().feed(*single_bytes(POST)) == Collector().feed(POST)


def test_pipelined_requests_come_out_in_order() -> None:
    requests = Collector().feed(POST + GET + POST)
    assert [request.method for request in requests] == [b"POST", b"GET", b"POST"]


def test_the_same_head_again_is_read_the_same_with_its_own_body() -> None:
    collector = Collector()
    collector.feed(POST, POST[:-4] + b"yeah", POST + GET, POST[:-2], POST[-2:], GET, POST)
    bodies = [request.body for request in collector.requests]
    assert bodies == [b"body", b"yeah", b"body", b"", b"body", b"", b"body"]
    assert {request.path for request in collector.requests if request.body} == {b"/mcp"}


def test_a_known_head_with_another_length_of_body_is_read_byte_by_byte() -> None:
    collector = Collector()
    collector.feed(POST, POST[:-1])
    assert collector.parser.mid_message
    collector.feed(b"y" + GET)
    assert [request.body for request in collector.requests] == [b"body", b"body"[:3] + b"y", b""]


def test_ever_new_heads_do_not_pile_up() -> None:
    parser = RequestParser(HttpLimits(), lambda _: None, None)
    tracemalloc.start()
    try:
        for number in range(500):
            parser.feed(b"GET /%d HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n" % (number, b"a" * 1000))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100_000


def tiny_headers(number: int) -> bytes:
    return b"".join(b"%03x%02x:z\r\n" % (number, each) for each in range(95))


def test_heads_that_take_much_memory_are_not_kept() -> None:
    parser = RequestParser(HttpLimits(), lambda _: None, None)
    tracemalloc.start()
    try:
        for number in range(8):
            parser.feed(b"GET / HTTP/1.1\r\nHost: x\r\n" + tiny_headers(number) + b"\r\n")
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 40_000, "the last one at most"


@pytest.mark.parametrize("rest", [b"", b"Content-Length: 2\r\n\r\n{"], ids=["in its head", "in its body"])
def test_what_is_held_of_a_head_counts_its_headers_as_objects(rest: bytes) -> None:
    parser = RequestParser(HttpLimits(), lambda _: None, None)
    tracemalloc.start()
    try:
        parser.feed(b"POST / HTTP/1.1\r\nHost: x\r\n" + tiny_headers(1) + rest)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes / 2 < parser.held_bytes < 3 * kept_bytes


def test_spaces_around_values_are_dropped() -> None:
    [request] = Collector().feed(b"GET / HTTP/1.1\r\nHost:x \t\r\nA: \t b c \r\nEmpty:\r\nBlank:  \r\n\r\n")
    assert request.headers == {b"host": b"x", b"a": b"b c", b"empty": b"", b"blank": b""}


def test_repeated_headers_are_joined_and_named() -> None:
    [request] = Collector().feed(b"GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nMcp-Name: a\r\na: 1\r\nMCP-NAME: b\r\n\r\n")
    assert request.headers[b"a"] == b"1, 1"
    assert request.headers[b"mcp-name"] == b"a, b"
    assert set(request.repeated) == {b"a", b"mcp-name"}


def test_a_chunked_body_is_put_together_and_its_trailers_are_dropped() -> None:
    collector = Collector()
    collector.feed(
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
        b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nHost: evil\r\nMcp-Name: evil\r\n\r\n" + GET
    )
    assert [request.body for request in collector.requests] == [b"abcdefg", b""]
    assert collector.requests[0].headers == {b"host": b"x", b"transfer-encoding": b"Chunked"}
    assert collector.requests[1].headers == {b"host": b"x"}


def test_mid_message_tells_a_begun_request_from_an_idle_connection() -> None:
    collector = Collector()
    for begun in (b"G", b"ET / HTTP/1.1\r\n", b"Host: x\r\n"):
        collector.feed(begun)
        assert collector.parser.mid_message
    collector.feed(b"\r\n")
    assert not collector.parser.mid_message
    collector.feed(b"\r\n")  # what some clients send after a body
    assert not collector.parser.mid_message
    collector.feed(POST[:-1])
    assert collector.parser.mid_message


@pytest.mark.parametrize(
    ("head", "keep_alive", "http10"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False, False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n", False, False),
        (b"GET / HTTP/1.0\r\n\r\n", False, True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True, True),
    ],
)
def test_whether_the_connection_is_kept(head: bytes, keep_alive: bool, http10: bool) -> None:
    [request] = Collector().feed(head)
    assert (request.keep_alive, request.http10) == (keep_alive, http10)


def test_nothing_is_read_after_the_last_request_of_a_connection() -> None:
    closing = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    together, apart = Collector(), Collector()
    assert len(together.feed(closing + GET + b"\0garbage")) == 1
    assert len(apart.feed(closing, GET, b"\0garbage")) == 1
    assert not together.parser.mid_message


@pytest.mark.law
def test_what_could_be_read_two_ways_is_refused() -> None:
    for name, (data, status) in NASTY_REQUESTS.items():
        for chunks in ([data], single_bytes(data)):
            collector = Collector()
            assert collector.refused(*chunks) == status, name
            assert collector.requests == [], name


@pytest.mark.law
def test_a_nasty_request_behind_a_good_one_does_not_cost_the_good_one() -> None:
    for name, (data, status) in NASTY_REQUESTS.items():
        for chunks in ([POST + data], [POST, data], [POST, POST, data]):
            collector = Collector()
            assert collector.refused(*chunks) == status, name
            assert {request.body for request in collector.requests} == {b"body"}, name


@pytest.mark.law
def test_after_a_problem_everything_is_ignored() -> None:
    collector = Collector()
    collector.refused(b"nonsense\r\n")
    assert collector.feed(GET, b"more nonsense") == []


# Limits


def test_headers_over_the_cap_are_refused_however_they_arrive() -> None:
    exact = b"GET / HTTP/1.1\r\nHost: x\r\nA: %s\r\n\r\n"
    for size, fits in ((900, True), (1100, False)):
        data = exact % (b"a" * size)
        for chunks in ([data], single_bytes(data), [data[:50], data[50:]], [GET + data]):
            collector = Collector(header_bytes=1000)
            if fits:
                assert collector.feed(*chunks)[-1].headers[b"a"] == b"a" * size
            else:
                assert collector.refused(*chunks) == 431


def test_a_head_without_end_is_refused_at_the_cap() -> None:
    for endless in (b"GET / HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\nA", b"GET /", b"\r\n" * 10):
        collector = Collector(header_bytes=1000)
        collector.feed(endless)
        sent = 0
        with pytest.raises(HttpProblem) as caught:
            while sent < 5000:
                collector.feed(b"\r\n" * 25 if endless.startswith(b"\r\n") else b"a" * 50)
                sent += 50
        assert caught.value.status == 431


def test_a_trailer_without_end_is_refused_at_the_cap() -> None:
    collector = Collector(header_bytes=1000)
    collector.feed(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ")
    assert collector.refused(*[b"a" * 50] * 100) == 431


def test_too_many_headers_are_refused() -> None:
    different = b"".join(b"A%d: b\r\n" % number for number in range(10))
    for lines in (different, b"A: b\r\n" * 10):
        head = b"GET / HTTP/1.1\r\nHost: x\r\n%s\r\n" % lines
        assert Collector(header_count=11).feed(head)
        assert Collector(header_count=10).refused(head) == 431


def test_a_flood_of_one_header_stops_early() -> None:
    assert Collector().refused(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 40_000 + b"\r\n") == 431


def test_a_declared_body_over_the_cap_is_refused_before_it_comes() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    assert Collector(body_bytes=10).feed(head % 10 + b"x" * 10)[0].body == b"x" * 10
    collector = Collector(body_bytes=10)
    assert collector.refused(head % 11) == 413
    assert collector.continues == 0


def test_zeros_before_a_length_change_nothing() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"0" * 5000 + b"3\r\n\r\n"
    assert Collector().feed(head + b"abc")[0].body == b"abc"


def test_a_chunked_body_over_the_cap_is_refused_when_it_gets_there() -> None:
    collector = Collector(body_bytes=10)
    collector.feed(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    collector.feed(b"5\r\nabcde\r\n5\r\nabcde\r\n")
    assert collector.refused(b"ffffffff\r\na") == 413


# Expectations, upgrades, owners


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_once() -> None:
    head, body = POST.replace(b"Host", b"Expect: 100-Continue\r\nHost").split(b"body")[0], b"body"
    waiting = Collector()
    waiting.feed(head)
    assert waiting.continues == 1
    waiting.feed(b"bo", b"dy", head + body, head + body)
    assert [request.body for request in waiting.requests] == [body] * 3
    assert waiting.continues == 1


def test_an_http10_client_is_not_asked_for_its_body() -> None:
    collector = Collector()
    collector.feed(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert collector.continues == 0


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"


@pytest.mark.parametrize(
    "framed",
    [b"Content-Length: 4\r\n\r\nbody", b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"],
)
def test_a_request_to_upgrade_is_read_as_a_plain_request_with_its_body(framed: bytes) -> None:
    data = b"POST /mcp HTTP/1.1\r\nHost: x\r\nA: 1\r\nA: 2\r\n" + H2C + framed + POST
    for chunks in ([data], single_bytes(data), [data, data]):
        collector = Collector()
        collector.feed(*chunks)
        first, second = collector.requests[:2]
        assert (first.path, first.query, first.body, first.keep_alive) == (b"/mcp", b"", b"body", True)
        assert first.repeated == (b"a",)
        assert first.headers[b"upgrade"] == b"h2c"
        assert (second.query, second.body) == (b"a=1", b"body")


def test_the_target_of_a_request_to_upgrade_is_known_while_its_body_arrives() -> None:
    collector = Collector()
    collector.feed(b"POST /api/tools?a=1 HTTP/1.1\r\nHost: x\r\n" + H2C + b"Transfer-Encoding: chunked\r\n\r\n")
    assert collector.parser.target == b"/api/tools?a=1"
    assert collector.refused(b"no chunk\r\n") == 400
    assert collector.parser.target == b"/api/tools?a=1"


def test_a_thousand_pipelined_upgrades_are_a_thousand_requests() -> None:
    assert len(Collector().feed((b"GET / HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n") * 1000)) == 1000


@pytest.mark.law
def test_an_upgrade_does_not_get_round_the_rules() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\n" + H2C
    assert Collector(body_bytes=3).refused(head + b"Content-Length: 4\r\n\r\n") == 413
    assert Collector().refused(head + b"Transfer-Encoding: gzip, chunked\r\n\r\n") == 400
    assert Collector().refused(head + b"Host: y\r\n\r\n") == 400
    assert Collector().refused(b"GET http://x/ HTTP/1.1\r\nHost: x\r\n" + H2C + b"\r\n") == 400


def test_an_upgrade_on_a_closing_connection_is_its_last_request() -> None:
    collector = Collector()
    collector.feed(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, upgrade\r\nUpgrade: h2c\r\n\r\n" + GET)
    [request] = collector.requests
    assert not request.keep_alive


def test_what_the_owner_raises_passes_through_and_closes_the_parser() -> None:
    def on_request(request: HttpRequest) -> None:
        seen.append(request)
        raise LookupError

    seen: list[HttpRequest] = []
    parser = RequestParser(HttpLimits(), on_request, None)
    with pytest.raises(LookupError):
        parser.feed(GET + GET)
    parser.feed(GET)
    assert len(seen) == 1


def test_an_owner_may_close_while_requests_are_reported() -> None:
    def on_request(request: HttpRequest) -> None:
        seen.append(request)
        parser.close()

    seen: list[HttpRequest] = []
    parser = RequestParser(HttpLimits(), on_request, None)
    parser.feed(GET + GET + b"\0")
    parser.feed(GET)
    assert len(seen) == 1


def test_a_closed_parser_is_freed_at_once() -> None:
    class Watched(RequestParser):
        __slots__ = ("__weakref__",)

    parser = Watched(HttpLimits(), lambda _: None, None)
    parser.feed(POST)
    parser.close()
    alive = weakref.ref(parser)
    gc.disable()
    try:
        del parser
        assert alive() is None
    finally:
        gc.enable()


# Heads whose body is on its way ---------------------------------------------------------------------------------------


def test_a_head_is_shown_once_when_its_body_has_not_come() -> None:
    heads: list[HttpRequest] = []
    requests: list[HttpRequest] = []
    parser = RequestParser(HttpLimits(), requests.append, None, heads.append)
    parser.feed(POST)
    assert not heads, "it came whole"
    parser.feed(POST[:-3])
    assert [(head.method, head.path, head.body) for head in heads] == [(b"POST", b"/mcp", b"")]
    head = head_size(heads[0])
    assert head >= len(b"/mcp") + sum(len(name) + len(value) for name, value in heads[0].headers.items())
    assert parser.held_bytes == head + 1
    parser.feed(b"od")
    assert parser.held_bytes == head + 3
    parser.feed(b"y" + POST[:30])
    assert (len(heads), len(requests)) == (1, 2)
    assert parser.held_bytes == 31, "at most the chunk in which it began"
    parser.feed(POST[30:-1])
    assert len(heads) == 2
    parser.feed(POST[-1:])
    assert (len(requests), parser.held_bytes) == (3, 0)


def test_a_parser_that_is_closed_at_the_head_keeps_nothing_of_the_body() -> None:
    requests: list[HttpRequest] = []
    continues: list[bool] = []

    def close(head: HttpRequest) -> None:
        assert head.headers[b"expect"] == b"100-continue"
        parser.close()

    parser = RequestParser(HttpLimits(), requests.append, lambda: continues.append(True), close)
    parser.feed(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
    parser.feed(b"123456789" + GET)
    assert not requests
    assert not continues
    assert parser.held_bytes == 0
