from __future__ import annotations

import pytest

from trunkline.sdk.app_connection import MAX_LINE_BYTES, GatewayAddress, decode_line, encode_line
from trunkline.sdk.app_tools import MessageTooLong


@pytest.mark.parametrize("line", [b"", b"  \r", b"{", b"[1]", b"1", b"\xff", b"[" * 100_000, None])
def test_a_line_that_is_no_object_is_none(line: bytes | None) -> None:
    assert decode_line(line) is None


def test_messages_are_lines() -> None:
    assert encode_line({"a": "ü\n", "b": None}) == '{"a":"ü\\n","b":null}\n'.encode()
    assert encode_line({"a": "\udc80"}) == b'{"a":"?"}\n'
    with pytest.raises(MessageTooLong, match="bytes; at most"):
        encode_line({"a": "x" * MAX_LINE_BYTES})


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("127.0.0.1:5100", GatewayAddress("127.0.0.1", 5100), "127.0.0.1:5100"),
        ("localhost:1", GatewayAddress("localhost", 1), "localhost:1"),
        ("[::1]:5100", GatewayAddress("::1", 5100), "[::1]:5100"),
        ("./apps.sock", GatewayAddress(path="./apps.sock"), "./apps.sock"),
        ("/run/apps.sock", GatewayAddress(path="/run/apps.sock"), "/run/apps.sock"),
    ],
)
def test_an_address_is_written_as_the_gateways_listen_key_is(text: str, address: GatewayAddress, shown: str) -> None:
    assert GatewayAddress.parse(text) == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", "5100", "localhost", "localhost:", "localhost:99999", "::1:5100"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither `host:port` nor the path of a socket"):
        GatewayAddress.parse(text)
