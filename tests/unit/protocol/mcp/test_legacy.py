from __future__ import annotations

import json

import msgspec
import pytest

from trunkline.protocol.mcp.versions import decode_initialize_result, initialize_params, initialize_result


def test_our_own_initialize_names_us_and_declares_what_it_is_given() -> None:
    params = json.loads(initialize_params('us"', "1.0", b'{"roots":{}}'))
    assert params == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": 'us"', "version": "1.0"},
    }


def test_instructions_are_left_out_where_there_are_none() -> None:
    assert "instructions" not in json.loads(initialize_result("v", {}, {}, ""))
    assert json.loads(initialize_result("v", {}, {}, "do"))["instructions"] == "do"


def test_a_hello_keeps_what_it_does_not_know_as_bytes() -> None:
    hello = decode_initialize_result(
        b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"x":1.10},"serverInfo":{"name":"n","y":1e400},"z":1}'
    )
    assert hello.protocol_version == "2025-06-18"
    assert bytes(hello.server_info) == b'{"name":"n","y":1e400}'
    assert hello.declares("tools")


def test_a_hello_may_leave_everything_out() -> None:
    hello = decode_initialize_result(b"{}")
    assert (hello.protocol_version, hello.supported_versions, hello.instructions) == ("", [], None)
    assert not hello.declares("tools")


@pytest.mark.parametrize("capabilities", [b'{"tools":{},"x":1e400}', b'{"tools":{},"x":%b}' % (b"9" * 5000)])
def test_numbers_of_any_size_in_capabilities_are_no_obstacle(capabilities: bytes) -> None:
    assert decode_initialize_result(b'{"capabilities":%b}' % capabilities).declares("tools")


@pytest.mark.parametrize("capabilities", [b"null", b"[]", b"1", b'"tools"'])
def test_capabilities_that_are_no_object_are_none(capabilities: bytes) -> None:
    assert not decode_initialize_result(b'{"capabilities":%b}' % capabilities).declares("tools")


@pytest.mark.parametrize("text", [b"[]", b'{"protocolVersion":1}', b'{"supportedVersions":"x"}', b"{"])
def test_what_is_no_hello_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_initialize_result(text)
