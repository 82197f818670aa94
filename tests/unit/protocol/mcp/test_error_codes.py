from __future__ import annotations

import json

import pytest

from trunkline.protocol.mcp.translation import code_of, for_legacy, for_modern, legacy_code, message_of, urls_required


@pytest.mark.parametrize("error", [b"{}", b"1", b'{"code":"x"}', b'{"code":1.5}', b"nonsense"])
def test_what_has_no_code_is_left_alone(error: bytes) -> None:
    assert code_of(error) == 0
    assert for_legacy(error, reading=True) is error
    assert for_modern(error, "u") is error


def test_ordinary_errors_pass_as_they_are() -> None:
    error = b'{"code" : -32000, "message":"m", "data":1.10}'
    assert for_legacy(error, reading=True) is error
    assert for_modern(error, "u") is error


def test_a_code_changes_and_nothing_else() -> None:
    error = b'{"code":-32002,"message":"m","data":{"n":1.10},"x":1.10}'
    assert for_modern(error, "u") == b'{"code":-32602,"message":"m","data":{"n":1.10,"uri":"u"},"x":1.10}'
    assert for_modern(error, None) == error.replace(b"-32002", b"-32602")
    assert for_modern(b'{"code":-32002,"message":"m","data":{"uri":"v"}}', "u").endswith(b'"data":{"uri":"v"}}')
    assert json.loads(bytes(for_modern(b'{"code":-32042,"message":"m"}', None)))["code"] == -32603


def test_a_modern_servers_missing_resource_is_known_by_its_uri() -> None:
    error = b'{"code":-32602,"message":"m","data":{"uri":"u"}}'
    assert code_of(for_legacy(error, reading=True)) == -32002
    assert for_legacy(error, reading=False) is error
    bad = b'{"code":-32602,"message":"m"}'
    assert for_legacy(bad, reading=True) is bad


def test_an_error_with_a_member_twice_is_still_an_error() -> None:
    error = b'{"code":-32022,"message":"a","message":"b"}'
    assert code_of(for_legacy(error, reading=False)) == -32603


def test_codes_of_ours_in_the_legacy_era() -> None:
    assert [legacy_code(code) for code in (-32020, -32021, -32022, 429)] == [-32603, -32602, -32603, 429]


def test_urls_are_read_or_none_are() -> None:
    url = b'{"mode":"url","url":"https://e.example/","message":"m"}'
    assert len(urls_required(b'{"code":-32042,"data":{"elicitations":[%b,%b]}}' % (url, url))) == 2
    for data in (b"1", b"{}", b'{"elicitations":1}', b'{"elicitations":[1]}', b'{"elicitations":[%b,{}]}' % url):
        assert urls_required(b'{"code":-32042,"data":%b}' % data) == []


def test_what_an_error_says() -> None:
    assert message_of(b'{"code":1,"message":"no"}') == "no"
    assert message_of(b'{"code":1,"message":2}') == message_of(b"1") == "no reason given"
