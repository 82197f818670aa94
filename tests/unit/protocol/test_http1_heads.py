from __future__ import annotations

import pytest

from trunkline.protocol.http1 import CONTINUE, HttpRequest, RequestParser, request_head, response_head
from trunkline.protocol.http1_message import HttpLimits

BREAKS = [b"a\r\nSet-Cookie: b", b"a\nb", b"a\rb", b"a\0b", b"\r\n"]


def test_a_response_head_is_written_with_its_reason() -> None:
    head = response_head(200, [(b"content-type", b"application/json"), (b"content-length", b"2")])
    assert head == b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n"
    assert response_head(204, []) == b"HTTP/1.1 204 No Content\r\n\r\n"
    assert response_head(520, iter(())) == b"HTTP/1.1 520 \r\n\r\n"
    assert CONTINUE == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_request_head_is_read_back_as_it_was_written() -> None:
    requests: list[HttpRequest] = []
    head = request_head(b"POST", b"/mcp?a=b%20c", [(b"host", b"x"), (b"content-length", b"0"), (b"a", b"")])
    RequestParser(HttpLimits(), requests.append, None).feed(head)
    [request] = requests
    assert (request.method, request.path, request.query) == (b"POST", b"/mcp", b"a=b%20c")
    assert request.headers == {b"host": b"x", b"content-length": b"0", b"a": b""}


@pytest.mark.law
@pytest.mark.parametrize("text", BREAKS)
def test_nothing_can_break_out_of_a_header(text: bytes) -> None:
    for headers in ([(b"a", text)], [(text, b"a")], [(b"a", b"b"), (b"c", text)]):
        with pytest.raises(ValueError):
            response_head(200, headers)
        with pytest.raises(ValueError):
            request_head(b"GET", b"/", headers)


@pytest.mark.parametrize("name", [b"", b"a b", b"a:", b"\xe9", b"a "])
def test_a_name_that_is_no_token_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError):
        response_head(200, [(name, b"x")])


@pytest.mark.parametrize("target", [b"", b"mcp", b"/a b", b"/a\r\nb", b"/\xff", b"/a#b", b"*"])
def test_a_target_that_is_no_path_is_refused(target: bytes) -> None:
    with pytest.raises(ValueError):
        request_head(b"GET", target, [])


@pytest.mark.parametrize("method", [b"", b"GET /x", b"G\r\n"])
def test_a_method_that_is_no_token_is_refused(method: bytes) -> None:
    with pytest.raises(ValueError):
        request_head(method, b"/", [])
