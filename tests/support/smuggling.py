"""Requests that try to be read two ways, each with the status that must refuse it. No test may accept one of them."""

from __future__ import annotations

_POST = b"POST /mcp HTTP/1.1\r\nHost: x\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


def _get(*lines: bytes, target: bytes = b"/", version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET " + target + b" " + version + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


NASTY_REQUESTS: dict[str, tuple[bytes, int]] = {
    # Two lengths
    "length and chunked": (_POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + _END, 400),
    "chunked and length": (_POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n" + _END, 400),
    "two lengths": (_POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "the same length twice": (_POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    "a list of lengths": (_POST + b"Content-Length: 3, 3\r\n\r\nabc", 400),
    "length with a plus": (_POST + b"Content-Length: +3\r\n\r\nabc", 400),
    "length below zero": (_POST + b"Content-Length: -3\r\n\r\nabc", 400),
    "length in hex": (_POST + b"Content-Length: 0x3\r\n\r\nabc", 400),
    "length with a space inside": (_POST + b"Content-Length: 1 3\r\n\r\nabc", 400),
    "empty length": (_POST + b"Content-Length:\r\n\r\nabc", 400),
    "length that overflows": (_POST + b"Content-Length: 18446744073709551617\r\n\r\na", 400),
    # Other transfer codings
    "identity": (_POST + b"Transfer-Encoding: identity\r\n\r\nabc", 400),
    "gzip": (_POST + b"Transfer-Encoding: gzip\r\n\r\nabc", 400),
    "gzip, chunked": (_POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + _END, 400),
    "chunked, identity": (_POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + _END, 400),
    "chunked twice": (_POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + _END, 400),
    "chunked, then identity": (_POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" + _END, 400),
    "xchunked": (_POST + b"Transfer-Encoding: xchunked\r\n\r\n" + _END, 400),
    "quoted chunked": (_POST + b'Transfer-Encoding: "chunked"\r\n\r\n' + _END, 400),
    "chunked behind a vertical tab": (_POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + _END, 400),
    "empty transfer coding": (_POST + b"Transfer-Encoding:\r\nContent-Length: 3\r\n\r\nabc", 400),
    "chunked in HTTP/1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + _END, 400),
    # Chunks
    "chunk size ended by LF": (_CHUNKED + b"3\nabc\r\n" + _END, 400),
    "chunk extension ended by LF": (_CHUNKED + b"3;a\nabc\r\n" + _END, 400),
    "chunk size ended by bare CR": (_CHUNKED + b"3\rXabc\r\n" + _END, 400),
    "chunk without its CRLF": (_CHUNKED + b"3\r\nabc" + _END, 400),
    "chunk longer than its size": (_CHUNKED + b"3\r\nabcd\r\n" + _END, 400),
    "chunk size with 0x": (_CHUNKED + b"0x3\r\nabc\r\n" + _END, 400),
    "chunk size below zero": (_CHUNKED + b"-3\r\nabc\r\n" + _END, 400),
    "chunk size with a space": (_CHUNKED + b"3 \r\nabc\r\n" + _END, 400),
    "chunk size missing": (_CHUNKED + b"\r\nabc\r\n" + _END, 400),
    "chunk size that overflows": (_CHUNKED + b"1" + b"0" * 16 + b"\r\nabc", 400),
    # Lines that are not lines
    "lines ended by LF": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "one header ended by LF": (b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400),
    "head ended by LF": (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
    "bare CR in a value": (_get(b"Host: x", b"A: b\rC: d"), 400),
    "CR CR LF": (b"GET / HTTP/1.1\r\nHost: x\r\r\n\r\n", 400),
    "folded value": (_get(b"Host: x", b"A: b", b" c"), 400),
    "folded value with a tab": (_get(b"Host: x", b"A: b", b"\tTransfer-Encoding: chunked"), 400),
    "space before the first header": (_get(b" Host: x"), 400),
    # Characters
    "space before the colon": (_POST + b"Content-Length : 3\r\n\r\nabc", 400),
    "NUL in a value": (_get(b"Host: x", b"A: b\0c"), 400),
    "NUL in a name": (_get(b"Host: x", b"A\0: b"), 400),
    "control character in a value": (_get(b"Host: x", b"A: b\x01c"), 400),
    "delete in a value": (_get(b"Host: x", b"A: b\x7fc"), 400),
    "empty name": (_get(b"Host: x", b": b"), 400),
    "name that is not ASCII": (_get(b"Host: x", b"A\xe9: b"), 400),
    "header without a colon": (_get(b"Host: x", b"A"), 400),
    # Who is meant
    "no Host": (_get(), 400),
    "two Hosts": (_get(b"Host: x", b"Host: y"), 400),
    "the same Host twice": (_get(b"Host: x", b"host: x"), 400),
    "Host with a path": (_get(b"Host: x/health?"), 400),
    "Host with a fragment": (_get(b"Host: x#"), 400),
    "Host with dots behind a slash": (_get(b"Host: x/.."), 400),
    "Host with a user": (_get(b"Host: a@x"), 400),
    "Host with a space": (_get(b"Host: x y"), 400),
    "list of Hosts": (_get(b"Host: x, y"), 400),
    "absolute target": (_get(b"Host: x", target=b"http://x/"), 400),
    "absolute target elsewhere": (_get(b"Host: x", target=b"https://evil.example/mcp"), 400),
    "authority as the target": (_get(b"Host: x", target=b"x:80"), 400),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "CONNECT": (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "fragment in the target": (_get(b"Host: x", target=b"/mcp#/healthz"), 400),
    "space in the target": (_get(b"Host: x", target=b"/a b"), 400),
    "control character in the target": (_get(b"Host: x", target=b"/a\x01"), 400),
    "target that is not ASCII": (_get(b"Host: x", target=b"/\xff"), 400),
    # Versions and methods
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
    "HTTP/0.9 with headers": (_get(b"Host: x", version=b"HTTP/0.9"), 505),
    "HTTP/1.2": (_get(b"Host: x", version=b"HTTP/1.2"), 505),
    "HTTP/2.0": (_get(b"Host: x", version=b"HTTP/2.0"), 505),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "http in small letters": (_get(b"Host: x", version=b"http/1.1"), 400),
    "method in small letters": (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "unknown method": (b"SMUGGLE / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "space before the method": (b" GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "unknown expectation": (_POST + b"Expect: 200-ok\r\nContent-Length: 3\r\n\r\nabc", 417),
}
