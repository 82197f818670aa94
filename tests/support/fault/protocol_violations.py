"""Tools of a fault server that break the protocol. Other calls in flight must not notice. By name:

bad_json, unreadable, bad_utf8, deep, nan, raw_newline, duplicate_keys, no_result, wrong_id, wrong_then_right, twice,
string_id, id_last, noise, half, rst, fin, huge, huge_id_last. Over HTTP only: html_200, html_502, redirect,
unauthorized, sse_no_reply, sse_reset, slow_headers, slow_body, gzip_bomb, forget_session, empty_200, accepted.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from tests.support.fault.rpc import Exchange

MIB = 1024 * 1024
NOISE = (b"Server listening...", b"", b"   ", b"{not json", b"[1, 2]", b'"text"', b"null", b"\x1b[32mok\x1b[0m")
HTML = b"<html><body>an error page of some proxy</body></html>"


def table() -> dict[str, Callable[[Exchange], None]]:
    everywhere = (
        bad_json,
        unreadable,
        bad_utf8,
        deep,
        nan,
        raw_newline,
        duplicate_keys,
        no_result,
        wrong_id,
        wrong_then_right,
        twice,
        string_id,
        id_last,
        noise,
        half,
        rst,
        fin,
        huge,
        huge_id_last,
    )
    http_only = (
        html_200,
        html_502,
        redirect,
        unauthorized,
        sse_no_reply,
        sse_reset,
        slow_headers,
        slow_body,
        gzip_bomb,
        forget_session,
        empty_200,
        accepted,
    )
    return {wreck.__name__: wreck for wreck in everywhere + http_only}


def _content(text: bytes) -> bytes:
    return b'{"content":[{"type":"text","text":"' + text + b'"}]}'


def bad_json(exchange: Exchange) -> None:
    """The id is readable, the rest is not."""
    exchange.send(exchange.envelope("result", b'{"content":[}'), last=True)


def unreadable(exchange: Exchange) -> None:
    exchange.send(b"{not json", last=True)


def bad_utf8(exchange: Exchange) -> None:
    exchange.answer_raw(_content(b"\xff\xfe\xc3"))


def deep(exchange: Exchange) -> None:
    levels = int(exchange.args.get("levels", 100_000))
    exchange.answer_raw(b'{"content":[],"deep":' + b"[" * levels + b"]" * levels + b"}")


def nan(exchange: Exchange) -> None:
    exchange.answer_raw(b'{"content":[],"structuredContent":{"x":NaN}}')


def raw_newline(exchange: Exchange) -> None:
    """A line feed inside a string: not JSON, and on a line-framed wire the start of a second message."""
    smuggled = b'{"jsonrpc":"2.0","method":"notifications/smuggled"}'
    exchange.answer_raw(b'{"content":[],"x":"\n' + smuggled + b'\n"}')


def duplicate_keys(exchange: Exchange) -> None:
    """Two ids in one answer: which one a reader takes must not matter."""
    head = exchange.envelope("result", _content(b"twice"))
    exchange.send(head[:-1] + b',"id":999999}', last=True)


def no_result(exchange: Exchange) -> None:
    """Neither a result nor an error."""
    exchange.send(exchange.envelope("nothing", b"{}"), last=True)


def wrong_id(exchange: Exchange) -> None:
    exchange.send(exchange.envelope("result", _content(b"wrong"), id=987654321), last=True)


def wrong_then_right(exchange: Exchange) -> None:
    exchange.send(exchange.envelope("result", _content(b"wrong"), id=987654321))
    exchange.text("right")


def twice(exchange: Exchange) -> None:
    exchange.send(exchange.envelope("result", _content(b"first")))
    exchange.send(exchange.envelope("result", _content(b"second")), last=True)


def string_id(exchange: Exchange) -> None:
    """The right digits as the wrong type."""
    given: Any = str(exchange.id) if isinstance(exchange.id, int) else int(exchange.id)
    exchange.send(exchange.envelope("result", _content(b"string"), id=given), last=True)


def id_last(exchange: Exchange) -> None:
    """Proper JSON in an unusual order, with a decoy of an id inside the result."""
    head = b'{"result":{"id":0,"content":[{"type":"text","text":"\\"id\\":1"}]},"jsonrpc":"2.0","id":'
    exchange.send(head + str(exchange.id).encode() + b"}", last=True)


def noise(exchange: Exchange) -> None:
    """What a library prints when nobody looks, then the answer."""
    for line in NOISE:
        exchange.send(line)
    exchange.text("quiet")


def half(exchange: Exchange) -> None:
    exchange.half()


def rst(exchange: Exchange) -> None:
    exchange.reset()


def fin(exchange: Exchange) -> None:
    exchange.hang_up()


def huge(exchange: Exchange) -> None:
    exchange.answer_raw(_content(b"x" * (int(exchange.args.get("mib", 17)) * MIB)))


def huge_id_last(exchange: Exchange) -> None:
    body = _content(b"x" * (17 * MIB))
    exchange.send(b'{"result":' + body + b',"jsonrpc":"2.0","id":' + str(exchange.id).encode() + b"}", last=True)


# From here on only over HTTP: `exchange.connection` writes responses of any kind.


def html_200(exchange: Any) -> None:
    exchange.connection.respond(200, HTML, "text/html")


def html_502(exchange: Any) -> None:
    exchange.connection.respond(502, HTML, "text/html")


def redirect(exchange: Any) -> None:
    exchange.connection.respond(307, b"", "text/plain", {"Location": exchange.server.options.redirect_to})


def unauthorized(exchange: Any) -> None:
    exchange.connection.respond(401, b"", "text/plain", {"WWW-Authenticate": 'Bearer realm="fault"'})


def empty_200(exchange: Any) -> None:
    exchange.connection.respond(200, b"", "application/json")


def accepted(exchange: Any) -> None:
    """As if it had been a notification."""
    exchange.connection.respond(202, b"", "application/json")


def sse_no_reply(exchange: Any) -> None:
    exchange.open_stream()
    exchange.close_stream()


def sse_reset(exchange: Any) -> None:
    exchange.open_stream()
    exchange.notify("notifications/message", {"level": "info", "data": "before the reset"})
    exchange.pause(0.1)
    exchange.reset()


def slow_headers(exchange: Any) -> None:
    """A head that never ends, one byte at a time."""
    exchange.connection.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not exchange.pause(0.05):
        exchange.connection.write(b"z")


def slow_body(exchange: Any) -> None:
    exchange.connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
    while not exchange.pause(0.05):
        exchange.connection.write(b" ")


def gzip_bomb(exchange: Any) -> None:
    """About 300 KiB that unpack to 300 MiB of a proper answer."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    head, _, tail = exchange.envelope("result", _content(b"SPLIT")).partition(b"SPLIT")
    packed = [packer.compress(head)]
    packed += [packer.compress(b"x" * MIB) for _ in range(300)]
    packed += [packer.compress(tail), packer.flush()]
    exchange.connection.respond(200, b"".join(packed), "application/json", {"Content-Encoding": "gzip"})


def forget_session(exchange: Any) -> None:
    """Answers, then knows no session any more, as after a restart."""
    exchange.text("forgotten")
    exchange.server.forget_sessions()
