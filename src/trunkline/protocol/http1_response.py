"""Reads HTTP/1.1 responses: bytes of one connection in; head, decoded body and end of each response out.

`http1_message` has the states and what both parsers share: read it first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final, NamedTuple, Protocol

import httptools

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

PIECE_BYTES: Final = 65536
_FIRST_LINE_BYTES: Final = 17  # `HTTP/1.1 200`, a space, CRLF, and the CRLF that ends the head
_GZIP_BITS: Final = 16 + zlib.MAX_WBITS
_ZLIB_BITS: Final = zlib.MAX_WBITS
_RAW_BITS: Final = -zlib.MAX_WBITS


class CodingError(Exception):
    """A body that does not match its Content-Encoding, or an encoding that is not supported."""


class _Stream(Protocol):
    """What `zlib.decompressobj` returns."""

    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Inflater:
    """Decodes `gzip` or `deflate` into pieces of at most `PIECE_BYTES`, each on demand, whatever a body expands to."""

    __slots__ = ("_coding", "_stream")

    def __init__(self, coding: bytes) -> None:
        if coding not in (b"gzip", b"x-gzip", b"deflate"):
            raise CodingError(f"unsupported Content-Encoding `{coding.decode('latin-1')}`")
        self._coding = coding
        self._stream: _Stream | None = None

    def decode(self, data: bytes) -> Iterator[bytes]:
        stream = self._stream
        if stream is None:
            bits = _GZIP_BITS
            if self._coding == b"deflate":
                # `deflate` means zlib's format, but some servers send a raw stream: the first byte tells them apart.
                bits = _ZLIB_BITS if data[0] & 0x0F == 8 else _RAW_BITS
            stream = self._stream = zlib.decompressobj(bits)
        try:
            while data or not stream.eof:
                piece = stream.decompress(data, PIECE_BYTES)
                if piece:
                    yield piece
                data = stream.unconsumed_tail
                if stream.unused_data:
                    raise CodingError("data after the end of the compressed body")
                if not data and len(piece) < PIECE_BYTES:
                    break
        except zlib.error as error:
            raise CodingError(f"corrupt compressed body: {error}") from error

    def finish(self) -> None:
        """Raises CodingError if the body ended too soon."""
        if self._stream is not None and not self._stream.eof:
            raise CodingError("compressed body ends too soon")


class ResponseHead(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]


class ResponseParser(MessageParser[ResponseHead]):
    """Reads the responses of one connection, one after the other. Not for responses to HEAD, whose length has no body.

    The callbacks run from `feed`, never from inside llhttp, so they may close the parser or raise (which closes it
    too). For each response: `on_head` once (interim 1xx responses are skipped), `on_body` for each chunk that brings
    some of it, and `on_end` once, after the chunk was read to its end. Only one response is expected at a time: bytes
    after its end belong to none, so they clear `keep_alive` before `on_end`.

    The limit counts decoded bytes of one response. `on_head` may call `expect_events` for an endless stream, of which
    each compressed chunk still must not decode to more than the limit.
    """

    __slots__ = (
        "_decoded_bytes",
        "_ended",
        "_head",
        "_head_ready",
        "_inflater",
        "_is_event_stream",
        "_llhttp",
        "_on_body",
        "_on_end",
        "_on_head",
        "_pieces",
        "keep_alive",
    )

    _too_large_status: ClassVar[int] = 413

    def __init__(
        self,
        limit_bytes: int,
        on_head: Callable[[int, Mapping[bytes, bytes]], None],
        on_body: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(HttpLimits(body_bytes=limit_bytes))
        self._on_head = on_head
        self._on_body = on_body
        self._on_end = on_end
        self._head = ResponseHead(0, {})
        self._head_ready = False
        self._ended = False
        self._pieces: list[bytes] = []
        self._inflater: Inflater | None = None
        self._decoded_bytes = 0
        self._is_event_stream = False
        self.keep_alive = True
        """Whether the connection can carry another request; settled when `on_end` is called."""
        self._llhttp: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def expect_events(self) -> None:
        """Treat the response whose head was just reported as a stream of events, whose total size is unlimited."""
        self._is_event_stream = True

    def close(self) -> None:
        self._stop()
        self._pieces.clear()
        self._head_ready = self._ended = False
        self._on_head = self._on_body = self._on_end = _ignore

    def _report_cached(self, head: ResponseHead, body: bytes) -> None:
        # Only heads that kept the connection and have no Content-Encoding are cached, and a body of this length was
        # within the limit, so nothing is left to check.
        self.keep_alive = True
        self._on_head(head.status, head.headers)
        if body:
            self._on_body(body)
        self._on_end()

    def _report_parsed(self, data: bytes, head_end: int, problem: BaseException | None) -> None:
        if head_end and self._ended and self.keep_alive and b"content-encoding" not in self._head.headers:
            self._cached_heads.add(data, head_end, sum(map(len, self._pieces)), self._head)
        self._report()
        if problem is not None:
            raise problem

    def eof(self) -> None:
        """The server closed the connection: this ends a response without a length and truncates any other."""
        state, headers = self._state, self._head.headers
        framed = b"content-length" in headers or b"transfer-encoding" in headers
        try:
            if state is IN_HEAD or (state is IN_BODY and framed):
                raise HttpProblem(502, "connection closed in the middle of a response")
            self.keep_alive = False
            if state is IN_BODY:
                self._ended = True
                self._report()
        finally:
            self.close()

    def _execute(self, data: bytes) -> BaseException | None:
        assert self._llhttp is not None
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            problem = error.__context__ or HttpProblem(502, str(error))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            problem = HttpProblem(502, str(error))
        else:
            return None
        if not self._ended:
            return problem
        self._stop()
        return None

    def _stop(self) -> None:
        """Read nothing more; what was read is still reported."""
        self._state = CLOSED
        self.keep_alive = False
        self._cached_heads.clear()
        self._llhttp = None

    def _report(self) -> None:
        if self._head_ready:
            self._head_ready = False
            self._on_head(*self._head)
            if self._pieces or self._state is IN_BODY:
                length = self._head.headers.get(b"content-length")
                if (
                    length is not None
                    and content_length(length) > self._limits.body_bytes
                    and not self._is_event_stream
                ):
                    raise self._body_too_large()
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._report_body(data)
        if self._ended:
            self._ended = False
            if self._inflater is not None:
                try:
                    self._inflater.finish()
                except CodingError as error:
                    raise HttpProblem(502, str(error)) from error
            self._on_end()

    def _report_body(self, data: bytes) -> None:
        if self._is_event_stream:
            if b"content-encoding" not in self._head.headers:
                self._on_body(data)  # no larger than what was received; the owner limits each event
                return
            self._decoded_bytes = 0
        try:
            for piece in self._decoded(data):
                self._decoded_bytes += len(piece)
                if self._decoded_bytes > self._limits.body_bytes:
                    raise self._body_too_large()
                self._on_body(piece)
        except CodingError as error:
            raise HttpProblem(502, str(error)) from error

    def _decoded(self, data: bytes) -> Iterable[bytes]:
        coding = self._head.headers.get(b"content-encoding", b"identity").lower()
        if coding == b"identity":
            return (data,)
        if self._inflater is None:
            self._inflater = Inflater(coding)
        return self._inflater.decode(data)

    def _body_too_large(self) -> HttpProblem:
        return HttpProblem(413, f"response is larger than {self._limits.body_bytes} bytes")

    # Called by llhttp. An exception stops it at once and is returned by `_execute`.

    def on_message_begin(self) -> None:
        if self._ended:
            raise HttpProblem(502, "data after the end of the response")
        self._state = IN_HEAD
        self._decoded_bytes = 0
        self._inflater = None
        self._is_event_stream = False
        self._headers = {}
        self._repeated = ()

    def on_headers_complete(self) -> None:
        assert self._llhttp is not None
        headers, _ = self._take_headers(_FIRST_LINE_BYTES)
        status = self._llhttp.get_status_code()
        if status < 100 or status == 101 or not self._llhttp.get_http_version().startswith("1."):
            raise HttpProblem(502, f"response with status {status}, which is not HTTP/1.1")
        if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise HttpProblem(502, "Transfer-Encoding is not `chunked`")
        self._head = ResponseHead(status, headers)
        self._state = IN_BODY
        self._head_ready = status >= 200

    def on_body(self, data: bytes) -> None:
        self._quiet_bytes = 0
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        assert self._llhttp is not None
        self._quiet_bytes = 0
        self._state = IDLE
        if self._head.status >= 200:
            self._ended = True
            self.keep_alive = self._llhttp.should_keep_alive()


def _ignore(*_: object) -> None:
    """Replaces the callbacks of a closed parser."""
