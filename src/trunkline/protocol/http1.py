"""Reads HTTP/1.1 requests (bytes in, whole requests out), and writes the heads of requests and responses.

`http1_message` has the states and what both parsers share: read it first. llhttp (httptools) parses the grammar; the
rules that it leaves open are decided here. The owner of the connection answers an `HttpProblem` with its status and
closes: what follows may not begin where it seems to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import httptools
import msgspec

from trunkline.protocol.framing import ByteBuffer
from trunkline.protocol.http1_message import (
    CLOSED,
    IDLE,
    IN_BODY,
    IN_HEAD,
    HttpLimits,
    HttpProblem,
    MessageParser,
    content_length,
)

HeaderPairs = Iterable[tuple[bytes, bytes]]

_FIRST_LINE_BYTES: Final = 14  # two spaces, `HTTP/1.1`, CRLF, and the CRLF that ends the head
_HEADER_BYTES: Final = 200
"""The memory that a header takes besides its bytes: two objects and a place in a dictionary."""
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=-]*(:[0-9]*)?|\[[0-9A-Za-z:.%]+\](:[0-9]*)?")


class HttpRequest(msgspec.Struct, gc=False):
    """One request. Header names are lower-case; the values of `repeated` ones are joined by commas.

    `headers` may be the same object as for an earlier request with the same head: never change it.

    The garbage collector does not track requests (`gc=False`): there is one per message, and none is part of a cycle.
    """

    method: bytes
    path: bytes
    query: bytes
    headers: Mapping[bytes, bytes]
    repeated: tuple[bytes, ...]
    http10: bool
    keep_alive: bool
    body: bytes

    if TYPE_CHECKING:  # every struct has it, but msgspec's type stubs do not

        def __copy__(self) -> HttpRequest: ...


class RequestParser(MessageParser[HttpRequest]):
    """Reads the requests of one connection in order, including pipelined ones.

    `on_request`, `on_head` and `on_expect_continue` are called from `feed`, never from inside llhttp, so they may close
    the parser or raise (which closes it too). `on_head` gets a request whose body has not arrived yet, without it.
    After a request that ends the connection, and after a problem, whatever else arrives is ignored.

    A head is kept as a request without a body, and copied for every request that has it.
    """

    __slots__ = (
        "_body",
        "_done",
        "_expects_continue",
        "_head",
        "_head_bytes",
        "_head_reported",
        "_llhttp",
        "_on_expect_continue",
        "_on_head",
        "_on_request",
        "_resuming",
        "_url",
        "held_bytes",
    )

    def __init__(
        self,
        limits: HttpLimits,
        on_request: Callable[[HttpRequest], None],
        on_expect_continue: Callable[[], None] | None = None,
        on_head: Callable[[HttpRequest], None] | None = None,
    ) -> None:
        super().__init__(limits)
        self._on_request = on_request
        self._on_head = on_head
        self._on_expect_continue = on_expect_continue
        self.held_bytes = 0
        """How much of an incomplete request is kept here."""
        self._done: list[HttpRequest] = []
        self._url = b""
        self._head: HttpRequest | None = None
        self._body = ByteBuffer()
        self._head_bytes = 0
        self._head_reported = False
        self._expects_continue = False
        self._resuming = False
        self._llhttp: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def takes_whole(self, data: bytes) -> bool:
        """Whether all of this is quick to read: part of a body whose length is known, or a repeated head. Anything else
        may be many requests, or chunks of one byte each."""
        if self._state is IN_BODY and self._head is not None:
            length = self._head.headers.get(b"content-length")
            return length is not None and content_length(length) - self._body.size >= len(data)
        return self._state is IDLE and self._is_cached(data)

    @property
    def target(self) -> bytes:
        """The target of the current request, as far as it was read."""
        return self._url

    def forget_heads(self) -> None:
        """Do not keep the heads of this peer: it is not trusted."""
        self._cached_heads.clear()

    def close(self) -> None:
        self._state = CLOSED
        self._cached_heads.clear()
        self._done.clear()
        self._body.clear()
        self.held_bytes = 0
        self._llhttp = None
        self._on_request = _ignore
        self._on_head = self._on_expect_continue = None

    def _report_cached(self, head: HttpRequest, body: bytes) -> None:
        request = head.__copy__()
        request.body = body
        self._on_request(request)

    def _report_parsed(self, data: bytes, head_end: int, problem: BaseException | None) -> None:
        done = self._done
        if len(done) == 1 and head_end and self._state is IDLE and self._head is not None:
            # Added before the request is reported, so that the callback can forget it (`forget_heads`).
            self._cached_heads.add(data, head_end, len(done[0].body), self._head)
        done.reverse()
        while done:
            self._on_request(done.pop())
        if problem is not None and self._llhttp is not None:
            raise problem
        if self._state is IN_BODY:
            self._body_awaited()
        if self._state is IN_HEAD:  # llhttp does not say where in this chunk it began
            self.held_bytes = self._quiet_bytes or min(len(data), self._limits.header_bytes)
            self.held_bytes += _HEADER_BYTES * len(self._headers)
        elif self._state is IN_BODY:
            self.held_bytes = self._body.size + self._head_bytes
        else:
            self.held_bytes = 0

    def _body_awaited(self) -> None:
        """Report a head whose body is incomplete: the last chance to refuse the request without reading its body."""
        if not self._head_reported and self._head is not None:
            self._head_reported = True
            self._head_bytes = head_size(self._head)
            if self._on_head is not None:
                self._on_head(self._head.__copy__())
        if self._expects_continue:
            self._expects_continue = False
            if self._body.size == 0 and self._on_expect_continue is not None:
                self._on_expect_continue()

    def _execute(self, data: bytes) -> BaseException | None:
        while self._llhttp is not None:
            try:
                self._llhttp.feed_data(data)
            except httptools.HttpParserUpgrade as pause:
                data = self._framing_without_upgrade() + data[pause.args[0] :]
                self._llhttp = httptools.HttpRequestParser(self)
            except httptools.HttpParserCallbackError as error:
                return error.__context__ or _refusal_of(error)
            except httptools.HttpParserError as error:
                return None if self._state is CLOSED else _refusal_of(error)
            else:
                break
        return None

    # Called by llhttp. An exception stops it at once and is returned by `_execute`.

    def on_message_begin(self) -> None:
        self._state = IN_HEAD
        self._head_reported = False
        self._url = b""
        self._headers = {}
        self._repeated = ()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        llhttp = self._llhttp
        assert llhttp is not None
        method = llhttp.get_method()
        headers, repeated = self._take_headers(len(method) + len(self._url) + _FIRST_LINE_BYTES)
        self._state = IN_BODY
        if self._resuming:
            self._resuming = False
            return
        path, query = _split_target(self._url)
        version = llhttp.get_http_version()
        http10 = version == "1.0"
        if not http10 and version != "1.1":
            raise HttpProblem(505, f"HTTP version {version} is not supported")
        if b"host" in headers:
            _check_host(headers[b"host"], b"host" in repeated)
        elif not http10:
            raise HttpProblem(400, "Host is missing")
        self._check_body(headers, http10)
        self._head = HttpRequest(method, path, query, headers, repeated, http10, llhttp.should_keep_alive(), b"")
        self._resuming = llhttp.should_upgrade()

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        self._body.append(data)
        if self._body.size > self._limits.body_bytes:
            raise self._body_too_large()

    def on_message_complete(self) -> None:
        head = self._head
        if self._resuming or head is None:
            return
        self._quiet_bytes = 0
        self._state = IDLE if head.keep_alive else CLOSED
        request = head.__copy__()
        request.body = self._body.take()
        self._done.append(request)

    def _framing_without_upgrade(self) -> bytes:
        """A head with the same target that makes a new llhttp parser read the body of the request.

        For a request to upgrade, httptools reads no body and hands the connection over. We never upgrade, and some
        clients (Java's) offer HTTP/2 with their first POST, so that request is resumed after its head.
        """
        assert self._head is not None
        headers = self._head.headers
        framing = [(name, headers[name]) for name in (b"content-length", b"transfer-encoding") if name in headers]
        if not self._head.keep_alive:
            framing.append((b"connection", b"close"))
        return _head(b"POST %b HTTP/1.1\r\n" % self._url, framing)

    def _check_body(self, headers: dict[bytes, bytes], http10: bool) -> None:
        length = headers.get(b"content-length")
        if length is not None:
            if content_length(length) > self._limits.body_bytes:
                raise self._body_too_large()
        elif b"transfer-encoding" in headers and (http10 or headers[b"transfer-encoding"].lower() != b"chunked"):
            raise HttpProblem(400, "Transfer-Encoding is not `chunked`")
        expectation = headers.get(b"expect")
        if expectation is not None and expectation.lower() != b"100-continue":
            raise HttpProblem(417, "Expect is not `100-continue`")
        self._expects_continue = expectation is not None and not http10

    def _body_too_large(self) -> HttpProblem:
        return HttpProblem(413, f"body is larger than {self._limits.body_bytes} bytes")


def head_size(request: HttpRequest) -> int:
    """Roughly the memory that a head takes: its target is kept twice, whole and in parts."""
    headers = request.headers
    written = 2 * (len(request.path) + len(request.query)) + sum(map(len, headers)) + sum(map(len, headers.values()))
    return written + _HEADER_BYTES * len(headers)


def _ignore(_: HttpRequest) -> None:
    """Replaces the callback of a closed parser."""


# The caches of these functions: clients name the same few hosts and targets again and again. They are small, because a
# client may also name a new one each time.


@lru_cache(maxsize=32)
def _check_host(host: bytes, repeated: bool) -> None:
    if repeated or not _HOST.fullmatch(host):
        raise HttpProblem(400, "Host is not valid")


@lru_cache(maxsize=32)
def _split_target(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a target. Only the origin form is accepted: no `http://…`, `*` or `host:port`."""
    if not target.startswith(b"/") or b"#" in target:
        raise HttpProblem(400, "request target is not a path")
    path, _, query = target.partition(b"?")
    return path, query


def _refusal_of(error: httptools.HttpParserError) -> HttpProblem:
    reason = str(error)
    return HttpProblem(505 if reason == "Invalid HTTP version" else 400, reason)


# -- writing heads -----------------------------------------------------------------------------------------------------

_TARGET: Final = re.compile(rb"/[!-\"$-~]*")
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REASONS: Final = {
    100: "Continue",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    499: "Client Closed Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}
_STATUS_LINES: Final = {status: f"HTTP/1.1 {status} {reason}\r\n".encode() for status, reason in _REASONS.items()}

CONTINUE: Final = _STATUS_LINES[100] + b"\r\n"
"""The whole interim response to `Expect: 100-continue`."""


def response_head(status: int, headers: HeaderPairs) -> bytes:
    """The head of a response with its blank line. Raises ValueError for a header that could inject another line."""
    line = _STATUS_LINES.get(status)
    if line is None:
        line = b"HTTP/1.1 %03d \r\n" % status
    return _head(line, headers)


def request_head(method: bytes, target: bytes, headers: HeaderPairs) -> bytes:
    """The head of a request with its blank line. Raises ValueError for anything that could inject another line."""
    return _head(_request_line(method, target), headers)


@lru_cache(maxsize=256)  # checked once: a source's requests all have the same few targets
def _request_line(method: bytes, target: bytes) -> bytes:
    if not _TOKEN.fullmatch(method):
        raise ValueError(f"not an HTTP method: {method!r}")
    if not _TARGET.fullmatch(target):
        raise ValueError(f"not a request target: {target!r}")
    return method + b" " + target + b" HTTP/1.1\r\n"


def _head(first_line: bytes, headers: HeaderPairs) -> bytes:
    parts = [first_line]
    for name, value in headers:
        parts += (_name_and_colon(name), value, b"\r\n")
    parts.append(b"\r\n")
    head = b"".join(parts)
    # Exactly one CR and one LF for each line: any that a value contains would be one too many. The lines are the first
    # one (one part), a header each (three parts), and the blank one (one part).
    lines = (len(parts) + 4) // 3
    if head.count(b"\r") != lines or head.count(b"\n") != lines or b"\0" in head:
        raise ValueError("a header value must not contain CR, LF or NUL")
    return head


@lru_cache(maxsize=1024)  # checked once: the same names are written again and again
def _name_and_colon(name: bytes) -> bytes:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"not a header name: {name!r}")
    return name + b": "
