"""What the parsers of HTTP/1.1 requests and responses share: states, limits, headers, what ends a connection.

llhttp (under httptools) checks the grammar strictly: it refuses control characters, folded lines, bare CR or LF, a
space before the colon, Content-Length beside Transfer-Encoding or twice, and malformed chunks. What it accepts is
checked further here and by the two parsers. One thing is let through: a message that says `RTSP/1.1` or `ICE/1.1` in
place of `HTTP/1.1` is read as HTTP, since httptools reports the number of the version but not the protocol.

The states of a parser (`_state`), each with what leaves it:

| State   | Event                                    | Next    | Set in                                               |
|---------|------------------------------------------|---------|------------------------------------------------------|
| IDLE    | the first byte of a message              | IN_HEAD | `on_message_begin`                                   |
|         | a message whose head is cached           | IDLE    | `feed` reports it without llhttp                     |
| IN_HEAD | the blank line                           | IN_BODY | `on_headers_complete`, even if there is no body      |
| IN_BODY | the end of the message                   | IDLE    | `on_message_complete`                                |
|         | the end of a request that closes         | CLOSED  | `RequestParser.on_message_complete`                  |
| any     | a problem, or a callback that raises     | CLOSED  | `feed`, which calls `close`                          |
|         | bytes after the end of a response        | CLOSED  | `ResponseParser._stop`; that response is reported    |
|         | the connection ends                      | CLOSED  | `ResponseParser.eof`; ends a response with no length |
|         | `close`, also from within a callback     | CLOSED  | `close`                                              |
| CLOSED  | whatever else arrives is ignored         | CLOSED  |                                                      |

A response that asks for the connection to be closed leaves its parser IDLE: closing is up to the owner, who looks at
`keep_alive`. llhttp is only ever ahead of what was reported within one call of `feed`; these flags say by how much:

- `RequestParser._resuming`: llhttp stopped after a head that offers an upgrade; a new one, which begins with a head of
  ours (IN_HEAD, IN_BODY once more), reads the body.
- `RequestParser._head_reported`: `on_head` was called, or was not wanted, for the request whose body is arriving.
- `RequestParser._expects_continue`: the current request asked for `100 Continue` and has not been told yet.
- `ResponseParser._head_ready`: a final head was parsed and not reported yet.
- `ResponseParser._ended`: the end of a response was parsed and not reported yet.
- `ResponseParser._is_event_stream`: the limit applies to what each compressed chunk decodes to, not to the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar, Final, Generic, TypeVar

import msgspec


class ParserState(Enum):
    IDLE = "idle"
    IN_HEAD = "in_head"
    IN_BODY = "in_body"
    CLOSED = "closed"


# Names of the module: each message looks at the state several times, and a member of an Enum costs another lookup.
IDLE: Final = ParserState.IDLE
IN_HEAD: Final = ParserState.IN_HEAD
IN_BODY: Final = ParserState.IN_BODY
CLOSED: Final = ParserState.CLOSED
_HEAD_END: Final = b"\r\n\r\n"
_HEADER_OVERHEAD_BYTES: Final = 3  # a colon, CR and LF; the optional space is not counted
_MAX_CACHED_HEADS: Final = 8
_MAX_CACHED_HEAD_BYTES: Final = 2048
_MAX_CACHED_HEAD_LINES: Final = 26
"""Only small heads are cached: as objects, headers take ten times their bytes."""

_Head = TypeVar("_Head")


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    header_bytes: int = 65536
    header_count: int = 100
    body_bytes: int = 4 * 1024 * 1024


class HttpProblem(Exception):
    """A message that cannot be accepted, nor can anything after it on the connection.

    For a request `status` is that of the response to send. For a response it is 413 (too large) or 502 (malformed).
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    @property
    def too_large(self) -> bool:
        return self.status == 413


def content_length(value: bytes) -> int:
    """The value of a Content-Length that llhttp has accepted; leading zeros are removed, as `int` limits digits."""
    return int(value.lstrip(b"0") or b"0")


class HeadCache(dict[bytes, tuple[int, _Head]], Generic[_Head]):
    """Heads that llhttp has accepted on this connection: bytes → size of the whole message, and the parsed head.

    A peer often sends the same head again and again on one connection, byte for byte. It is not parsed again when it
    arrives in one chunk with a body of the same length.
    """

    def add(self, data: bytes, head_bytes: int, body_bytes: int, head: _Head) -> None:
        """Keep the head of `data`, one whole message. Chunked bodies and stray line ends show in its size: not kept."""
        if len(data) != head_bytes + body_bytes or head_bytes > _MAX_CACHED_HEAD_BYTES:
            return
        if data.count(b"\n", 0, head_bytes) > _MAX_CACHED_HEAD_LINES:
            return
        if len(self) >= _MAX_CACHED_HEADS:
            self.clear()
        self[data[:head_bytes]] = (len(data), head)


