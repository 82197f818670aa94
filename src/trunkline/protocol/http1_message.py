"""What the parsers of HTTP/1.1 requests and responses share: limits, the problem that ends a connection, headers.

llhttp (under httptools) checks the grammar strictly: it refuses control characters, folded lines, bare CR or LF, a
space before the colon, Content-Length beside Transfer-Encoding or twice, and malformed chunks. What it accepts is
checked further here and by the two parsers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final, Generic, TypeVar

import msgspec

# The states of a parser: IDLE -> IN_HEAD -> IN_BODY -> IDLE for the next message, or -> CLOSED, which is never left,
# after the last message of the connection, a problem, or `close`.
IDLE: Final = 0
IN_HEAD: Final = 1
IN_BODY: Final = 2
CLOSED: Final = 3
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
        self._state = IDLE
        self._cached_heads = HeadCache[_Head]()
        self._headers: dict[bytes, bytes] = {}
        self._repeated: tuple[bytes, ...] = ()
        # Bytes fed since the connection was last idle: at least the size of the current message.
        self._fed_bytes = 0
        # Bytes fed since llhttp last reached the end of a head, body bytes or the end of a message.
        # httptools keeps a header or trailer until it ends: this stops one that never does.
        self._quiet_bytes = 0
        self._quiet_limit_bytes = limits.header_bytes + 2 * limits.header_count

    @abstractmethod
    def close(self) -> None:
        """Report nothing more, and drop the callbacks and llhttp, which both refer back to this object."""

    def feed(self, data: bytes) -> None:
        """Take received data. Raises `HttpProblem` after reporting what came before it; a callback may raise too."""
        try:
            if self._state == IDLE:
                head_end = data.find(_HEAD_END) + 4
                cached = self._cached_heads.get(data[:head_end])
                if cached is not None and cached[0] == len(data):
                    self._report_cached(cached[1], data[head_end:])
                else:
                    self._parse(data, head_end)
            elif self._state != CLOSED:
                self._parse(data, 0)
        except BaseException:
            self.close()
            raise

    def _parse(self, data: bytes, head_end: int) -> None:
        """`head_end` is the end of a head that begins with this chunk; 0 when the chunk begins inside a message."""
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
