"""HTTP/1.1 heads, written: status lines and header blocks in which no value can begin a line of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

Headers = Iterable[tuple[bytes, bytes]]

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(rb"/[!-\"$-~]*")

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
"""The whole interim answer to `Expect: 100-continue`."""


def response_head(status: int, headers: Headers) -> bytes:
    """The head of an answer, its blank line included. Raises ValueError for what could break out of a header."""
    line = _STATUS_LINES.get(status)
    if line is None:
        line = b"HTTP/1.1 %03d \r\n" % status
    return _head(line, headers)


def request_head(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The head of a request. Raises ValueError for what could break out of its line."""
    return _head(_request_line(method, target), headers)


@lru_cache(maxsize=256)
def _request_line(method: bytes, target: bytes) -> bytes:
    if not _TOKEN.fullmatch(method):
        raise ValueError(f"not an HTTP method: {method!r}")
    if not _TARGET.fullmatch(target):
        raise ValueError(f"not a request target: {target!r}")
    return method + b" " + target + b" HTTP/1.1\r\n"


def _head(first_line: bytes, headers: Headers) -> bytes:
    parts = [first_line]
    for name, value in headers:
        parts += (_name(name), value, b"\r\n")
    parts.append(b"\r\n")
    head = b"".join(parts)
    # One CR and one LF for each line we ended, and no other: any that a value brought would be one too many.
    lines = (len(parts) + 4) // 3
    if head.count(b"\r") != lines or head.count(b"\n") != lines or b"\0" in head:
        raise ValueError("a header value must not contain CR, LF or NUL")
    return head


@lru_cache(maxsize=1024)
def _name(name: bytes) -> bytes:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"not a header name: {name!r}")
    return name + b": "
