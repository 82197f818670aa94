from __future__ import annotations

from trunkline.doors.mcp import hello
from trunkline.doors.mcp.hello import client_name


def test_what_a_client_calls_itself_is_remembered_only_where_it_is_short() -> None:
    hello._known_name.cache_clear()
    assert client_name(b'{"name":"short"}') == "short"
    assert client_name(b'{"name":"long","version":"%b"}' % (b"x" * 1_000_000)) == "long"
    assert client_name(b'{"name":"%b"}' % (b"n" * 100_000)) == "n" * 64
    assert hello._known_name.cache_info().currsize == 1
