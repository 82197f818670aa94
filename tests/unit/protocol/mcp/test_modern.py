from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunks import steady

from trunkline.core.errors import HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION
from trunkline.protocol.jsonrpc import members_of
from trunkline.protocol.mcp.modern import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    HOP_OWNED,
    PROTOCOL_VERSION,
    Refused,
    check_headers,
    check_meta,
    check_version,
    complete,
    decode_header,
    encode_header,
    stamp,
)

GOOD = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": b"tools/call", b"mcp-name": b"t"}


def test_our_own_requests_carry_every_member_that_is_asked_for() -> None:
    meta = json.loads(b"{%b}" % stamp("us", "1", b'{"x":{}}'))
    assert meta[PROTOCOL_VERSION] == "2026-07-28"
    assert meta[CLIENT_CAPABILITIES] == {"x": {}}
    assert meta[CLIENT_INFO] == {"name": "us", "version": "1"}
    assert set(meta) <= HOP_OWNED


def meta_of(**changes: str | None) -> bytes:
    members: dict[str, str | None] = {PROTOCOL_VERSION: '"2026-07-28"', CLIENT_CAPABILITIES: "{}"}
    members |= {
        PROTOCOL_VERSION if name == "version" else CLIENT_CAPABILITIES: value for name, value in changes.items()
    }
    return ("{" + ",".join(f'"{name}":{value}' for name, value in members.items() if value is not None) + "}").encode()


def test_a_request_says_which_version_it_speaks() -> None:
    assert check_meta(members_of(meta_of(), "_meta")) == "2026-07-28"
    assert check_meta(members_of(meta_of(version='"2030-01-01"'), "_meta")) == "2030-01-01"


@pytest.mark.parametrize(
    "changes",
    [
        {"version": None},
        {"capabilities": None},
        {"version": "1"},
        {"version": "null"},
        {"capabilities": "[]"},
        {"capabilities": "null"},
        {"capabilities": '{"a":1,"a":2}'},
    ],
)
def test_a_request_without_what_it_must_carry_is_refused(changes: dict[str, str | None]) -> None:
    with pytest.raises(Refused) as refused:
        check_meta(members_of(meta_of(**changes), "_meta"))
    assert refused.value.problem.code is INVALID_PARAMS


def test_a_version_we_do_not_serve_is_refused_with_those_we_do() -> None:
    check_version("2026-07-28")
    for version in ("2030-01-01", "2025-06-18", ""):
        with pytest.raises(Refused) as refused:
            check_version(version)
        assert refused.value.problem.code is UNSUPPORTED_VERSION
        assert refused.value.extra is not None
        assert refused.value.extra["requested"] == version
        assert "2026-07-28" in str(refused.value.extra["supported"])


def check(headers: Mapping[bytes, bytes], repeated: tuple[bytes, ...] = (), name: str | None = "t") -> None:
    check_headers(headers, repeated, "2026-07-28", "tools/call", name)


def test_headers_that_say_what_the_body_says_pass() -> None:
    check(GOOD)
    check({**GOOD, b"mcp-name": b"  t\t"})
    check({**GOOD, b"mcp-name": b"=?base64?dA==?="})
    check({name: value for name, value in GOOD.items() if name != b"mcp-name"}, name=None)
    check({**GOOD, b"mcp-name": b"ignored"}, name=None)


@pytest.mark.law
@pytest.mark.parametrize("header", GOOD)
def test_a_header_that_is_missing_different_or_doubled_is_refused(header: bytes) -> None:
    wrong = [
        ({name: value for name, value in GOOD.items() if name != header}, ()),
        ({**GOOD, header: b"other"}, ()),
        ({**GOOD, header: GOOD[header].upper() + b"X"}, ()),
        ({**GOOD, header: b"=?base64?!!!?="}, ()),
        ({**GOOD, header: b"=?base64?/w==?="}, ()),
        ({**GOOD, header: b""}, ()),
        (GOOD, (header,)),
    ]
    for headers, repeated in wrong:
        with pytest.raises(Refused) as refused:
            check(headers, repeated)
        assert refused.value.problem.code is HEADER_MISMATCH


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", b"plain"),
        ("with space", b"with space"),
        (" edge", b"=?base64?IGVkZ2U=?="),
        ("edge\t", b"=?base64?ZWRnZQk=?="),
        ("é", b"=?base64?w6k=?="),
        ("a\r\nX: y", b"=?base64?YQ0KWDogeQ==?="),
        ("=?base64?dA==?=", b"=?base64?PT9iYXNlNjQ/ZEE9PT89?="),
        ("", b"=?base64??="),
    ],
)
def test_a_header_value_is_plain_where_it_can_be(text: str, value: bytes) -> None:
    assert encode_header(text) == value
    assert decode_header(value) == text


@steady
@given(st.text())
def test_any_text_survives_a_header(text: str) -> None:
    value = encode_header(text)
    assert decode_header(value) == text
    assert value.isascii()
    assert value.decode().isprintable()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"{}", b'{"resultType":"complete"}'),
        (b'{"a":1}', b'{"resultType":"complete","a":1}'),
        (b' {\n "a":1 }', b'{"resultType":"complete","a":1 }'),
        (b'{"resultType":"task"}', b'{"resultType":"task"}'),
        (b'{"x":{"resultType":1}}', b'{"resultType":"complete","x":{"resultType":1}}'),
        (b'{"x":"\\"resultType\\""}', b'{"resultType":"complete","x":"\\"resultType\\""}'),
        (b'{"resultType":"input_required","x":1.10}', b'{"resultType":"complete","x":1.10}'),
        (b'{"result\\u0054ype":"input_requ\\u0069red","x":1}', b'{"resultType":"complete","x":1}'),
        (b'{"resultType":"task","resultType":"input_required"}', b'{"resultType":"complete"}'),
        (b'{"resultType":1}', b'{"resultType":1}'),
        (b'{"a":1,"a":2,"x":{"resultType":1}}', b'{"resultType":"complete","a":1,"a":2,"x":{"resultType":1}}'),
    ],
)
def test_a_result_is_marked_complete_unless_it_says_what_it_is(before: bytes, after: bytes) -> None:
    assert complete(before) == after
    assert complete(memoryview(before)) == after
