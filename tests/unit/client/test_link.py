from __future__ import annotations

import pytest

from trunkline.client.address import Address
from trunkline.client.link import MAX_LINE_BYTES, Lines, TooLong, decoded, encoded

DATA = b'{"a":1}\n\r\n{"b":2}\r\n   \n{"c":3}\nrest'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_they_were_cut(size: int) -> None:
    lines = Lines()
    got = [line for start in range(0, len(DATA), size) for line in lines.feed(DATA[start : start + size])]
    assert got == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_a_line_over_the_limit_costs_only_itself() -> None:
    lines = Lines(limit_bytes=5)
    assert lines.feed(b"12345\n1234") == [b"12345"]
    assert lines.feed(b"567890") == []
    assert lines.feed(b"still\nnext\n") == [b"next"]


@pytest.mark.parametrize("line", [b"{", b"[1]", b"1", b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_object_is_none(line: bytes) -> None:
    assert decoded(line) is None


def test_messages_are_lines() -> None:
    assert encoded({"a": "ü\n", "b": None}) == '{"a":"ü\\n","b":null}\n'.encode()
    assert encoded({"a": "\udc80"}) == b'{"a":"?"}\n'
    with pytest.raises(TooLong, match="bytes; at most"):
        encoded({"a": "x" * MAX_LINE_BYTES})


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("127.0.0.1:5100", Address("127.0.0.1", 5100), "127.0.0.1:5100"),
        ("localhost:1", Address("localhost", 1), "localhost:1"),
        ("[::1]:5100", Address("::1", 5100), "[::1]:5100"),
        ("./apps.sock", Address(path="./apps.sock"), "./apps.sock"),
        ("/run/apps.sock", Address(path="/run/apps.sock"), "/run/apps.sock"),
    ],
)
def test_an_address_is_written_as_the_gateways_listen_key_is(text: str, address: Address, shown: str) -> None:
    assert Address.parse(text) == address
    assert str(address) == shown


@pytest.mark.parametrize("text", ["", "5100", "localhost", "localhost:", "localhost:99999", "::1:5100"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither `host:port` nor the path of a socket"):
        Address.parse(text)