class MessageParser(ABC, Generic[_Head]):
    """Base of both parsers: their state, known heads, the current message's headers, and how much llhttp may hold."""

    __slots__ = (
        "_cached_heads",
        "_fed_bytes",
        "_headers",
        "_limits",
        "_quiet_bytes",
        "_quiet_limit_bytes",
        "_repeated",
        "_state",
    )

    _too_large_status: ClassVar[int] = 431

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._state: ParserState = IDLE
        self._cached_heads = HeadCache[_Head]()
        self._headers: dict[bytes, bytes] = {}
        self._repeated: tuple[bytes, ...] = ()
        # Bytes fed since the connection was last idle: at least the size of the current message.
        self._fed_bytes = 0
        # Bytes fed since llhttp last reached the end of a head, body bytes or the end of a message.
        # httptools keeps a header or trailer until it ends: this stops one that never does.
        # The whitespace around a value does not count as part of a head, hence two more bytes for each header.
        self._quiet_bytes = 0
        self._quiet_limit_bytes = limits.header_bytes + 2 * limits.header_count

    @abstractmethod
    def close(self) -> None:
        """Report nothing more, and drop the callbacks and llhttp, which both refer back to this object."""

    def feed(self, data: bytes) -> None:
        """Take received data. Raises `HttpProblem` after reporting what came before it; a callback may raise too."""
        try:
            if self._state is IDLE:
                head_end = data.find(_HEAD_END) + 4
                # This is `_is_cached`, inlined: every message comes here.
                cached = self._cached_heads.get(data[:head_end])
                if cached is not None and cached[0] == len(data):
                    self._report_cached(cached[1], data[head_end:])
                else:
                    self._parse(data, head_end)
            elif self._state is not CLOSED:
                self._parse(data, 0)
        except BaseException:
            self.close()
            raise

    def _parse(self, data: bytes, head_end: int) -> None:
        """`head_end` is the end of a head that begins with this chunk (3, which is no head's end, if the chunk does not
        reach it); 0 when the chunk begins inside a message."""
        size = len(data)
        self._fed_bytes = size if head_end else self._fed_bytes + size
        self._quiet_bytes += size
        problem = self._execute(data)
        if problem is None and self._quiet_bytes > self._quiet_limit_bytes:
            problem = self._headers_too_large()
        self._report_parsed(data, head_end, problem)

    @abstractmethod
    def _report_cached(self, head: _Head, body: bytes) -> None:
        """Report a whole message whose head was parsed before."""

    @abstractmethod
    def _execute(self, data: bytes) -> BaseException | None:
        """Run llhttp over the data; returns what went wrong, unless the last message of the connection had ended."""

    @abstractmethod
    def _report_parsed(self, data: bytes, head_end: int, problem: BaseException | None) -> None:
        """Report what this chunk has brought, then raise the problem."""

    def _is_cached(self, data: bytes) -> bool:
        """Whether the data is one whole message whose head is cached."""
        cached = self._cached_heads.get(data[: data.find(_HEAD_END) + 4])
        return cached is not None and cached[0] == len(data)

    @property
    def mid_message(self) -> bool:
        """Whether a message has begun but not ended."""
        return self._state in (IN_HEAD, IN_BODY)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by llhttp for each header, and for each trailer."""
        name = name.lower()
        headers = self._headers
        if name in headers:
            value = self._join(name, value)
        headers[name] = value.rstrip(b" \t")

    def _join(self, name: bytes, value: bytes) -> bytes:
        self._repeated += (name,)
        if len(self._repeated) > self._limits.header_count:
            raise self._too_many_headers()
        return self._headers[name] + b", " + value

    def _take_headers(self, first_line_bytes: int) -> tuple[dict[bytes, bytes], tuple[bytes, ...]]:
        """The complete headers, and the names that are repeated. Raises if they exceed the limits."""
        headers, repeated, limits = self._headers, self._repeated, self._limits
        count = len(headers) + len(repeated)
        if count > limits.header_count:
            raise self._too_many_headers()
        if self._fed_bytes > limits.header_bytes:  # otherwise there is no need to count
            size = first_line_bytes + _HEADER_OVERHEAD_BYTES * count
            size += sum(map(len, headers)) + sum(map(len, headers.values())) + sum(map(len, repeated))
            if size > limits.header_bytes:
                raise self._headers_too_large()
        self._quiet_bytes = 0
        self._headers, self._repeated = {}, ()  # trailers are collected here and ignored
        return headers, repeated

    def _too_many_headers(self) -> HttpProblem:
        return HttpProblem(self._too_large_status, f"more than {self._limits.header_count} headers")

    def _headers_too_large(self) -> HttpProblem:
        return HttpProblem(self._too_large_status, f"headers are larger than {self._limits.header_bytes} bytes")
