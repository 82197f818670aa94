from __future__ import annotations

import json

from trunkline.doors.http.trace import bridge_trace
from trunkline.wire.jsonrpc import parse_message

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS = {b"traceparent": PARENT, b"tracestate": b"a=1", b"baggage": b"k=v"}


def bridged(params: object, headers: dict[bytes, bytes]) -> object:
    message = parse_message(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": params}).encode())
    bridge_trace(message, headers)
    assert message.params is not None
    return json.loads(bytes(message.params))


def test_headers_become_members_of_meta() -> None:
    expected = {"traceparent": PARENT.decode(), "tracestate": "a=1", "baggage": "k=v"}
    assert bridged({"a": 1}, HEADERS) == {"a": 1, "_meta": expected}
    assert bridged({"_meta": {"x": 1}}, HEADERS) == {"_meta": {"x": 1, **expected}}


def test_what_the_message_says_itself_stays() -> None:
    meta = {"traceparent": "mine"}
    assert bridged({"_meta": meta}, HEADERS) == {"_meta": {"traceparent": "mine", "baggage": "k=v"}}


def test_malformed_headers_are_left_out() -> None:
    bad = {b"traceparent": b"nonsense", b"tracestate": b"a=1", b"baggage": b"\xff"}
    assert bridged({"a": 1}, bad) == {"a": 1}
    assert bridged([1], HEADERS) == [1]
